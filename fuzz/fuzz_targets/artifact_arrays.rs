//! Changes the arrays within a valid artifact and packs them again: gets behind the checksums of the
//! archive, to headers, shapes, texts and counters.

#![no_main]

use std::borrow::Cow;
use std::io::{Cursor, Read, Write};
use std::sync::LazyLock;

use deepxtrace_artifact::{Artifact, LlArtifact, NormalArtifact, read_from};
use deepxtrace_counters::{LlWindow, NotifyProbe, Topology, Window};
use deepxtrace_ll::{LlDiagnosis, MeanRatioPolicy};
use deepxtrace_normal::{Diagnoser, Policy};
use libfuzzer_sys::fuzz_target;
use zip::write::SimpleFileOptions;

type Entries = Vec<(String, Vec<u8>)>;

static SEEDS: LazyLock<[Entries; 2]> =
    LazyLock::new(|| [unpack(&normal().to_bytes().unwrap()), unpack(&ll().to_bytes().unwrap())]);

fn normal() -> Artifact<'static> {
    let topology = Topology::new(3, 2).unwrap();
    let mut window = Window::empty(topology);
    window.set_place(2, 0, 1_000_000);
    for probe in NotifyProbe::ALL {
        window.edit_notify(probe, |delta| {
            delta.duration_ns = vec![1_000, 1_000, 10];
            delta.count = vec![1; 3];
        });
    }
    let policy = Policy::default();
    let diagnosis = Diagnoser::new(topology, policy).unwrap().diagnose(&window).clone();
    Artifact::Normal(NormalArtifact {
        instance: Cow::Borrowed("fuzz"),
        policy,
        window: Cow::Owned(window),
        diagnosis: Cow::Owned(diagnosis),
    })
}

fn ll() -> Artifact<'static> {
    let topology = Topology::new(3, 2).unwrap();
    let diagnosis = LlDiagnosis { shape: [3, 3], ..LlDiagnosis::default() };
    Artifact::LowLatency(LlArtifact {
        instance: Cow::Borrowed("fuzz"),
        policy: Policy::default(),
        mean_policy: MeanRatioPolicy::default(),
        window: Cow::Owned(LlWindow::empty(topology)),
        diagnoses: [Some(Cow::Owned(diagnosis)), None],
    })
}

fn unpack(bytes: &[u8]) -> Entries {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let count = archive.len();
    let read = |i| {
        let mut entry = archive.by_index(i).unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.name().unwrap().into_owned(), content)
    };
    (0..count).map(read).collect()
}

fn pack(entries: &Entries) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, content) in entries {
        archive.start_file(name.as_str(), stored).unwrap();
        archive.write_all(content).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// Each change is four bytes and a text: which array, where, how many bytes to drop, how many to
/// put in.
fn change(entries: &mut Entries, mut bytes: &[u8]) {
    while let [entry, place, drop, put, rest @ ..] = bytes {
        let count = entries.len();
        let content = &mut entries[usize::from(*entry) % count].1;
        // Headers are 128 bytes: both they and what follows are reached.
        let at = (usize::from(*place) * content.len() / 256).min(content.len());
        let end = (at + usize::from(*drop % 32)).min(content.len());
        let put = usize::from(*put % 32).min(rest.len());
        content.splice(at..end, rest[..put].iter().copied());
        bytes = &rest[put..];
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, changes)) = bytes.split_first() else { return };
    let mut entries = SEEDS[usize::from(first % 2)].clone();
    change(&mut entries, changes);
    // Only damage to what is checked gets this far: an error, or an artifact of the same kind.
    if let Ok(artifact) = read_from(Cursor::new(pack(&entries)), "fuzz.npz") {
        assert!(artifact.topology().ep_size() <= 4096 && artifact.name().is_ok());
    }
});
