//! Amazon's binary event stream: length, headers, payload, each frame checked by
//! two sums. `aws-smithy-eventstream` reads a whole frame; this finds its ends.

use super::decoder::{Item, Splitter};
use super::{Broken, Limits};
use aws_smithy_eventstream::frame::read_message_from;

/// Length of frame, length of headers, checksum of both.
const PRELUDE_BYTES: usize = 12;
/// The prelude and the frame's own checksum.
const SMALLEST_FRAME: usize = 16;

/// Cuts a stream into its frames.
pub(super) struct EventStream {
    limit: usize,
    held: Vec<u8>,
}

impl EventStream {
    pub(super) fn new(limits: &Limits) -> Self {
        EventStream {
            limit: limits.event_bytes,
            held: Vec::new(),
        }
    }

    /// Gives every whole frame; how many bytes they took.
    fn frames(&self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<usize, Broken> {
        let mut taken = 0;
        while let Some(length) = self.frame_length(&bytes[taken..])? {
            let Some(frame) = bytes.get(taken..taken + length) else {
                break;
            };
            match read_message_from(frame) {
                Ok(message) => {
                    let header = |name: &str| {
                        let mut headers = message.headers().iter();
                        let found = headers.find(|header| header.name().as_str() == name)?;
                        found.value().as_string().ok().map(|value| value.as_str())
                    };
                    each(item(header, message.payload()));
                }
                Err(_) => each(Item::Unparsed),
            }
            taken += length;
        }
        Ok(taken)
    }

    /// The length of the frame that begins here, once its prelude is whole. A
    /// prelude that does not add up means that the next frame cannot be found.
    fn frame_length(&self, bytes: &[u8]) -> Result<Option<usize>, Broken> {
        let Some(prelude) = bytes.first_chunk::<PRELUDE_BYTES>() else {
            return Ok(None);
        };
        let number = |at: usize| {
            u32::from_be_bytes([
                prelude[at],
                prelude[at + 1],
                prelude[at + 2],
                prelude[at + 3],
            ])
        };
        if number(8) != crc32(&prelude[..8]) {
            return Err(Broken::Framing);
        }
        match usize::try_from(number(0)) {
            Ok(length) if length < SMALLEST_FRAME => Err(Broken::Framing),
            Ok(length) if length <= self.limit => Ok(Some(length)),
            _ => Err(Broken::TooLarge),
        }
    }
}

/// What a frame is, by its headers.
fn item<'a>(header: impl Fn(&str) -> Option<&'a str>, payload: &'a [u8]) -> Item<'a> {
    match header(":message-type") {
        Some("exception") => Item::Exception(header(":exception-type").unwrap_or("exception")),
        Some("error") => Item::Exception(header(":error-code").unwrap_or("error")),
        _ => Item::Event {
            name: header(":event-type").unwrap_or_default(),
            payload,
        },
    }
}

/// CRC-32 of eight bytes: too few to be worth a table.
fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 {
                sum >> 1 ^ 0xedb8_8320
            } else {
                sum >> 1
            };
        }
    }
    !sum
}

impl Splitter for EventStream {
    fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<(), Broken> {
        if self.held.is_empty() {
            let taken = self.frames(bytes, each)?;
            self.held.extend_from_slice(&bytes[taken..]);
            return Ok(());
        }
        self.held.extend_from_slice(bytes);
        let taken = self.frames(&self.held, each)?;
        self.held.drain(..taken);
        Ok(())
    }

    fn finish(&mut self, each: &mut dyn FnMut(Item<'_>)) {
        if !self.held.is_empty() {
            each(Item::Unparsed);
            self.held.clear();
        }
    }
}
