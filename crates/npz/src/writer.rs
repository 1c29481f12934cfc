//! Writing archives that are the same bytes for the same arrays.

use std::io::{BufWriter, Seek, Write};

use npyz::{DType, TypeStr, WriterBuilder};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::error::{Error, ErrorKind, Place};

/// The elements of an array in C order.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Values<'a> {
    /// `<i8`.
    I64(&'a [i64]),
    /// `<f8`.
    F64(&'a [f64]),
    /// `|b1`.
    Bool(&'a [bool]),
    /// `<U...`, as wide as the longest. A zero at the end of a text is lost, as in NumPy.
    Text(&'a [&'a str]),
}

impl<'a> From<&'a [i64]> for Values<'a> {
    fn from(values: &'a [i64]) -> Self {
        Self::I64(values)
    }
}

impl<'a> From<&'a [f64]> for Values<'a> {
    fn from(values: &'a [f64]) -> Self {
        Self::F64(values)
    }
}

impl<'a> From<&'a [bool]> for Values<'a> {
    fn from(values: &'a [bool]) -> Self {
        Self::Bool(values)
    }
}

impl<'a> From<&'a [&'a str]> for Values<'a> {
    fn from(values: &'a [&'a str]) -> Self {
        Self::Text(values)
    }
}

impl Values<'_> {
    fn len(&self) -> usize {
        match self {
            Self::I64(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    /// Code points of the longest text; NumPy has no text of width 0.
    fn width(&self) -> usize {
        match self {
            Self::Text(values) => {
                values.iter().map(|text| text.chars().count()).max().unwrap_or(0).max(1)
            }
            _ => 0,
        }
    }

    fn dtype(&self) -> String {
        match self {
            Self::I64(_) => "<i8".to_owned(),
            Self::F64(_) => "<f8".to_owned(),
            Self::Bool(_) => "|b1".to_owned(),
            Self::Text(_) => format!("<U{}", self.width()),
        }
    }

    fn bytes(&self) -> u64 {
        let item = match self {
            Self::I64(_) | Self::F64(_) => 8,
            Self::Bool(_) => 1,
            Self::Text(_) => 4 * self.width() as u64,
        };
        (self.len() as u64).saturating_mul(item)
    }

    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        match self {
            Self::I64(values) => values.iter().try_for_each(|v| out.write_all(&v.to_le_bytes())),
            Self::F64(values) => values.iter().try_for_each(|v| out.write_all(&v.to_le_bytes())),
            Self::Bool(values) => values.iter().try_for_each(|&v| out.write_all(&[u8::from(v)])),
            Self::Text(values) => {
                let width = self.width();
                values.iter().try_for_each(|text| {
                    let units = text.chars().map(u32::from).chain(std::iter::repeat(0));
                    units.take(width).try_for_each(|unit| out.write_all(&unit.to_le_bytes()))
                })
            }
        }
    }
}

/// Writes an NPZ archive, deflated, without clock times.
pub struct Writer<W: Write + Seek> {
    zip: ZipWriter<W>,
    level: Option<i64>,
}

impl<W: Write + Seek> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer(level {:?})", self.level)
    }
}

impl<W: Write + Seek> Writer<W> {
    /// Writes to `inner`, from where it stands.
    pub fn new(inner: W) -> Self {
        Self { zip: ZipWriter::new(inner), level: None }
    }

    /// Sets the effort of deflate for the arrays that follow: 1 is fast, 9 is small. Other values
    /// are taken as the nearest of these; without a call it is 6.
    #[must_use]
    pub fn level(mut self, level: u8) -> Self {
        self.level = Some(i64::from(level.clamp(1, 9)));
        self
    }

    /// Adds an array; an empty `shape` makes a scalar.
    ///
    /// # Errors
    ///
    /// - the shape does not have as many elements as there are values
    /// - the name is already there, or the archive cannot be written
    pub fn array<'a>(
        &mut self,
        name: &str,
        shape: &[usize],
        values: impl Into<Values<'a>>,
    ) -> Result<(), Error> {
        let values = values.into();
        let place = Place { file: "NPZ archive".to_owned(), entry: Some(name.to_owned()) };
        let elements = shape.iter().try_fold(1_usize, |all, &n| all.checked_mul(n));
        if elements != Some(values.len()) {
            let found = format!("{} values", values.len());
            let expected = format!("as many as shape {shape:?} has");
            return Err(place.error(ErrorKind::Mismatch { found, expected }));
        }
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(self.level)
            .last_modified_time(DateTime::default())
            .large_file(values.bytes() >= u64::from(u32::MAX) - 4096);
        let file = npyz::npz::file_name_from_array_name(name);
        let failed = |error: zip::result::ZipError| place.error(ErrorKind::Io(error.into()));
        self.zip.start_file(file, options).map_err(failed)?;
        self.write(shape, values).map_err(|error| place.io(error))
    }

    fn write(&mut self, shape: &[usize], values: Values<'_>) -> std::io::Result<()> {
        let dtype = values.dtype().parse::<TypeStr>().map_err(std::io::Error::other)?;
        let shape: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
        let mut out = npyz::WriteOptions::new_header_only()
            .dtype(DType::new_scalar(dtype))
            .shape(&shape)
            .writer(BufWriter::with_capacity(64 * 1024, &mut self.zip))
            .write_header_only()?;
        values.write(&mut out)?;
        out.flush()
    }

    /// Writes the directory of the archive and gives the writer back; call it, or the file is no
    /// archive.
    ///
    /// # Errors
    ///
    /// The archive cannot be written.
    pub fn finish(self) -> Result<W, Error> {
        let place = Place { file: "NPZ archive".to_owned(), entry: None };
        self.zip.finish().map_err(|error| place.error(ErrorKind::Io(error.into())))
    }
}
