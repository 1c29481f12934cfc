//! What was written is read back, and the bytes are reproducible.

use std::io::Cursor;

use deepxtrace_npz::{Archive, Values, Writer};
use proptest::prelude::*;

fn write(arrays: &[(&str, &[usize], Values<'_>)]) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new())).level(1);
    for (name, shape, values) in arrays {
        writer.array(name, shape, *values).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn the_same_arrays_give_the_same_bytes_and_carry_no_clock_time() {
    let arrays: [(&str, &[usize], Values<'_>); 2] =
        [("a", &[3], (&[1_i64, 2, 3][..]).into()), ("t", &[], (&["x"][..]).into())];
    let bytes = write(&arrays);
    assert_eq!(bytes, write(&arrays));
    // The local header begins with signature, version, flags, method; then time and date:
    // midnight, and 1 January of year 0, which is 1980.
    assert_eq!(bytes[10..14], [0, 0, 0x21, 0]);
}

#[test]
fn a_shape_that_does_not_fit_the_values_is_refused() {
    let mut writer = Writer::new(Cursor::new(Vec::new()));
    let error = writer.array("a", &[2, 2], &[1_i64, 2, 3][..]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "NPZ archive: entry a: found 3 values, expected as many as shape [2, 2] has"
    );
    assert!(writer.array("b", &[usize::MAX, 2], &[0_i64; 2][..]).is_err());
    writer.array("c", &[2], &[0_i64; 2][..]).unwrap();
    assert!(writer.array("c", &[2], &[0_i64; 2][..]).is_err(), "the name is taken");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn values_survive(
        integers in prop::collection::vec(any::<i64>(), 0..50),
        floats in prop::collection::vec(any::<f64>(), 0..50),
        flags in prop::collection::vec(any::<bool>(), 0..50),
        text in prop::collection::vec("\\PC{0,9}", 0..9),
    ) {
        let text: Vec<_> = text.iter().map(String::as_str).collect();
        let bytes = write(&[
            ("integers", &[integers.len()], (&integers[..]).into()),
            ("floats", &[1, floats.len()], (&floats[..]).into()),
            ("flags", &[flags.len(), 1], (&flags[..]).into()),
            ("text", &[text.len()], (&text[..]).into()),
        ]);
        let mut archive = Archive::new(Cursor::new(bytes), "memory").unwrap();
        prop_assert_eq!(archive.array("integers").unwrap().into_i64().unwrap(), integers);
        let read = archive.array("floats").unwrap().into_f64().unwrap();
        let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&read), bits(&floats));
        prop_assert_eq!(archive.array("flags").unwrap().into_bool().unwrap(), flags);
        prop_assert_eq!(archive.array("text").unwrap().into_strings().unwrap(), text);
    }
}
