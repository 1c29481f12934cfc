//! An archive of arrays by name.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use zip::ZipArchive;
use zip::result::ZipError;

use crate::array::Array;
use crate::error::{Error, ErrorKind, Place};

/// Deflate makes at most this many bytes of one.
const MAX_INFLATION: u64 = 1032;
/// Names listed in an error.
const NAMES_SHOWN: usize = 16;

/// An NPZ archive, opened.
pub struct Archive<R> {
    zip: ZipArchive<R>,
    place: Place,
}

impl<R> std::fmt::Debug for Archive<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Archive({})", self.place.file)
    }
}

impl Archive<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is a folder, or is no ZIP archive.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let place = Place { file: path.display().to_string(), entry: None };
        let file = File::open(path).map_err(|error| place.io(error))?;
        let metadata = file.metadata().map_err(|error| place.io(error))?;
        if metadata.is_dir() {
            return Err(place.error(ErrorKind::Archive("it is a folder".to_owned())));
        }
        if metadata.len() == 0 {
            return Err(place.error(ErrorKind::Archive("the file is empty".to_owned())));
        }
        Self::new(BufReader::new(file), &place.file)
    }
}

impl<R: Read + Seek> Archive<R> {
    /// Opens an archive in `reader`, which errors call `name`.
    ///
    /// # Errors
    ///
    /// It is no ZIP archive.
    pub fn new(reader: R, name: &str) -> Result<Self, Error> {
        let place = Place { file: name.to_owned(), entry: None };
        let zip = ZipArchive::new(reader).map_err(|error| archive_error(&place, error))?;
        Ok(Self { zip, place })
    }

    /// The names of the arrays, in the order of the archive.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.zip
            .file_names()
            .filter_map(|name| Some(npyz::npz::array_name_from_file_name(&name.ok()?)?.to_owned()))
    }

    /// Whether there is an array of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.zip.index_for_name(&npyz::npz::file_name_from_array_name(name)).is_some()
    }

    /// Opens the array `name`.
    ///
    /// # Errors
    ///
    /// - there is none; those that are there are named
    /// - it is no array, is in Fortran order, or has another length than its header says
    pub fn array(&mut self, name: &str) -> Result<Array<'_>, Error> {
        if !self.contains(name) {
            return Err(self.missing(name));
        }
        let place = Place { entry: Some(name.to_owned()), ..self.place.clone() };
        let file = npyz::npz::file_name_from_array_name(name);
        let entry = self.zip.by_name(&file).map_err(|error| archive_error(&place, error))?;
        let (size, compressed) = (entry.size(), entry.compressed_size());
        if size > compressed.saturating_mul(MAX_INFLATION).saturating_add(MAX_INFLATION) {
            let text = format!("{compressed} bytes cannot hold the {size} that it declares");
            return Err(place.error(ErrorKind::Archive(text)));
        }
        Array::new(place, Box::new(entry), size)
    }

    fn missing(&self, name: &str) -> Error {
        let mut names: Vec<_> = self.names().collect();
        names.sort();
        let more = names.len().saturating_sub(NAMES_SHOWN);
        names.truncate(NAMES_SHOWN);
        let mut available =
            if names.is_empty() { "no arrays".to_owned() } else { names.join(", ") };
        if more > 0 {
            available += &format!(" and {more} more");
        }
        self.place.error(ErrorKind::Missing { name: name.to_owned(), available })
    }
}

fn archive_error(place: &Place, error: ZipError) -> Error {
    match error {
        ZipError::Io(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => place.io(error),
        error => place.error(ErrorKind::Archive(error.to_string())),
    }
}
