//! Flight Recorder dumps: recorded ones, and ones that are written here for one rule each.

mod diverged;
mod form;
mod made;
mod recorded;
mod rules;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use deepxtrace_nccl_h2::fr::{DumpSet, Located, Options, Report};
use flate2::read::GzDecoder;
use serde_json::Value;
use tempfile::TempDir;

/// A folder with the unpacked dumps of a recording.
fn unpacked(name: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (file, bytes) in recording(name) {
        fs::write(folder.path().join(file), bytes).unwrap();
    }
    folder
}

/// The files of a recording, unpacked.
fn recording(name: &str) -> Vec<(String, Vec<u8>)> {
    let path = format!("{}/tests/data/fr/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let unpack = |path: PathBuf| {
        let mut bytes = Vec::new();
        GzDecoder::new(&fs::read(&path).unwrap()[..]).read_to_end(&mut bytes).unwrap();
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), bytes)
    };
    files.into_iter().map(unpack).collect()
}

fn analyzed(folder: &Path) -> Report {
    DumpSet::read(&[folder.to_owned()]).unwrap().analyze(&Options::default())
}

/// Kind, group and number of each finding.
fn kinds(report: &Report) -> Vec<(&'static str, &str, i64)> {
    let kind = |found: &Located| found.finding.hang_type.as_str();
    let findings = report.findings.iter();
    findings
        .map(|found| (kind(found), found.finding.comm_uid_hash.as_str(), found.finding.comm_seq))
        .collect()
}

/// The details of a finding as JSON.
fn details(found: &Located) -> Value {
    serde_json::from_str::<Value>(&found.to_json()).unwrap()["details"].take()
}
