//! Reading one line of a trace.

use std::borrow::Cow;

use thiserror::Error;

use super::Event;

/// Longest part of a parser's message that is kept, in bytes.
const MAX_ERROR_TEXT: usize = 200;

/// A line that is no event: no JSON, or no object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no JSON object: {0}")]
pub struct BadEvent(Cow<'static, str>);

impl<'a> Event<'a> {
    /// Reads one line, with or without its newline.
    ///
    /// Unknown fields are ignored, of a repeated field the last counts, and a field of the wrong
    /// kind reads as absent.
    ///
    /// # Errors
    ///
    /// When the text is not one JSON object.
    ///
    /// ```
    /// use deepxtrace_nccl_h2::{Event, EventKind};
    ///
    /// let event = Event::parse(r#"{"event":"process_start","run_id":"r","rank":3,"pid":"?"}"#)?;
    /// assert_eq!(event.kind, EventKind::ProcessStart);
    /// assert_eq!((event.header.rank, event.header.pid), (3, -1));
    /// # Ok::<(), deepxtrace_nccl_h2::BadEvent>(())
    /// ```
    pub fn parse(line: &'a str) -> Result<Self, BadEvent> {
        serde_json::from_str(line).map_err(|error| {
            let mut text = error.to_string();
            if text.len() > MAX_ERROR_TEXT {
                let mut end = MAX_ERROR_TEXT;
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                text.truncate(end);
            }
            BadEvent(Cow::Owned(text))
        })
    }
}
