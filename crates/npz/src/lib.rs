//! NumPy archives (`.npz`) and arrays (`.npy`): checked reading, reproducible writing.
//!
//! Files come from users, so nothing in them is believed: the shape in a header is compared with
//! the bytes that are there before anything is allocated, and each [`Error`] names the file, the
//! entry, what was found and what was expected. An [`Archive`] opens its arrays by name; an
//! [`Array`] converts any integer type to `i64` (any byte order, exactly), floats to `f64`, and can
//! be read piece by piece, so that a large archive needs little memory. Arrays of two dimensions or
//! more in Fortran order are refused: read as they are they would be transposed.
//!
//! A [`Writer`] gives the same bytes for the same arrays: entries carry no clock time. NumPy reads
//! them with `numpy.load(path, allow_pickle=False)`.
//!
//! ```
//! use std::io::Cursor;
//!
//! use deepxtrace_npz::{Archive, Writer};
//!
//! let mut writer = Writer::new(Cursor::new(Vec::new()));
//! writer.array("counters", &[2, 3], &[1_i64, 2, 3, 4, 5, 6][..])?;
//! let bytes = writer.finish()?.into_inner();
//!
//! let mut archive = Archive::new(Cursor::new(bytes), "window.npz")?;
//! let array = archive.array("counters")?;
//! assert_eq!(array.shape(), [2, 3]);
//! assert_eq!(array.into_i64()?, [1, 2, 3, 4, 5, 6]);
//!
//! let error = archive.array("samples").unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "window.npz: no entry samples, the file has: counters"
//! );
//! # Ok::<(), deepxtrace_npz::Error>(())
//! ```

#![forbid(unsafe_code)]

mod archive;
mod array;
mod error;
mod header;
mod writer;

pub use archive::Archive;
pub use array::Array;
pub use error::{Error, ErrorKind};
pub use writer::{Values, Writer};
