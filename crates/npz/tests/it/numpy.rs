//! Files that NumPy wrote: every value here stands in `make_numpy.py`.

use deepxtrace_npz::{Archive, Array};

use crate::data;

fn open() -> Archive<impl std::io::Read + std::io::Seek> {
    Archive::open(data("numpy.npz")).unwrap()
}

fn integers(name: &str) -> (Vec<usize>, Vec<i64>) {
    let mut archive = open();
    let array = archive.array(name).unwrap();
    (array.shape().to_vec(), array.into_i64().unwrap())
}

fn refused(name: &str, read: impl FnOnce(Array<'_>) -> String) -> String {
    let mut archive = open();
    let text = match archive.array(name) {
        Ok(array) => read(array),
        Err(error) => error.to_string(),
    };
    let (file, rest) = text.split_once("numpy.npz: ").unwrap();
    assert!(file.ends_with("tests/data/"), "the file is named: {file}");
    rest.to_owned()
}

#[test]
fn integers_of_any_width_and_byte_order_are_exact() {
    assert_eq!(integers("i1"), (vec![2], vec![-128, 127]));
    assert_eq!(integers("i2"), (vec![2], vec![-32768, 32767]));
    assert_eq!(integers("i4"), (vec![1, 3], vec![-2_147_483_648, 2_147_483_647, 7]));
    assert_eq!(integers("i8").0, [2, 3, 4]);
    assert_eq!(integers("i8").1, (0..24).map(|i| i64::MIN + i).collect::<Vec<_>>());
    assert_eq!(integers("i8_big"), (vec![2], vec![i64::MIN, i64::MAX]));
    assert_eq!(integers("u1"), (vec![2], vec![0, 255]));
    assert_eq!(integers("u2_big"), (vec![2], vec![0, 65535]));
    assert_eq!(integers("u4"), (vec![1], vec![4_294_967_295]));
    assert_eq!(integers("u8"), (vec![1, 2], vec![0, i64::MAX]));
    assert_eq!(integers("empty"), (vec![0, 5], vec![]));
    assert_eq!(integers("scalar"), (vec![], vec![8]));
    assert_eq!(open().array("scalar").unwrap().into_scalar_i64().unwrap(), 8);
}

#[test]
fn floats_booleans_and_text_are_read() {
    assert_eq!(open().array("f4").unwrap().into_f64().unwrap(), [1.5, -0.25]);
    assert_eq!(open().array("f8").unwrap().into_f64().unwrap(), [0.1, f64::INFINITY]);
    assert_eq!(open().array("f8_big").unwrap().into_f64().unwrap(), [0.1]);
    assert_eq!(open().array("flags").unwrap().into_bool().unwrap(), [true, false, true]);
    let text = open().array("text").unwrap().into_strings().unwrap();
    assert_eq!(text, ["", "rank 9", "früh \u{1f600}"]);
    assert_eq!(open().array("text_big").unwrap().into_strings().unwrap(), ["ab"]);
    assert_eq!(open().array("scalar_text").unwrap().into_scalar_string().unwrap(), "incident");
}

#[test]
fn stored_entries_are_read_like_deflated_ones() {
    let mut archive = Archive::open(data("numpy_stored.npz")).unwrap();
    assert_eq!(archive.array("i8").unwrap().into_i64().unwrap(), integers("i8").1);
    assert_eq!(archive.names().collect::<Vec<_>>(), ["i8", "text"]);
    assert!(archive.contains("text") && !archive.contains("text.npy"));
}

#[test]
fn an_array_is_read_piece_by_piece() {
    let mut archive = open();
    let mut array = archive.array("i8").unwrap().expect_integers().unwrap();
    let mut piece = [0; 12];
    for part in 0..2 {
        array.read_i64(&mut piece).unwrap();
        assert_eq!(piece, std::array::from_fn(|i| i64::MIN + 12 * part + i as i64));
    }
    array.finish().unwrap();

    let mut array = archive.array("i8").unwrap();
    array.read_i64(&mut piece).unwrap();
    let error = array.finish().unwrap_err().to_string();
    assert!(error.contains("97 bytes of data, 192 expected"), "{error}");

    let mut array = archive.array("i8").unwrap();
    let error = array.read_i64(&mut [0; 25]).unwrap_err().to_string();
    assert!(error.ends_with("found <i8 of shape [2, 3, 4], expected 25 more elements"), "{error}");
}

#[test]
fn fortran_order_is_refused_where_it_makes_a_difference() {
    assert_eq!(
        refused("fortran", |_| String::new()),
        "entry fortran: found <i8 of shape [2, 3] in Fortran order, expected C order \
         (numpy.ascontiguousarray gives it), not Fortran order"
    );
    assert_eq!(integers("fortran_column"), (vec![3, 1], vec![0, 1, 2]));
}

#[test]
fn other_types_are_refused_by_name() {
    let integer = |array: Array<'_>| array.into_i64().unwrap_err().to_string();
    assert_eq!(refused("f8", integer), "entry f8: found <f8 of shape [2], expected integers");
    assert_eq!(refused("flags", integer), "entry flags: found |b1 of shape [3], expected integers");
    assert_eq!(
        refused("u8_huge", integer),
        "entry u8_huge: element [1, 1] is 9223372036854775808, expected at most 9223372036854775807"
    );
    let float = |array: Array<'_>| array.into_f64().unwrap_err().to_string();
    for name in ["f2", "complex", "i8", "structured"] {
        assert!(refused(name, float).ends_with("expected floating-point numbers"), "{name}");
    }
    let flags = |array: Array<'_>| array.into_bool().unwrap_err().to_string();
    assert!(refused("i1", flags).ends_with("found |i1 of shape [2], expected booleans"));
    let text = |array: Array<'_>| array.into_strings().unwrap_err().to_string();
    assert!(refused("i8", text).ends_with("expected text"));
    let scalar = |array: Array<'_>| array.into_scalar_i64().unwrap_err().to_string();
    assert!(refused("i1", scalar).ends_with("found |i1 of shape [2], expected one integer"));
    let shape = |array: Array<'_>| array.expect_shape(&[2, 3]).unwrap_err().to_string();
    assert_eq!(
        refused("i8", shape),
        "entry i8: found <i8 of shape [2, 3, 4], expected shape [2, 3]"
    );
}
