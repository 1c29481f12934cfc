//! From a window to the bytes of a file.

use std::io::Cursor;

use deepxtrace_counters::{
    CompletionDelta, CompletionProbe, Counter, LlPhase, NotifyDelta, NotifyProbe, Topology,
};
use deepxtrace_npz::Writer;
use ndarray::Array2;
use serde::Serialize;

use crate::SCHEMA_VERSION;
use crate::error::Reason;
use crate::model::{Artifact, LlArtifact, NormalArtifact};
use crate::name::InvalidInstance;

/// Effort of deflate: counters are nearly random numbers, of which more effort makes hardly less.
const LEVEL: u8 = 1;

/// The key of one counter of a probe.
pub(crate) fn key(probe: impl std::fmt::Display, counter: Counter) -> String {
    format!("{probe}_{counter}")
}

/// The key of the derived averages of a Notify probe.
pub(crate) fn average_key(probe: NotifyProbe) -> String {
    format!("{probe}_average_ns")
}

/// The key of the derived averages of a Completion probe.
pub(crate) fn cost_key(probe: CompletionProbe) -> String {
    format!("{probe}_cost_per_sample")
}

/// Average duration of a launch, ns, by rank; NaN without a launch.
pub(crate) fn averages(delta: &NotifyDelta) -> impl Iterator<Item = f64> + '_ {
    delta.duration_ns.iter().zip(&delta.count).map(|(&duration, &count)| {
        if count > 0 { duration as f64 / count as f64 } else { f64::NAN }
    })
}

/// Cost of a sample, cycles, in the order of the matrix; NaN unless cost and samples are above 0.
pub(crate) fn costs(delta: &CompletionDelta) -> impl Iterator<Item = f64> + '_ {
    delta.cost.iter().zip(&delta.samples).map(|(&cost, &samples)| {
        if cost > 0 && samples > 0 { cost as f64 / samples as f64 } else { f64::NAN }
    })
}

impl Artifact<'_> {
    /// The bytes of the file: the same for the same artifact.
    ///
    /// # Errors
    ///
    /// - the instance cannot be part of a file name
    /// - the number of the window is above `i64::MAX`
    pub fn to_bytes(&self) -> Result<Vec<u8>, Reason> {
        InvalidInstance::check(self.instance())?;
        let n = self.topology().ep_size();
        let mut archive = Npz {
            writer: Writer::new(Cursor::new(Vec::with_capacity(4096 + 32 * n * n))).level(LEVEL),
        };
        archive.head(self)?;
        match self {
            Self::Normal(artifact) => archive.normal(artifact, n)?,
            Self::LowLatency(artifact) => archive.low_latency(artifact, n)?,
        }
        Ok(archive.writer.finish()?.into_inner())
    }
}

struct Npz {
    writer: Writer<Cursor<Vec<u8>>>,
}

impl Npz {
    fn head(&mut self, artifact: &Artifact<'_>) -> Result<(), Reason> {
        let topology = artifact.topology();
        let (begin, end) = artifact.time();
        let index = i64::try_from(artifact.index()).map_err(|_| Reason::Inconsistent {
            key: "window_index".into(),
            what: format!("{} is above {}", artifact.index(), i64::MAX),
        })?;
        self.integer("schema_version", SCHEMA_VERSION)?;
        self.text("kind", artifact.kind().name())?;
        self.text("instance_id", artifact.instance())?;
        self.integer("ep_size", topology.ep_size() as i64)?;
        self.integer("ranks_per_node", ranks_per_node(topology))?;
        self.integer("window_index", index)?;
        self.integer("begin_unix_ns", begin)?;
        self.integer("end_unix_ns", end)?;
        let (valid, policy) = match artifact {
            Artifact::Normal(artifact) => (artifact.window.valid(), artifact.policy),
            Artifact::LowLatency(artifact) => (artifact.window.valid(), artifact.policy),
        };
        self.writer.array("valid", &[valid.len()], valid)?;
        self.json("policy_json", &policy)
    }

    fn normal(&mut self, artifact: &NormalArtifact<'_>, n: usize) -> Result<(), Reason> {
        let window = &artifact.window;
        for probe in NotifyProbe::ALL {
            let delta = window.notify(probe);
            self.writer.array(&key(probe, Counter::DurationNs), &[n], &delta.duration_ns[..])?;
            self.writer.array(&key(probe, Counter::Count), &[n], &delta.count[..])?;
            let averages: Vec<f64> = averages(delta).collect();
            self.writer.array(&average_key(probe), &[n], &averages[..])?;
        }
        for probe in CompletionProbe::ALL {
            let delta = window.completion(probe);
            self.matrix(&key(probe, Counter::Cost), &delta.cost, n)?;
            self.matrix(&key(probe, Counter::SampleCount), &delta.samples, n)?;
            self.matrix(&key(probe, Counter::TokenCount), &delta.tokens, n)?;
            let costs: Vec<f64> = costs(delta).collect();
            self.writer.array(&cost_key(probe), &[n, n], &costs[..])?;
        }
        self.json("diagnosis_json", &*artifact.diagnosis)
    }

    fn low_latency(&mut self, artifact: &LlArtifact<'_>, n: usize) -> Result<(), Reason> {
        for phase in LlPhase::ALL {
            self.matrix(&format!("{phase}_wait"), artifact.window.wait(phase), n)?;
        }
        self.json("mean_policy_json", &artifact.mean_policy)?;
        for (phase, diagnosis) in LlPhase::ALL.into_iter().zip(&artifact.diagnoses) {
            self.json(&format!("{phase}_diagnosis_json"), &diagnosis.as_deref())?;
        }
        Ok(())
    }

    fn integer(&mut self, key: &str, value: i64) -> Result<(), Reason> {
        Ok(self.writer.array(key, &[], &[value][..])?)
    }

    fn text(&mut self, key: &str, value: &str) -> Result<(), Reason> {
        Ok(self.writer.array(key, &[], &[value][..])?)
    }

    fn json(&mut self, key: &str, value: &impl Serialize) -> Result<(), Reason> {
        let text = serde_json::to_string(value).map_err(std::io::Error::other)?;
        self.text(key, &text)
    }

    fn matrix(&mut self, key: &str, values: &Array2<i64>, n: usize) -> Result<(), Reason> {
        let values = values.as_standard_layout();
        // A matrix in standard layout always has a slice.
        Ok(self.writer.array(key, &[n, n], values.as_slice().unwrap_or_default())?)
    }
}

/// The node size, as far as an `i64` goes: a larger one means one node all the same.
fn ranks_per_node(topology: Topology) -> i64 {
    i64::try_from(topology.ranks_per_node()).unwrap_or(i64::MAX)
}
