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
    let kind = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().map(io::Error::kind)
    };
    error.chain().any(|cause| kind(cause) == Some(io::ErrorKind::BrokenPipe))
}
