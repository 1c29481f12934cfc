//! Files that are not what they say: an error that names the place, never a panic.

use std::io::{Cursor, Write};

use deepxtrace_npz::{Archive, Array, Error};
use proptest::prelude::*;
use zip::write::SimpleFileOptions;

use crate::data;

/// An archive with the entry `a.npy` of any bytes.
fn archive_of(npy: &[u8]) -> Archive<Cursor<Vec<u8>>> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("a.npy", SimpleFileOptions::default()).unwrap();
    zip.write_all(npy).unwrap();
    Archive::new(zip.finish().unwrap(), "f").unwrap()
}

/// An NPY file of version 1 with this header text.
fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

fn error_of(npy: &[u8]) -> String {
    let mut archive = archive_of(npy);
    match archive.array("a").and_then(Array::into_i64) {
        Ok(values) => panic!("read {values:?}"),
        Err(error) => {
            assert_eq!((error.file(), error.entry()), ("f", Some("a")));
            error.to_string()
        }
    }
}

fn header(shape: &str) -> String {
    format!("{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}\n")
}

#[test]
fn a_shape_that_the_data_do_not_fill_is_refused() {
    assert_eq!(
        error_of(&npy(&header("(3,)"), &[0; 16])),
        "f: entry a: 16 bytes of data, 24 expected for <i8 of shape [3]"
    );
    assert_eq!(
        error_of(&npy(&header("(1,)"), &[0; 16])),
        "f: entry a: 16 bytes of data, 8 expected for <i8 of shape [1]"
    );
    assert!(
        error_of(&npy(&header("(1000000, 1000000)"), &[])).contains("0 bytes of data, 8000000")
    );
}

#[test]
fn axes_whose_product_overflows_are_refused() {
    let large = error_of(&npy(&header("(4294967296, 4294967296, 4294967296)"), &[]));
    assert!(large.contains("header is not one of a plain array"), "{large}");
    let large = error_of(&npy(&header("(0x7fffffffffffffff, 3)"), &[]));
    assert!(large.contains("header is not one of a plain array"), "{large}");
    let large = error_of(&npy(&header("(999999999999999999,)"), &[]));
    assert!(large.contains("too large") || large.contains("0 bytes of data"), "{large}");
    assert!(error_of(&npy(&header("(-1,)"), &[])).contains("cannot be negative"));
}

#[test]
fn texts_without_width_are_read_and_too_many_of_them_refused() {
    let text = |n: &str| {
        npy(&format!("{{'descr': '<U0', 'fortran_order': False, 'shape': ({n},), }}\n"), &[])
    };
    let mut archive = archive_of(&text("2"));
    assert_eq!(archive.array("a").unwrap().into_strings().unwrap(), ["", ""]);
    let mut archive = archive_of(&text("99999999999999999"));
    let error = archive.array("a").unwrap().into_strings().unwrap_err().to_string();
    assert!(error.contains("at most 8589934592 are read at once"), "{error}");
}

#[test]
fn a_header_that_promises_gigabytes_costs_none() {
    let mut bytes = b"\x93NUMPY\x02\x00".to_vec();
    bytes.extend(u32::MAX.to_le_bytes());
    assert!(error_of(&bytes).contains("a header of 4294967295 bytes, at most 65536"));
    assert!(error_of(&npy(&header("(1,)"), &[0; 8])[..40]).contains("ends within its header"));
    assert!(error_of(b"").contains("shorter than a header"));
    assert!(error_of(b"PK\x03\x04 not an array").contains("NPY magic bytes"));
    assert!(error_of(&npy("{}", &[])).contains("missing key"));
    assert!(error_of(&npy("[[[[", &[])).contains("not a readable NPY array"));
    assert!(error_of(&npy(&"[".repeat(60_000), &[])).contains("not a readable NPY array"));
}

#[test]
fn text_that_is_no_unicode_is_refused() {
    let bytes = npy(
        "{'descr': '<U1', 'fortran_order': False, 'shape': (2,), }\n",
        &[65, 0, 0, 0, 0, 0xd8, 0, 0],
    );
    let error = archive_of(&bytes).array("a").unwrap().into_strings().unwrap_err().to_string();
    assert_eq!(
        error,
        "f: entry a: element [1] is text with the code 0xd800, expected Unicode text"
    );
}

#[test]
fn files_that_are_no_archive_say_so() {
    let open =
        |bytes: &[u8]| Archive::new(Cursor::new(bytes.to_vec()), "f").unwrap_err().to_string();
    for bytes in [&b""[..], b"\x93NUMPY", &[0; 100], b"PK\x05\x06"] {
        assert!(open(bytes).starts_with("f: not a readable NPZ (ZIP) archive: "), "{bytes:?}");
    }
    let missing = Archive::open("no/such.npz").unwrap_err().to_string();
    assert!(missing.starts_with("no/such.npz: ") && missing.contains("No such file"), "{missing}");
    let folder = Archive::open(data("")).unwrap_err().to_string();
    assert!(folder.contains("folder"), "{folder}");
    assert!(Array::open(data("")).is_err());
    let whole = std::fs::read(data("numpy.npz")).unwrap();
    for end in [whole.len() - 1, whole.len() / 2, 30] {
        open(&whole[..end]);
    }
}

#[test]
fn an_entry_that_inflates_beyond_what_deflate_can_is_refused() {
    let npy = npy(&header("(1000,)"), &[0; 8000]);
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("a.npy", SimpleFileOptions::default()).unwrap();
    zip.write_all(&npy).unwrap();
    let mut bytes = zip.finish().unwrap().into_inner();
    // The declared sizes stand 24 bytes into the entry of the directory, little-endian.
    let entry = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    bytes[entry + 24..entry + 28].copy_from_slice(&0x7fff_0000_u32.to_le_bytes());
    let mut archive = Archive::new(Cursor::new(bytes), "f").unwrap();
    let error = archive.array("a").unwrap_err().to_string();
    assert!(error.contains("cannot hold the 2147418112 that it declares"), "{error}");
}

/// Reads everything there is, in every way.
fn read_all(archive: &mut Archive<Cursor<Vec<u8>>>) -> Result<(), Error> {
    for name in archive.names().collect::<Vec<_>>() {
        let _ = archive.array(&name).and_then(Array::into_i64);
        let _ = archive.array(&name).and_then(Array::into_f64);
        let _ = archive.array(&name).and_then(Array::into_bool);
        let _ = archive.array(&name).and_then(Array::into_strings);
        let _ = archive.array(&name).and_then(Array::into_scalar_i64);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn changed_bytes_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(),
        cut in prop::bool::weighted(0.2),
    ) {
        let mut bytes = std::fs::read(data("numpy_stored.npz")).unwrap();
        for (index, value) in changes {
            let place = index.index(bytes.len());
            bytes[place] = value;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        if let Ok(mut archive) = Archive::new(Cursor::new(bytes), "f") {
            read_all(&mut archive).unwrap();
        }
    }

    #[test]
    fn arbitrary_headers_never_panic(
        text in "[{}()\\[\\],:' a-z0-9<>|_-]{0,80}",
        shape in "[0-9, ()\\[\\]_xobe+.-]{0,30}",
    ) {
        for header in [text, header(&shape)] {
            let mut archive = archive_of(&npy(&header, &[0; 8]));
            read_all(&mut archive).unwrap();
        }
    }
}
