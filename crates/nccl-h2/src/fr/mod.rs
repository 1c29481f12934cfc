//! PyTorch Flight Recorder dumps: what to do when a job hangs and no probe was in it.
//!
//! With `TORCH_FR_BUFFER_SIZE` set, every rank keeps its latest collectives in a ring buffer and
//! writes it into a file when a collective times out, or when it is asked to. [`DumpSet`] reads
//! these files (pickles, without running anything in them, or JSON; versions 2.x) and
//! [`DumpSet::analyze`] matches the calls of the ranks by the same rules as traces.
//!
//! - Process groups are told apart by name and ranks, collectives by `collective_seq_id`; the k-th
//!   send from one rank to another pairs with its k-th receive.
//! - Buffers may begin at different records: what one has lost is compared among the others.
//! - A rank without a dump is named, and nothing is concluded about it.
//! - A dump has neither reduction nor root; the root of a gather or scatter shows in its sizes. The
//!   sizes of an all-to-all may differ, as long as everything that is sent is received.
//! - Dumps do not tell when they were taken. Their latest time stamp is the least that is known, so
//!   that what is open in them is mostly `suspected`; [`Options::stood_still_s`] tells more.
//!
//! Findings are those of traces, with the places in the program ([`Located`]).

mod analyze;
mod calls;
mod divergence;
mod dump;
mod error;
mod intern;
mod json;
mod judged;
mod load;
mod name;
mod op;
mod p2p;
mod pickle;
mod record;
mod replay;
mod report;
mod rounds;
mod set;
mod sites;
mod stuck;
mod timeline;
mod value;

pub use error::{Fault, FrError, Limits};
pub use load::is_dump;
pub use record::Frame;
pub use report::{CallSite, Located, Note, Options, ProcessGroup, Report};
pub use set::DumpSet;
