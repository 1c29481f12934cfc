//! How much memory a file can make the reader take. A binary of its own with one test, because the
//! allocator counts the whole process.

#![allow(clippy::unwrap_used, missing_docs)]

use std::borrow::Cow;
use std::io::Cursor;

use deepxtrace_artifact::{Artifact, NormalArtifact, read_from};
use deepxtrace_counters::{Topology, Window};
use deepxtrace_normal::{Diagnoser, Policy};
use deepxtrace_npz::{Archive, Writer};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Bytes of the file, and bytes that reading it took at most; whether it was an artifact.
fn measure(bytes: &[u8]) -> (usize, usize, bool) {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let found = read_from(Cursor::new(bytes), "a.npz").is_ok();
    (bytes.len(), MEMORY.peak_usage() - before, found)
}

fn idle(n: usize) -> Vec<u8> {
    let window = Window::empty(Topology::new(n, 8).unwrap());
    let policy = Policy::default();
    let mut diagnoser = Diagnoser::new(window.topology(), policy).unwrap();
    let diagnosis = Cow::Owned(diagnoser.diagnose(&window).clone());
    let window = Cow::Owned(window);
    Artifact::Normal(NormalArtifact { instance: "a".into(), policy, window, diagnosis })
        .to_bytes()
        .unwrap()
}

/// The file of `idle(1)`, which says that the group has 4,096 ranks; each array keeps its own shape
/// but has a header of the caller's.
fn lying(shape: &[usize], values: usize) -> Vec<u8> {
    let bytes = idle(1);
    let mut archive = Archive::new(Cursor::new(&bytes), "a.npz").unwrap();
    let names: Vec<_> = archive.names().collect();
    let mut writer = Writer::new(Cursor::new(Vec::new()));
    for name in names {
        let array = archive.array(&name).unwrap();
        match (array.dtype(), name.as_str()) {
            ("<i8", "ep_size") => writer.array(&name, &[], &[4096_i64][..]).unwrap(),
            ("<i8", _) if array.shape().is_empty() => {
                writer.array(&name, &[], &array.into_i64().unwrap()[..]).unwrap();
            }
            ("|b1", _) => writer.array(&name, &[4096], &[true; 4096][..]).unwrap(),
            ("<f8", _) => writer.array(&name, shape, &vec![f64::NAN; values][..]).unwrap(),
            ("<i8", _) => writer.array(&name, shape, &vec![0_i64; values][..]).unwrap(),
            _ => {
                let text = array.into_scalar_string().unwrap();
                writer.array(&name, &[], &[text.as_str()][..]).unwrap();
            }
        }
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn memory_follows_the_file_and_never_what_it_only_claims() {
    // A group of 4,096 ranks has matrices of 134 MB each: twelve of them are 1.6 GB.
    let (file, memory, found) = measure(&lying(&[1], 1));
    assert!(!found);
    assert!(memory < 1 << 20, "{file} bytes of a lie took {memory}");

    // The largest real ratio: an idle window, of which deflate makes nearly nothing.
    let (file, memory, found) = measure(&idle(256));
    assert!(found);
    let counters = 12 * 256 * 256 * 8;
    assert!(memory < 2 * counters, "{file} bytes took {memory}, the arrays are {counters}");
    assert!(memory < 1_100 * file, "{file} bytes took {memory}");

    // Cut and changed files never take more than whole ones.
    let whole = idle(16);
    let (_, most, _) = measure(&whole);
    for at in (0..whole.len()).step_by(7) {
        let mut changed = whole.clone();
        changed[at] ^= 0x55;
        let (file, memory, _) = measure(&changed);
        assert!(memory <= most + 64 * file, "byte {at}: {file} bytes took {memory}, {most}");
        let (file, memory, found) = measure(&whole[..at]);
        assert!(!found && memory <= most + 64 * file, "cut at {at}: took {memory}, {most}");
    }
}
