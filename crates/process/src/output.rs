//! Output of commands. Names of models, sessions and agents come from requests. Their control characters could control
//! a terminal, so they are printed as `\u{1b}`. A reader that closes the pipe (`tokengauge check | head -1`) is not an
//! error.

use crate::error::{ProcessError, SystemError};
use std::io::{self, ErrorKind, IsTerminal, Write};
pub use tokengauge_core::printable::{printable, printable_lines as lines};

/// Escapes a name for Markdown: like [`printable`], and without markup and cell separators.
pub fn markdown(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for one in printable(name).chars() {
        if "\\`*[]|<>&".contains(one) {
            escaped.push('\\');
        }
        escaped.push(one);
    }
    escaped
}

/// Writes a whole text to standard output. Control characters are escaped only for a terminal.
///
/// # Errors
/// [`ProcessError::OutputClosed`] if the reader has closed it.
pub fn print(text: &str) -> Result<(), ProcessError> {
    let mut output = stdout();
    let written = output.write_all(text.as_bytes());
    written.and_then(|()| output.flush()).map_err(failed)
}

/// Writes a line to standard error. Ignores that it may be closed.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{}", lines(line));
}

/// The width in characters, if standard output is a terminal.
pub fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    // A terminal that does not know its size reports 0.
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

pub fn failed(error: io::Error) -> ProcessError {
    match error.kind() {
        ErrorKind::BrokenPipe => ProcessError::OutputClosed,
        _ => SystemError::Output(error).into(),
    }
}

impl ProcessError {
    pub fn print(&self) {
        note(&self.to_string());
    }
}

/// Standard output for whole lines. For a terminal, control characters are escaped.
pub fn stdout() -> Box<dyn Write + Send> {
    if io::stdout().is_terminal() {
        Box::new(Lines::new(io::stdout()))
    } else {
        Box::new(io::stdout())
    }
}

/// Writes each line when it is complete, with control characters escaped.
struct Lines<W> {
    inner: W,
    line: Vec<u8>,
}

impl<W: Write> Lines<W> {
    fn new(inner: W) -> Lines<W> {
        Lines {
            inner,
            line: Vec::new(),
        }
    }

    fn pass_on(&mut self) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.line);
        let written = self.inner.write_all(lines(&text).as_bytes());
        self.line.clear();
        written
    }
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.pass_on()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass_on()?;
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_markdown_is_a_text_and_nothing_else() {
        let name = "a|b\n[x](http://evil) <img> `c` *d* \\ gpt_oss";
        let shown = "a\\|b\\\\n\\[x\\](http://evil) \\<img\\> \\`c\\` \\*d\\* \\\\ gpt_oss";
        assert_eq!(markdown(name), shown);
    }

    #[test]
    fn a_terminal_gets_lines_without_control_characters_however_they_are_cut() {
        let text = "a \u{9b}2J é\n\u{1b}[31mb\nrest \u{7}";
        for size in 1..=text.len() {
            let mut output = Lines::new(Vec::new());
            for piece in text.as_bytes().chunks(size) {
                output.write_all(piece).expect("memory");
            }
            output.flush().expect("memory");
            let written = String::from_utf8(output.inner).expect("UTF-8");
            assert_eq!(written, "a \\u{9b}2J é\n\\u{1b}[31mb\nrest \\u{7}");
        }
    }

    #[test]
    fn whoever_stops_to_read_is_no_failure() {
        let closed = failed(ErrorKind::BrokenPipe.into());
        assert!(matches!(closed, ProcessError::OutputClosed));
        let full = failed(ErrorKind::StorageFull.into());
        assert!(matches!(full, ProcessError::Failed(_)));
    }
}
