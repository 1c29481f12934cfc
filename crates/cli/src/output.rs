//! Standard output: buffered, coloured on a terminal only, closed pipes are no error.

use std::io::{self, BufWriter, StdoutLock, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};

/// A heading.
pub const HEADING: Style = Style::new().bold();
/// Something is wrong.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// All is well.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Attention, or evidence that is missing.
pub const WARNING: Style = AnsiColor::Yellow.on_default();
/// Less important text.
pub const FAINT: Style = Style::new().dimmed();

/// Standard output. Styles written to it vanish when it is no terminal or `NO_COLOR` is set.
pub struct Output {
    stream: BufWriter<AutoStream<StdoutLock<'static>>>,
}

impl Output {
    /// The standard output of the process.
    pub fn standard() -> Self {
        Self { stream: BufWriter::new(AutoStream::auto(io::stdout().lock())) }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Whether the reader of standard output is gone.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    // An error of JSON output does not have the one of the pipe as its source.
    let kind = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<io::Error>() {
        Some(error) => Some(error.kind()),
        None => cause.downcast_ref::<serde_json::Error>()?.io_error_kind(),
    };
    error.chain().any(|cause| kind(cause) == Some(io::ErrorKind::BrokenPipe))
}

/// One line on standard error.
pub fn warn(text: &str) {
    // Nothing is left to tell when standard error is closed.
    let _ = writeln!(io::stderr(), "deepxtrace: warning: {text}");
}

/// An error as one line: the causes in order, without those that the message before already tells,
/// and of a message of several lines the first.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        let text = text.lines().next().unwrap_or_default();
        if line.ends_with(text) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(text);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_for_a_reader_that_is_gone_is_a_broken_pipe() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let Err(error) = serde_json::to_writer(Gone, &[1]) else { unreachable!() };
        assert!(is_broken_pipe(&error.into()));
        assert!(!is_broken_pipe(&io::Error::from(io::ErrorKind::StorageFull).into()));
    }

    #[test]
    fn a_cause_is_told_once_and_on_one_line() {
        let error = anyhow::anyhow!("not there").context("a.npz: not there").context("b\nc");
        assert_eq!(one_line(&error), "b: a.npz: not there");
    }
}
