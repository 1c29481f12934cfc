//! Reading a folder of per-process trace files: streaming, in turn over all files.

mod batch;
mod chunk;
mod folder;
mod lines;
mod name;
mod report;
mod stepped;
mod tail;

pub use batch::TraceReader;
pub use folder::{ReadError, RunFolder};
pub(crate) use name::FileName;
pub use report::{BadLine, FileReport, ReadReport};
pub(crate) use stepped::{Numbered, Stepped, Turn};
pub use tail::TraceTail;

/// Longest line that is read, in bytes. A longer one is skipped and counted as bad.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// Bytes of a file that are read at a time.
const CHUNK_BYTES: usize = 128 << 10;
