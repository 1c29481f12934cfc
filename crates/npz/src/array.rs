//! One array: its shape, and its elements piece by piece or at once.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use crate::error::{Error, ErrorKind, Place};
use crate::header::{Element, Header, IntType};

/// Bytes read and converted at a time.
const CHUNK: usize = 64 * 1024;
/// Largest array that is read at once, bytes in the file.
const MAX_AT_ONCE: u64 = 8 << 30;

/// An array whose header was read and whose length fits it; the elements are still to be read.
pub struct Array<'a> {
    place: Place,
    header: Header,
    reader: Box<dyn Read + 'a>,
    /// Elements read so far.
    position: usize,
}

impl std::fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Array({}, {})", self.place.file, self.describe())
    }
}

impl Array<'static> {
    /// Opens a `.npy` file.
    ///
    /// # Errors
    ///
    /// - the file cannot be opened or is a folder
    /// - it is no array, is in Fortran order, or has another length than its header says
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let place = Place { file: path.display().to_string(), entry: None };
        let file = File::open(path).map_err(|error| place.io(error))?;
        let length = file.metadata().map_err(|error| place.io(error))?.len();
        Self::new(place, Box::new(BufReader::new(file)), length)
    }
}

impl<'a> Array<'a> {
    /// Reads the header of an array that takes `bytes` in all.
    pub(crate) fn new(
        place: Place,
        mut reader: Box<dyn Read + 'a>,
        bytes: u64,
    ) -> Result<Self, Error> {
        let header = Header::read(&mut reader)
            .map_err(|error| place.error(ErrorKind::Header(error.to_string())))?;
        let array = Self { place, header, reader, position: 0 };
        if array.header.transposed {
            return Err(
                array.mismatch("C order (numpy.ascontiguousarray gives it), not Fortran order")
            );
        }
        let found = bytes.saturating_sub(array.header.header_bytes);
        // The length of the elements of other types is not known; they are refused when read.
        if array.header.element.is_some() && found != array.header.data_bytes {
            return Err(array.wrong_length(found));
        }
        Ok(array)
    }

    /// Length of each axis; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// The type of the elements as NumPy writes it, such as `<i8`.
    #[must_use]
    pub fn dtype(&self) -> &str {
        &self.header.dtype
    }

