//! Where everything stands in a ring file.
//!
//! One file a process: a header of [`HEADER_BYTES`], then rings of equal size. A ring is a page of
//! its own words and a power of two of slots; a slot is one call, sixteen words of 64 bits. All
//! words are read and written as atomics in the byte order of the machine: the file never leaves it.

/// First word of a ring file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"DXNCRING");
/// Version of this layout.
pub const VERSION: u64 = 1;

/// Bytes before the first ring.
pub const HEADER_BYTES: usize = 16_384;
/// Bytes of a ring before its slots.
pub const RING_HEADER_BYTES: usize = 4_096;
/// Words of a slot.
pub const SLOT_WORDS: usize = 16;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = SLOT_WORDS * 8;
/// Most rings of one process; calls of further threads are counted as dropped.
pub const MAX_RINGS: usize = 512;
/// Slots of a ring where memory is plenty: a burst of 100,000 calls fits without being drained.
pub const DEFAULT_SLOTS: usize = 131_072;
/// Fewest slots of a ring.
pub const MIN_SLOTS: usize = 1_024;
/// Most trace segments of one process that exist at a time.
pub const MAX_SEGMENTS: usize = 64;

/// Words of the file's header.
pub mod header {
    /// [`super::MAGIC`], written last.
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub const VERSION: usize = 1;
    /// Slots of every ring.
    pub const SLOTS: usize = 2;
    /// Rings that are ready.
    pub const RINGS: usize = 3;
    /// Process number.
    pub const PID: usize = 4;
    /// Global rank.
    pub const RANK: usize = 5;
    /// Rank within the host, -1 where unknown.
    pub const LOCAL_RANK: usize = 6;
    /// Ranks of the run, -1 where unknown.
    pub const WORLD_SIZE: usize = 7;
    /// Wall clock less monotonic clock, nanoseconds.
    pub const CLOCK_OFFSET: usize = 8;
    /// Events dropped outside of any ring.
    pub const DROPPED: usize = 9;
    /// Monotonic clock when the process began to record.
    pub const START: usize = 10;
    /// Bytes that all segments may have together.
    pub const MAX_BYTES: usize = 11;
    /// 1 while a batch is being written.
    pub const INTENT: usize = 12;
    /// Length of the segment before that batch.
    pub const INTENT_FROM: usize = 13;
    /// Bytes of that batch.
    pub const INTENT_BYTES: usize = 14;
    /// Events of that batch.
    pub const INTENT_EVENTS: usize = 15;
    /// Oldest segment that exists.
    pub const SEGMENT_FIRST: usize = 16;
    /// Segment being written.
    pub const SEGMENT_LAST: usize = 17;
    /// Events written so far, those of removed segments included.
    pub const WRITTEN: usize = 18;
    /// Events of removed segments.
    pub const DISCARDED: usize = 19;
    /// Whether the first segment exists and begins with `process_start`.
    pub const STARTED: usize = 20;
    /// Whether `process_end` was written.
    pub const ENDED: usize = 21;
    /// Device number of the trace folder, 0 until known.
    pub const FOLDER_DEVICE: usize = 22;
    /// Inode number of the trace folder.
    pub const FOLDER_INODE: usize = 23;
    /// Events of each segment, by segment number modulo [`super::MAX_SEGMENTS`].
    pub const SEGMENT_EVENTS: usize = 32;
    /// Texts: for each a word with the length, then the bytes.
    pub const RUN_ID: (usize, usize) = (128, 512);
    /// Host name.
    pub const HOSTNAME: (usize, usize) = (256, 256);
    /// Folder of the trace.
    pub const FOLDER: (usize, usize) = (320, 4096);
    /// Name of the trace files before `.jsonl`.
    pub const STEM: (usize, usize) = (1024, 256);
}

/// Words of a ring's header.
pub mod ring {
    /// Slots published by the thread that owns the ring.
    pub const HEAD: usize = 0;
    /// Events taken out: twice the slot, plus 1 once the slot's enter was taken.
    pub const CURSOR: usize = 8;
    /// Events dropped because the ring was full.
    pub const DROPPED: usize = 16;
    /// Cursor once the batch being written is complete.
    pub const NEXT_CURSOR: usize = 24;
}

/// Words of a slot.
pub mod slot {
    /// Monotonic clock at enter.
    pub const ENTER: usize = 0;
    /// Monotonic clock at exit, 0 while the call is inside the library.
    pub const EXIT: usize = 1;
    /// Number of the call in the process.
    pub const CALL_SEQ: usize = 2;
    /// Number of the call on the communicator; of a creation, the parent's hash.
    pub const COMM_SEQ: usize = 3;
    /// Elements; of a creation, its ordinal on the parent.
    pub const COUNT: usize = 4;
    /// Stream; of a creation, the colour, or the hash of the id that a grow was given.
    pub const STREAM: usize = 5;
    /// Hash of the communicator.
    pub const HASH: usize = 6;
    /// Rank (low half) and size (high half) of the communicator at enter.
    pub const MEMBERS: usize = 7;
    /// Function (16 bits), flags (16 bits), datatype (high half).
    pub const KIND: usize = 8;
    /// Reduction (low half) and root (high half).
    pub const OP_ROOT: usize = 9;
    /// Peer (low half) and place in the group (high half).
    pub const PEER_GROUP: usize = 10;
    /// Number of the group, 0 outside one.
    pub const GROUP: usize = 11;
    /// Number of the call among those of its peer and direction; of a creation, excluded ranks.
    pub const P2P: usize = 12;
    /// Result, written before [`EXIT`].
    pub const RESULT: usize = 13;
    /// Rank and size of the communicator at exit (creations).
    pub const EXIT_MEMBERS: usize = 14;
}

/// Flags of a slot.
pub mod flag {
    /// The stream was capturing: the call was recorded into a graph.
    pub const CAPTURED: u16 = 1;
    /// The communicator's hash is known.
    pub const HASH: u16 = 2;
    /// The slot has no enter event.
    pub const NO_ENTER: u16 = 4;
    /// The slot continues the one before it: excluded ranks.
    pub const CONTINUED: u16 = 8;
    /// A creation that returned before its communicator exists; another slot tells the end.
    pub const DEFERRED: u16 = 16;
    /// A creation from a parent.
    pub const PARENT: u16 = 32;
    /// The parent's hash is known.
    pub const PARENT_HASH: u16 = 64;
    /// A grow that was given an id: [`super::slot::STREAM`] has its hash.
    pub const JOINED: u16 = 128;
}

/// Excluded ranks that one continuing slot holds: two a word, all words but [`slot::KIND`].
pub const RANKS_PER_SLOT: usize = 2 * (SLOT_WORDS - 1);
/// Excluded ranks that are kept of one shrink.
pub const MAX_EXCLUDED: usize = 4_096;

/// Bytes of a ring with `slots` slots.
#[must_use]
pub const fn ring_bytes(slots: usize) -> usize {
    RING_HEADER_BYTES + slots * SLOT_BYTES
}

/// Two 32-bit numbers in one word.
#[must_use]
pub const fn pair(low: i32, high: i32) -> u64 {
    (low as u32 as u64) | ((high as u32 as u64) << 32)
}

/// The numbers of a [`pair`].
#[must_use]
pub const fn unpair(word: u64) -> (i32, i32) {
    (word as u32 as i32, (word >> 32) as u32 as i32)
}

/// The word [`slot::KIND`].
#[must_use]
pub const fn kind(api: u16, flags: u16, datatype: i32) -> u64 {
    (api as u64) | ((flags as u64) << 16) | ((datatype as u32 as u64) << 32)
}
