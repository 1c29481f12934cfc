//! What can be wrong with a dump, and how much of one is read.

use std::path::PathBuf;

/// How much of one dump is read before it is refused. The memory of the reader is bounded by these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a file, and bytes of strings in it. Default 256 MiB, at most 4 GiB.
    pub bytes: usize,
    /// Values, containers and remembered values, each. 16 bytes a value; default 16 Mi.
    pub values: usize,
    /// Nesting. Default 64; a dump has 6.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 256 << 20, values: 16 << 20, depth: 64 }
    }
}

/// What is wrong inside of one dump.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file ends in the middle.
    #[error("it ends at byte {offset} in the middle of a value: the dump is cut short")]
    CutShort {
        /// Where.
        offset: usize,
    },
    /// The pickle asks to build an object or to call a function. Dumps never do; nothing is run.
    #[error(
        "byte {offset} is the instruction {opcode:#04x} ({name}), which would run code: \
         nothing was run, a Flight Recorder dump has no such instruction"
    )]
    WouldRunCode {
        /// Where.
        offset: usize,
        /// The instruction.
        opcode: u8,
        /// Its name in Python's `pickletools`.
        name: &'static str,
    },
    /// An instruction that no dump uses.
    #[error("byte {offset} is {opcode:#04x}, which is no instruction that dumps use")]
    UnknownOpcode {
        /// Where.
        offset: usize,
        /// The instruction.
        opcode: u8,
    },
    /// Another version of the pickle protocol.
    #[error("it is pickle protocol {found}; 2 to 5 are read")]
    Protocol {
        /// The version in the file.
        found: u8,
    },
    /// An instruction that takes values which are not there or do not fit.
    #[error("at byte {offset}: {problem}")]
    Malformed {
        /// Where.
        offset: usize,
        /// What does not fit.
        problem: &'static str,
    },
    /// A file beyond the limit.
    #[error("it has more than {limit} bytes")]
    TooLarge {
        /// The limit, bytes.
        limit: usize,
    },
    /// More values than the limit.
    #[error("it holds more than {limit} values")]
    TooManyValues {
        /// The limit.
        limit: usize,
    },
    /// Deeper nesting than the limit.
    #[error("its values are nested deeper than {limit}")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// Text that is no JSON.
    #[error("it is no JSON: {0}")]
    Json(String),
    /// Neither form of a dump.
    #[error("it is neither a pickle (first byte 0x80) nor a JSON object")]
    NoDump,
    /// A value is not what a dump has there.
    #[error("{place} {problem}")]
    Shape {
        /// The key, with the number of the entry where it is in one.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// A version of the format that is not known here.
    #[error("it has version {found} of the dump format; versions 2.x are read")]
    Version {
        /// The version in the file.
        found: String,
    },
}

/// Why dumps could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrError {
    /// A file or folder could not be read.
    #[error("cannot read {path}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A folder holds no dump.
    #[error("{path} holds no Flight Recorder dump (pickle or JSON, one file a rank)")]
    NoDumps {
        /// The folder.
        path: PathBuf,
    },
    /// A file is no dump that can be read.
    #[error("cannot read {path} as a Flight Recorder dump")]
    Dump {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        fault: Fault,
    },
    /// The rank of a dump is not in its file name.
    #[error(
        "the name of {path} does not tell its rank: expected a number after the word \"rank\", or a \
         number at the end"
    )]
    NoRank {
        /// Which.
        path: PathBuf,
    },
    /// Two dumps of one rank.
    #[error("{first} and {second} are both of rank {rank}: give one dump a rank")]
    SameRank {
        /// The rank.
        rank: i64,
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
}