    /// The file, as it was named when it was opened.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.place.file
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.len
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.header.len == 0
    }

    /// The error for an array that is not what the caller needs; `expected` says what that is.
    #[must_use]
    pub fn mismatch(&self, expected: impl Into<String>) -> Error {
        let kind = ErrorKind::Mismatch { found: self.describe(), expected: expected.into() };
        self.place.error(kind)
    }

    /// Refuses any other shape.
    ///
    /// # Errors
    ///
    /// The shape is another one; both are named.
    pub fn expect_shape(self, shape: &[usize]) -> Result<Self, Error> {
        if self.header.shape == shape {
            return Ok(self);
        }
        Err(self.mismatch(format!("shape {shape:?}")))
    }

    /// Refuses elements that are no integers, before any is read.
    ///
    /// # Errors
    ///
    /// The elements have another type; it is named.
    pub fn expect_integers(self) -> Result<Self, Error> {
        match self.header.element {
            Some(Element::Int(_)) => Ok(self),
            _ => Err(self.mismatch("integers")),
        }
    }

    /// Reads the next `out.len()` elements, which must be integers of any width and byte order.
    ///
    /// # Errors
    ///
    /// - the elements are no integers, or one is above `i64::MAX`
    /// - fewer are left, or they cannot be read
    pub fn read_i64(&mut self, out: &mut [i64]) -> Result<(), Error> {
        let Some(Element::Int(int)) = self.header.element else {
            return Err(self.mismatch("integers"));
        };
        let big_endian = self.header.big_endian;
        self.read_chunks(out, |bytes, out| convert_integers(int, big_endian, bytes, out))
    }

    /// Reads all (remaining) elements as integers.
    ///
    /// # Errors
    ///
    /// - those of [`read_i64`](Self::read_i64)
    /// - the array is larger than 8 GiB; it can be read piece by piece
    pub fn into_i64(self) -> Result<Vec<i64>, Error> {
        self.into_vec(0, |array, out| array.read_i64(out))
    }

    /// Reads all (remaining) elements, which must be floats of 4 or 8 bytes.
    ///
    /// # Errors
    ///
    /// The elements have another type, cannot be read, or take more than 8 GiB.
    pub fn into_f64(self) -> Result<Vec<f64>, Error> {
        let single = match self.header.element {
            Some(Element::Float32) => true,
            Some(Element::Float64) => false,
            _ => return Err(self.mismatch("floating-point numbers")),
        };
        self.into_vec(0.0, |array, out| {
            let big_endian = array.header.big_endian;
            array.read_chunks(out, |bytes, out| convert_floats(single, big_endian, bytes, out))
        })
    }

    /// Reads all (remaining) elements, which must be booleans.
    ///
    /// # Errors
    ///
    /// The elements have another type, cannot be read, or take more than 8 GiB.
    pub fn into_bool(self) -> Result<Vec<bool>, Error> {
        if self.header.element != Some(Element::Bool) {
            return Err(self.mismatch("booleans"));
        }
        self.into_vec(false, |array, out| {
            array.read_chunks(out, |bytes, out| {
                for (value, &byte) in out.iter_mut().zip(bytes) {
                    *value = byte != 0;
                }
                Ok(())
            })
        })
    }

    /// Reads all (remaining) elements, which must be text (`<U...`).
    ///
    /// # Errors
    ///
    /// The elements have another type, are no Unicode text, cannot be read, or take more than
    /// 8 GiB.
    pub fn into_strings(self) -> Result<Vec<String>, Error> {
        let Some(Element::Text(_)) = self.header.element else {
            return Err(self.mismatch("text"));
        };
        self.into_vec(String::new(), |array, out| {
            let (item, big_endian) = (array.header.item_bytes, array.header.big_endian);
            if item == 0 {
                // Only empty strings: no bytes to read.
                array.position += out.len();
                return Ok(());
            }
            array.read_chunks(out, |bytes, out| {
                for (i, (value, bytes)) in out.iter_mut().zip(bytes.chunks_exact(item)).enumerate()
                {
                    *value = text(bytes, big_endian).map_err(|code| {
                        (i, format!("text with the code {code:#x}"), "Unicode text")
                    })?;
                }
                Ok(())
            })
        })
    }

    /// Reads a scalar integer, or the only element of an array of one.
    ///
    /// # Errors
    ///
    /// There is not exactly one element, or those of [`read_i64`](Self::read_i64).
    pub fn into_scalar_i64(self) -> Result<i64, Error> {
        if self.header.len != 1 {
            return Err(self.mismatch("one integer"));
        }
        let mut value = [0];
        let mut array = self;
        array.read_i64(&mut value)?;
        array.finish()?;
        Ok(value[0])
    }

    /// Reads a scalar text, or the only element of an array of one.
    ///
    /// # Errors
    ///
    /// There is not exactly one element, or those of [`into_strings`](Self::into_strings).
    pub fn into_scalar_string(self) -> Result<String, Error> {
        if self.header.len != 1 {
            return Err(self.mismatch("one text"));
        }
        Ok(self.into_strings()?.pop().unwrap_or_default())
    }

    /// Ends the reading piece by piece: checks that nothing is left, and the checksum.
    ///
    /// # Errors
    ///
    /// Bytes are left, or the checksum of the archive is another one.
    pub fn finish(mut self) -> Result<(), Error> {
        let mut rest = [0; 1];
        match self.reader.read(&mut rest) {
            Ok(0) if self.position == self.header.len => Ok(()),
            Ok(more) => {
                let read = self.position as u64 * self.header.item_bytes as u64;
                Err(self.wrong_length(read + more as u64))
            }
            Err(error) => Err(self.place.io(error)),
        }
    }

    fn into_vec<T: Clone>(
        mut self,
        empty: T,
        read: impl Fn(&mut Self, &mut [T]) -> Result<(), Error>,
    ) -> Result<Vec<T>, Error> {
        let left = self.header.len - self.position;
        let item = self.header.item_bytes.max(size_of::<T>());
        let bytes = (left as u64).saturating_mul(item as u64);
        if bytes > MAX_AT_ONCE {
            return Err(self.place.error(ErrorKind::TooLarge { bytes, limit: MAX_AT_ONCE }));
        }
        // Memory follows the data: what a damaged file only promises is not allocated.
        let mut values = Vec::new();
        while values.len() < left {
            let start = values.len();
            let count = (left - start).min(start.max(CHUNK));
            values.resize(start + count, empty.clone());
            read(&mut self, &mut values[start..])?;
        }
        self.finish()?;
        Ok(values)
    }

    /// Fills `out` by `convert`, which gets the bytes of as many elements as it has to write and
    /// says which of them has what wrong value and what would be right.
    fn read_chunks<T>(
        &mut self,
        out: &mut [T],
        convert: impl Fn(&[u8], &mut [T]) -> Result<(), (usize, String, &'static str)>,
    ) -> Result<(), Error> {
        let item = self.header.item_bytes.max(1);
        let per_chunk = (CHUNK / item).max(1);
        if out.len() > self.header.len - self.position {
            return Err(self.mismatch(format!("{} more elements", out.len())));
        }
        let mut bytes = vec![0; per_chunk.min(out.len()) * item];
        for out in out.chunks_mut(per_chunk) {
            let bytes = &mut bytes[..out.len() * item];
            self.read_exact(bytes)?;
            convert(bytes, out).map_err(|(i, found, expected)| {
                let index = unravel(self.position + i, &self.header.shape);
                self.place.error(ErrorKind::Value { index, found, expected: expected.to_owned() })
            })?;
            self.position += out.len();
        }
        Ok(())
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.reader.read_exact(bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                self.wrong_length(self.position as u64 * self.header.item_bytes as u64)
            }
            _ => self.place.io(error),
        })
    }

    fn wrong_length(&self, found: u64) -> Error {
        let expected = self.header.data_bytes;
        self.place.error(ErrorKind::Length { found, expected, array: self.describe() })
    }

    fn describe(&self) -> String {
        let order = if self.header.transposed { " in Fortran order" } else { "" };
        format!("{} of shape {:?}{order}", self.header.dtype, self.header.shape)
    }
}

