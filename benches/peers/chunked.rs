//! The chunked transfer coding of HTTP/1.1 bodies.

use anyhow::bail;

pub fn push_chunk(payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{:x}\r\n", payload.len()).as_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Decodes a chunked body that arrives in pieces of any size.
#[derive(Debug, Default)]
pub enum Dechunk {
    #[default]
    Start,
    Size(usize),
    /// The body is within a chunk. The number counts the missing bytes of the chunk and its line end.
    Data(usize),
    /// The last chunk has ended. The number counts the bytes of the final line end that were read.
    Last(usize),
    Over,
}

impl Dechunk {
    /// Appends the payload of `input` to `out`. Returns whether the body has ended.
    ///
    /// # Errors
    /// A chunk has no size, so the framing is broken.
    pub fn feed(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> anyhow::Result<bool> {
        while !input.is_empty() {
            let taken = match *self {
                Dechunk::Data(missing) => {
                    let taken = missing.min(input.len());
                    // The last two missing bytes are the line end.
                    let payload = missing.saturating_sub(2).min(taken);
                    out.extend_from_slice(&input[..payload]);
                    *self = if taken == missing {
                        Dechunk::Start
                    } else {
                        Dechunk::Data(missing - taken)
                    };
                    taken
                }
                Dechunk::Over => return Ok(true),
                _ => {
                    self.line_byte(input[0])?;
                    1
                }
            };
            input = &input[taken..];
        }
        Ok(matches!(self, Dechunk::Over))
    }

    fn line_byte(&mut self, byte: u8) -> anyhow::Result<()> {
        let digit = (byte as char).to_digit(16).map(|digit| digit as usize);
        *self = match (&*self, byte, digit) {
            (Dechunk::Start, _, Some(digit)) => Dechunk::Size(digit),
            (Dechunk::Size(size), _, Some(digit)) if *size < 1 << 32 => {
                Dechunk::Size(size * 16 + digit)
            }
            (Dechunk::Size(size), b'\r', _) => Dechunk::Size(*size),
            (Dechunk::Size(0), b'\n', _) => Dechunk::Last(0),
            (Dechunk::Size(size), b'\n', _) => Dechunk::Data(size + 2),
            (Dechunk::Last(0), b'\r', _) => Dechunk::Last(1),
            (Dechunk::Last(1), b'\n', _) => Dechunk::Over,
            _ => bail!("broken framing: byte {byte:#04x} in {self:?}"),
        };
        Ok(())
    }
}
