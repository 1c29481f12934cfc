//! Reads a file as an artifact: an error or an artifact, never a panic. What is read can be written,
//! and what was written is read back.

#![no_main]

use std::io::Cursor;

use deepxtrace_artifact::read_from;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(artifact) = read_from(Cursor::new(bytes), "fuzz.npz") else { return };
    let written = artifact.to_bytes().expect("what was read can be written");
    let again = read_from(Cursor::new(&written), "again.npz").expect("what was written is read");
    assert_eq!(again, artifact);
});
