//! Windows as files, for `DEEPEP_DIAGNOSE_ARTIFACT_PATH`.

use std::borrow::Cow;

use deepxtrace_artifact::{Artifact, LlArtifact, NormalArtifact, Store};

use super::sink::{LlRecord, SinkError, WindowRecord, WindowSink};

/// Writes every window into a folder and keeps the newest.
#[derive(Debug)]
pub(super) struct Artifacts {
    store: Store,
}

impl Artifacts {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }
}

impl WindowSink for Artifacts {
    fn normal(&mut self, record: WindowRecord<'_>) -> Result<(), SinkError> {
        self.store.write(&Artifact::Normal(NormalArtifact {
            instance: Cow::Owned(record.instance.to_string()),
            policy: *record.policy,
            window: Cow::Borrowed(record.window),
            diagnosis: Cow::Borrowed(record.diagnosis),
        }))?;
        Ok(())
    }

    fn low_latency(&mut self, record: LlRecord<'_>) -> Result<(), SinkError> {
        self.store.write(&Artifact::LowLatency(LlArtifact {
            instance: Cow::Owned(record.instance.to_string()),
            policy: *record.policy,
            mean_policy: *record.mean_ratio,
            window: Cow::Borrowed(record.window),
            diagnoses: [record.dispatch, record.combine].map(|d| d.map(Cow::Borrowed)),
        }))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use deepxtrace_artifact::{list, read};
    use deepxtrace_collect::Uuid;
    use deepxtrace_counters::{LlWindow, Topology, Window};
    use deepxtrace_ll::MeanRatioPolicy;
    use deepxtrace_normal::{Diagnoser, Policy};

    use super::*;

    #[test]
    fn windows_of_both_modes_are_written_and_the_newest_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = Artifacts::new(Store::new(folder.path(), 2));
        let topology = Topology::new(4, 2).unwrap();
        let (policy, mean_ratio) = (Policy::default(), MeanRatioPolicy::default());
        let mut diagnoser = Diagnoser::new(topology, policy).unwrap();
        let instance = Uuid::from_u128(0x1234);
        let mut window = Window::empty(topology);
        for index in 1..=3 {
            window.set_place(index, 0, 1);
            let diagnosis = diagnoser.diagnose(&window);
            let record = WindowRecord { instance, window: &window, diagnosis, policy: &policy };
            sink.normal(record).unwrap();
        }
        let waits = LlWindow::empty(topology);
        let (dispatch, combine) = (None, None);
        let (window, mean_ratio) = (&waits, &mean_ratio);
        let record = LlRecord { instance, window, dispatch, combine, mean_ratio, policy: &policy };
        sink.low_latency(record).unwrap();

        let names = list(folder.path()).unwrap();
        let files: Vec<_> = names.iter().map(ToString::to_string).collect();
        let id = "00000000-0000-0000-0000-000000001234";
        assert_eq!(
            files,
            [
                format!("normal_window_{id}_000002.npz"),
                format!("normal_window_{id}_000003.npz"),
                format!("ll_window_{id}_000000.npz"),
            ]
        );
        for file in files {
            assert_eq!(read(folder.path().join(file)).unwrap().instance(), id);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_of_that_window_only() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("file");
        std::fs::write(&blocked, "").unwrap();
        let mut sink = Artifacts::new(Store::new(blocked.clone(), 2));
        let window = Window::empty(Topology::new(1, 1).unwrap());
        let policy = Policy::default();
        let mut diagnoser = Diagnoser::new(window.topology(), policy).unwrap();
        let diagnosis = diagnoser.diagnose(&window);
        let instance = Uuid::nil();
        let record = WindowRecord { instance, window: &window, diagnosis, policy: &policy };
        assert!(sink.normal(record).is_err());
        std::fs::remove_file(&blocked).unwrap();
        sink.normal(record).unwrap();
        assert_eq!(list(&blocked).unwrap().len(), 1);
    }
}
