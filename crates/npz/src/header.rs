//! The header of an NPY array, checked before any of it is believed.

use std::io::{self, Read};

use npyz::{DType, Endianness, NpyHeader, Order, TypeChar};

/// Longest header that is read; NumPy's own are 128 bytes.
const MAX_HEADER: usize = 64 * 1024;

/// The type of the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    Int(IntType),
    Float32,
    Float64,
    Bool,
    /// UTF-32 text of so many code points.
    Text(usize),
}

/// An integer type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntType {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

/// What a header says.
#[derive(Debug, Clone)]
pub struct Header {
    pub shape: Vec<usize>,
    /// The type as NumPy writes it, such as `<i8`.
    pub dtype: String,
    /// `None`: a type that this crate does not read.
    pub element: Option<Element>,
    pub big_endian: bool,
    /// Bytes of an element.
    pub item_bytes: usize,
    /// Fortran order that makes a difference.
    pub transposed: bool,
    /// Elements in all.
    pub len: usize,
    /// Bytes of all elements.
    pub data_bytes: u64,
    /// Bytes before the first element.
    pub header_bytes: u64,
}

impl Header {
    /// Reads the header, leaving `reader` at the first element.
    pub fn read(reader: &mut dyn Read) -> io::Result<Self> {
        let bytes = read_checked(reader)?;
        let header = NpyHeader::from_reader(&bytes[..])?;
        Self::interpret(&header, bytes.len() as u64)
    }

    fn interpret(header: &NpyHeader, header_bytes: u64) -> io::Result<Self> {
        let too_large = || invalid(format!("shape {:?} is too large", header.shape()));
        let shape = header.shape().iter().map(|&n| usize::try_from(n).map_err(|_| too_large()));
        let shape = shape.collect::<io::Result<Vec<_>>>()?;
        let len = shape.iter().try_fold(1_usize, |all, &n| all.checked_mul(n));
        let len = len.ok_or_else(too_large)?;
        let dtype = header.dtype();
        let item_bytes = dtype.num_bytes().unwrap_or(0);
        let data_bytes = (len as u64).checked_mul(item_bytes as u64).ok_or_else(too_large)?;
        Ok(Self {
            transposed: header.order() == Order::Fortran
                && shape.iter().filter(|&&n| n > 1).count() > 1,
            element: element(&dtype),
            big_endian: matches!(&dtype, DType::Plain(t) if t.endianness() == Endianness::Big),
            dtype: match &dtype {
                DType::Plain(text) => text.to_string(),
                _ => "a structured type".to_owned(),
            },
            shape,
            item_bytes,
            len,
            data_bytes,
            header_bytes,
        })
    }
}

/// Magic, version, length and text of the header, in a form in which parsing it cannot overflow.
///
/// The parser multiplies the lengths of the axes without a check. With at most 19 digits in all
/// their product is below 10^19, which fits.
fn read_checked(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 10];
    reader.read_exact(&mut bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => invalid("shorter than a header".to_owned()),
        _ => error,
    })?;
    if !bytes.starts_with(b"\x93NUMPY") {
        return Err(invalid("it does not begin with the NPY magic bytes".to_owned()));
    }
    let length = if bytes[6] == 1 {
        usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))
    } else {
        let mut rest = [0; 2];
        reader.read_exact(&mut rest)?;
        bytes.extend(rest);
        u32::from_le_bytes([bytes[8], bytes[9], rest[0], rest[1]]) as usize
    };
    if length > MAX_HEADER {
        return Err(invalid(format!("a header of {length} bytes, at most {MAX_HEADER} are read")));
    }
    let start = bytes.len();
    bytes.resize(start + length, 0);
    reader.read_exact(&mut bytes[start..]).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => invalid("it ends within its header".to_owned()),
        _ => error,
    })?;
    let text = &bytes[start..];
    let digits = text.iter().filter(|byte| byte.is_ascii_digit()).count();
    let prefixed = text
        .windows(2)
        .any(|pair| pair[0] == b'0' && matches!(pair[1].to_ascii_lowercase(), b'x' | b'o' | b'b'));
    if digits > 19 || prefixed {
        let text = String::from_utf8_lossy(text);
        let text: String = text.trim().chars().take(100).collect();
        return Err(invalid(format!("its header is not one of a plain array: {text}")));
    }
    Ok(bytes)
}

fn element(dtype: &DType) -> Option<Element> {
    let DType::Plain(text) = dtype else { return None };
    Some(match (text.type_char(), text.size_field()) {
        (TypeChar::Int, 1) => Element::Int(IntType::I8),
        (TypeChar::Int, 2) => Element::Int(IntType::I16),
        (TypeChar::Int, 4) => Element::Int(IntType::I32),
        (TypeChar::Int, 8) => Element::Int(IntType::I64),
        (TypeChar::Uint, 1) => Element::Int(IntType::U8),
        (TypeChar::Uint, 2) => Element::Int(IntType::U16),
        (TypeChar::Uint, 4) => Element::Int(IntType::U32),
        (TypeChar::Uint, 8) => Element::Int(IntType::U64),
        (TypeChar::Float, 4) => Element::Float32,
        (TypeChar::Float, 8) => Element::Float64,
        (TypeChar::Bool, 1) => Element::Bool,
        (TypeChar::UnicodeStr, size) => Element::Text(usize::try_from(size).ok()?),
        _ => return None,
    })
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
