//! Writes JSON directly into the chunk, without a tree and without a copy.

use bytes::BytesMut;
use std::fmt::{self, Display, Write};

/// A string in JSON notation, including quotes.
pub struct Quoted<'a>(pub(crate) &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        let mut plain_from = 0;
        for (at, byte) in self.0.bytes().enumerate() {
            if byte >= 0x20 && byte != b'"' && byte != b'\\' {
                continue;
            }
            f.write_str(&self.0[plain_from..at])?;
            match byte {
                b'"' => f.write_str("\\\"")?,
                b'\\' => f.write_str("\\\\")?,
                b'\n' => f.write_str("\\n")?,
                other => write!(f, "\\u{other:04x}")?,
            }
            plain_from = at + 1;
        }
        f.write_str(&self.0[plain_from..])?;
        f.write_char('"')
    }
}

/// Writes `data: …` and an empty line.
pub fn sse(out: &mut BytesMut, data: fmt::Arguments<'_>) {
    put(out, format_args!("data: {data}\n\n"));
}

pub fn sse_named(out: &mut BytesMut, event: &str, data: fmt::Arguments<'_>) {
    put(out, format_args!("event: {event}\ndata: {data}\n\n"));
}

/// Writes text unchanged.
pub fn put(out: &mut BytesMut, text: fmt::Arguments<'_>) {
    // Writing to growing memory cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_string_is_what_serde_reads_back() {
        for text in [
            "",
            "plain",
            "a \"b\" \\ c",
            "line\nline\t\u{1}",
            "世界 👍 {\"a\":\"b\"}",
        ] {
            let read: String = serde_json::from_str(&Quoted(text).to_string()).expect(text);
            assert_eq!(read, text);
        }
    }
}
