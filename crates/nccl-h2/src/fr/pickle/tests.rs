//! Pickles put together by hand, from the descriptions in Python's `pickletools`.

use super::*;
use crate::fr::value::View;
use proptest::prelude::*;

fn limits() -> Limits {
    Limits { bytes: 1 << 20, values: 1000, depth: 8 }
}

/// Reads a pickle and writes its value as text.
fn read(parts: &[&[u8]]) -> Result<String, Fault> {
    let input = [&[0x80, 2][..], &parts.concat()].concat();
    let (mut machine, mut arena) = (Machine::default(), Arena::default());
    let value = machine.read(&input, &mut arena, &limits())?;
    Ok(show(&View { arena: &arena, text: &input }, value, 0))
}

fn show(view: &View<'_>, value: Value, depth: usize) -> String {
    if depth > 5 {
        return "...".to_owned();
    }
    let items = |items: &[Value]| {
        items.iter().map(|item| show(view, *item, depth + 1)).collect::<Vec<_>>().join(" ")
    };
    match value {
        Value::List(_) => format!("[{}]", items(view.list(value).unwrap())),
        Value::Dict(_) => format!("{{{}}}", items(view.pairs(value).unwrap())),
        Value::Text { .. } => String::from_utf8_lossy(view.bytes(value).unwrap()).into_owned(),
        Value::None => "none".to_owned(),
        Value::WideInt => "wide".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Bool(value) => value.to_string(),
    }
}

#[track_caller]
fn gives(parts: &[&[u8]], expected: &str) {
    assert_eq!(read(parts), Ok(expected.to_owned()));
}

#[test]
fn scalars_are_read() {
    gives(&[b"N."], "none");
    gives(&[b"(\x88\x89t."], "[true false]");
    gives(&[b"K\xff."], "255");
    gives(&[b"M\x01\x02."], "513");
    gives(&[b"J\xff\xff\xff\xff."], "-1");
    gives(&[b"G\x3f\xf8\0\0\0\0\0\0."], "1.5");
    gives(&[b"X\x02\0\0\0hi."], "hi");
    gives(&[b"\x8c\x02hi."], "hi");
    gives(&[b"\x8d\x02\0\0\0\0\0\0\0hi."], "hi");
    gives(&[b"U\x01a."], "a");
}

