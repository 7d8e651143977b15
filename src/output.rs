//! Output of commands. Names of models, sessions and agents come from requests, and their
//! control characters would be commands to a terminal, so they are written as `\u{1b}`. A
//! reader that closes the pipe (`tokengauge check | head -1`) is no error.

use crate::Error;
use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Characters that change the direction of text, or end a line for some programs.
const INVISIBLE: [std::ops::RangeInclusive<char>; 4] = [
    '\u{200e}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2066}'..='\u{2069}',
    '\u{feff}'..='\u{feff}',
];

/// A name as a part of a line: without any control character.
pub(crate) fn printable(name: &str) -> Cow<'_, str> {
    escaped(name, |_| false)
}

/// A text of several lines.
fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| matches!(character, '\n' | '\t'))
}

fn escaped(text: &str, allowed: impl Fn(char) -> bool) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() || INVISIBLE.iter().any(|range| range.contains(&c));
    let harmful = |c: char| harmful(c) && !allowed(c);
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match harmful(character) {
            true => escaped.extend(character.escape_default()),
            false => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

/// Writes a whole text to standard output: exactly, unless that is a terminal.
///
/// # Errors
/// [`Error::OutputClosed`] where its reader has closed it.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut output = stdout();
    let written = output.write_all(text.as_bytes());
    written.and_then(|()| output.flush()).map_err(failed)
}

/// Writes a line to standard error; ignores that it may be closed.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{}", lines(line));
}

/// The width of the terminal that standard output is, in characters.
pub(crate) fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    // A terminal that does not know its size says 0.
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// The error for a failure to write to standard output.
pub(crate) fn failed(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe => Error::OutputClosed,
        _ => Error::Failed(format!("standard output: {error}")),
    }
}

/// Standard output, for whole lines. A terminal gets them without control characters.
pub(crate) fn stdout() -> Box<dyn Write + Send> {
    match io::stdout().is_terminal() {
        true => Box::new(Lines::new(io::stdout())),
        false => Box::new(io::stdout()),
    }
}

/// Writes lines without control characters, each when it is complete.
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
    fn names_lose_what_a_terminal_would_obey() {
        for (name, shown) in [
            ("gpt-5.1", "gpt-5.1"),
            ("modèle 模型 🦀", "modèle 模型 🦀"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("a\nb\rc\td\u{7f}", "a\\nb\\rc\\td\\u{7f}"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe"),
        ] {
            assert_eq!(printable(name), shown);
        }
        assert_eq!(lines("a\tb\nc\u{1b}[0m\r\n"), "a\tb\nc\\u{1b}[0m\\r\n");
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
        assert!(matches!(closed, Error::OutputClosed));
        let full = failed(ErrorKind::StorageFull.into());
        assert!(matches!(full, Error::Failed(_)));
    }
}