/// The index along each axis of the element at a place in C order.
fn unravel(mut place: usize, shape: &[usize]) -> String {
    let mut index = vec![0; shape.len()];
    for (i, &length) in index.iter_mut().zip(shape).rev() {
        *i = place % length.max(1);
        place /= length.max(1);
    }
    format!("{index:?}")
}

fn convert_integers(
    int: IntType,
    big_endian: bool,
    bytes: &[u8],
    out: &mut [i64],
) -> Result<(), (usize, String, &'static str)> {
    macro_rules! widen {
        ($type:ty) => {
            for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                let number = if big_endian {
                    <$type>::from_be_bytes(*bytes)
                } else {
                    <$type>::from_le_bytes(*bytes)
                };
                *value = i64::from(number);
            }
        };
    }
    match int {
        IntType::I8 => widen!(i8),
        IntType::I16 => widen!(i16),
        IntType::I32 => widen!(i32),
        IntType::I64 => widen!(i64),
        IntType::U8 => widen!(u8),
        IntType::U16 => widen!(u16),
        IntType::U32 => widen!(u32),
        IntType::U64 => {
            for (i, (value, bytes)) in out.iter_mut().zip(bytes.as_chunks().0).enumerate() {
                let number = if big_endian {
                    u64::from_be_bytes(*bytes)
                } else {
                    u64::from_le_bytes(*bytes)
                };
                *value = i64::try_from(number)
                    .map_err(|_| (i, number.to_string(), "at most 9223372036854775807"))?;
            }
        }
    }
    Ok(())
}

fn convert_floats(
    single: bool,
    big_endian: bool,
    bytes: &[u8],
    out: &mut [f64],
) -> Result<(), (usize, String, &'static str)> {
    if single {
        for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
            let number =
                if big_endian { f32::from_be_bytes(*bytes) } else { f32::from_le_bytes(*bytes) };
            *value = f64::from(number);
        }
    } else {
        for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
            *value =
                if big_endian { f64::from_be_bytes(*bytes) } else { f64::from_le_bytes(*bytes) };
        }
    }
    Ok(())
}

/// The text in UTF-32 code units, without the zeros that fill it up; else the unit that is none.
fn text(bytes: &[u8], big_endian: bool) -> Result<String, u32> {
    let units = bytes.as_chunks().0.iter().map(|&bytes| {
        if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    });
    let mut text =
        units.map(|unit| char::from_u32(unit).ok_or(unit)).collect::<Result<String, u32>>()?;
    text.truncate(text.trim_end_matches('\0').len());
    Ok(text)
}