#[test]
fn long_integers_of_every_length_are_two_s_complement() {
    gives(&[b"\x8a\x00."], "0");
    gives(&[b"\x8a\x01\xff."], "-1");
    gives(&[b"\x8a\x02\xff\x00."], "255");
    gives(&[b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."], "9223372036854775807");
    gives(&[b"\x8a\x08\0\0\0\0\0\0\0\x80."], "-9223372036854775808");
    gives(&[b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\x00."], "9223372036854775807");
    gives(&[b"\x8a\x09\0\0\0\0\0\0\0\x80\x00."], "wide");
    gives(&[b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\xff."], "wide");
    gives(&[b"\x8b\x01\0\0\0\x05."], "5");
    assert_eq!(read(&[b"\x8b\xff\xff\xff\xff\x05."]), Err(Fault::CutShort { offset: 9 }));
}

#[test]
fn containers_are_filled_one_by_one_and_at_once() {
    gives(&[b"]K\x01aK\x02a."], "[1 2]");
    gives(&[b"](K\x01K\x02e(K\x03e."], "[1 2 3]");
    gives(&[b"}K\x01K\x02s."], "{1 2}");
    gives(&[b"}(K\x01K\x02K\x03K\x04u."], "{1 2 3 4}");
    gives(&[b"(K\x01K\x02l."], "[1 2]");
    gives(&[b"(K\x01K\x02d."], "{1 2}");
    gives(&[b")."], "[]");
    gives(&[b"K\x01\x85."], "[1]");
    gives(&[b"K\x01K\x02\x86."], "[1 2]");
    gives(&[b"K\x01K\x02K\x03\x87."], "[1 2 3]");
    gives(&[b"K\x01(K\x02K\x031."], "1");
    gives(&[b"K\x012\x86."], "[1 1]");
    gives(&[b"K\x01K\x020."], "1");
}

#[test]
fn lists_that_grow_in_turns_keep_their_items() {
    // Two lists in a tuple, appended to in turns by number.
    let mut bytes = b"]q\x00]q\x01".to_vec();
    for item in 0..20_u8 {
        bytes.extend([b'h', item % 2, b'K', item, b'a', b'0']);
    }
    bytes.extend(b"\x86.");
    let items = |odd: u8| {
        let items: Vec<String> = (0..10_u8).map(|item| (2 * item + odd).to_string()).collect();
        items.join(" ")
    };
    gives(&[&bytes], &format!("[[{}] [{}]]", items(0), items(1)));
}

#[test]
fn values_are_numbered_and_used_again() {
    gives(&[b"X\x01\0\0\0aq\x00h\x00\x86."], "[a a]");
    gives(&[b"K\x07r\xff\xff\xff\xff", b"j\xff\xff\xff\xff\x86."], "[7 7]");
    gives(&[b"K\x07\x94K\x08\x94h\x00h\x01\x87."], "[8 7 8]");
    gives(&[b"K\x07q\x00K\x08q\x000h\x00\x86."], "[7 8]");
    let unknown =
        Fault::Malformed { offset: 3, problem: "a reference to a value that was not numbered" };
    assert_eq!(read(&[b"h\x05."]), Err(unknown));
}

#[test]
fn a_value_that_contains_itself_is_harmless() {
    gives(&[b"]q\x00h\x00a."], "[[[[[[...]]]]]]");
}

#[test]
fn nothing_is_ever_run() {
    let runs = [
        (b'c', "GLOBAL"),
        (b'R', "REDUCE"),
        (b'b', "BUILD"),
        (b'i', "INST"),
        (b'o', "OBJ"),
        (b'P', "PERSID"),
        (b'Q', "BINPERSID"),
        (0x81, "NEWOBJ"),
        (0x82, "EXT1"),
        (0x83, "EXT2"),
        (0x84, "EXT4"),
        (0x92, "NEWOBJ_EX"),
        (0x93, "STACK_GLOBAL"),
    ];
    for (opcode, name) in runs {
        let error = read(&[b"N", &[opcode]]);
        assert_eq!(error, Err(Fault::WouldRunCode { offset: 3, opcode, name }));
    }
    // os.system("true"), as pickle writes it.
    let text = read(&[b"cposix\nsystem\n(X\x04\0\0\0truetR."]).unwrap_err().to_string();
    assert!(
        text.contains("byte 2 is the instruction 0x63 (GLOBAL), which would run code"),
        "{text}"
    );
}

#[test]
fn every_other_byte_is_refused() {
    let refused = (0..=255_u8).filter(|opcode| {
        read(&[&[*opcode]]) == Err(Fault::UnknownOpcode { offset: 2, opcode: *opcode })
    });
    // 256 without the 42 instructions that are followed and the 13 that run code.
    assert_eq!(refused.count(), 201);
}

#[test]
fn other_protocols_are_named() {
    assert_eq!(read(&[b"\x80\x06N."]), Err(Fault::Protocol { found: 6 }));
    assert_eq!(read(&[b"\x80\x01N."]), Err(Fault::Protocol { found: 1 }));
    gives(&[b"\x80\x05\x95\x02\0\0\0\0\0\0\0N."], "none");
}

#[test]
fn instructions_without_their_values_are_malformed() {
    let inputs: [&[u8]; 16] = [
        b".", b"0.", b"2.", b"a.", b"Na.", b"]a.", b"Ns.", b"e.", b"u.", b"t.", b"1.", b"\x86.",
        b"NNa.", b"}NNNa.", b"}(Nu.", b"N(\x85.",
    ];
    for input in inputs {
        let result = read(&[input]);
        assert!(matches!(result, Err(Fault::Malformed { .. })), "{input:?}: {result:?}");
    }
}

#[test]
fn every_cut_of_a_pickle_is_cut_short() {
    let whole = b"}(X\x01\0\0\0aq\x00](K\x01M\x01\x01J\x01\0\0\0e\x8a\x02\x01\x01h\x00u.";
    gives(&[whole], "{a [1 257 1] 257 a}");
    for end in 0..whole.len() {
        let result = read(&[&whole[..end]]);
        assert_eq!(result, Err(Fault::CutShort { offset: end + 2 }), "cut at {end}");
    }
}

#[test]
fn limits_hold() {
    assert_eq!(read(&[&[b'('; 9]]), Err(Fault::TooDeep { limit: 8 }));
    let many = Err(Fault::TooManyValues { limit: 1000 });
    assert_eq!(read(&[&[b'N'; 1001]]), many);
    assert_eq!(read(&[&b"]0".repeat(1001)]), many);
    // Numbers for one value: the memo is limited too.
    let mut puts = b"N".to_vec();
    for number in 0..1001_u32 {
        puts.push(b'r');
        puts.extend((number * 7).to_le_bytes());
    }
    assert_eq!(read(&[&puts]), many);
    // Doubling: items are limited, however few bytes ask for them.
    let mut doubling = b"(NNNNNNNN\x74q\x00".to_vec();
    for number in 0..20_u8 {
        doubling.extend([b'(', b'h', number, b'h', number, b't', b'q', number + 1]);
    }
    doubling.push(b'.');
    assert!(read(&[&doubling]).is_ok());
    let large = vec![b'N'; (1 << 20) + 1];
    assert_eq!(read(&[&large]), Err(Fault::TooLarge { limit: 1 << 20 }));
}

#[test]
fn a_huge_string_is_cut_short_and_takes_no_memory() {
    for input in
        [&b"X\xff\xff\xff\xff"[..], b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff", b"B\0\0\0\x80"]
    {
        assert!(matches!(read(&[input]), Err(Fault::CutShort { .. })), "{input:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the bytes are, reading ends, with a value or a fault.
    #[test]
    fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&[&bytes]);
    }

    /// The same for bytes that are mostly instructions.
    #[test]
    fn any_instructions_end(
        bytes in proptest::collection::vec(
            proptest::sample::select(b"(.012GJKMNX]ael)td}suhjqr\x85\x86\x87\x88\x8a\x94\x00\x01".to_vec()),
            0..200,
        )
    ) {
        let _ = read(&[&bytes]);
    }
}
