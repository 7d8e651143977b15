//! WebSocket frames, read from a copy of the bytes of a connection in either direction. Frames may
//! be masked, messages may consist of several frames, and control frames may come in between.
//! Nothing is sent.

use super::encoding::Stage;
use super::framing::{Item, Splitter};
use super::{DecodeError, Limits, buffer};
use std::io::Cursor;
use std::sync::Arc;
use tokengauge_core::memory::{Buffer, Memory};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// Removed from the end of every compressed message (RFC 7692).
const DEFLATE_TAIL: &[u8] = &[0, 0, 0xff, 0xff];
const LONGEST_HEADER: usize = 14;

pub(super) struct WebSocket {
    limit: usize,
    header: Vec<u8>,
    frame: Option<Frame>,
    message: Buffer,
    compressed: bool,
    /// Set if `permessage-deflate` was negotiated.
    inflate: Option<Stage>,
    inflated: Buffer,
}

struct Frame {
    remaining: u64,
    mask: Option<[u8; 4]>,
    mask_at: usize,
    is_data: bool,
    is_final: bool,
}

impl WebSocket {
    pub(super) fn new(extensions: Option<&str>, limits: &Limits, memory: &Arc<Memory>) -> Self {
        let deflate = extensions.is_some_and(|agreed| agreed.contains("permessage-deflate"));
        WebSocket {
            limit: limits.event_bytes,
            header: Vec::new(),
            frame: None,
            message: buffer(memory, limits.event_bytes + DEFLATE_TAIL.len()),
            compressed: false,
            inflate: deflate.then(|| Stage::raw_deflate(memory)),
            inflated: buffer(memory, limits.event_bytes),
        }
    }

    /// Reads a frame header from the held bytes and `bytes`. Returns how many of `bytes` it used.
    fn head(&mut self, bytes: &[u8]) -> Result<usize, DecodeError> {
        let before = self.header.len();
        let more = bytes.len().min(LONGEST_HEADER - before);
        self.header.extend_from_slice(&bytes[..more]);
        let mut cursor = Cursor::new(&self.header);
        let parsed = FrameHeader::parse(&mut cursor).map_err(|_| DecodeError::Framing)?;
        let Some((header, length)) = parsed else {
            return Ok(more);
        };
        let taken = usize::try_from(cursor.position())
            .unwrap_or(before)
            .saturating_sub(before);
        self.header.clear();
        self.begin(&header, length)?;
        Ok(taken)
    }

    fn begin(&mut self, header: &FrameHeader, length: u64) -> Result<(), DecodeError> {
        let is_data = match header.opcode {
            OpCode::Data(Data::Text | Data::Binary) => {
                self.message.clear();
                self.compressed = header.rsv1;
                true
            }
            OpCode::Data(Data::Continue) => true,
            OpCode::Control(Control::Close | Control::Ping | Control::Pong) => false,
            _ => return Err(DecodeError::Framing),
        };
        let room = self.limit.saturating_sub(self.message.len());
        if is_data && !usize::try_from(length).is_ok_and(|length| length <= room) {
            return Err(DecodeError::TooLarge);
        }
        let (mask, is_final) = (header.mask, header.is_final);
        self.frame = Some(Frame {
            remaining: length,
            mask,
            mask_at: 0,
            is_data,
            is_final,
        });
        Ok(())
    }

    /// Reads the bytes that belong to the current frame. Returns their number.
    fn body(&mut self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<usize, DecodeError> {
        let Some(frame) = &mut self.frame else {
            return Ok(0);
        };
        let here = usize::try_from(frame.remaining)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        if frame.is_data {
            let start = self.message.len();
            self.message.extend(&bytes[..here])?;
            if let Some(mask) = frame.mask {
                for byte in &mut self.message.as_mut_slice()[start..] {
                    *byte ^= mask[frame.mask_at];
                    frame.mask_at = (frame.mask_at + 1) % mask.len();
                }
            }
        }
        frame.remaining -= here as u64;
        if frame.remaining == 0 {
            let whole = frame.is_data && frame.is_final;
            self.frame = None;
            if whole {
                self.give(each)?;
            }
        }
        Ok(here)
    }

    fn give(&mut self, each: &mut dyn FnMut(Item<'_>)) -> Result<(), DecodeError> {
        if !self.compressed {
            each(Item::Event {
                name: "",
                payload: self.message.as_slice(),
            });
            self.message.clear();
            return Ok(());
        }
        let Some(inflate) = &mut self.inflate else {
            each(Item::Unparsed);
            self.message.clear();
            return Ok(());
        };
        self.message.extend(DEFLATE_TAIL)?;
        let inflated = &mut self.inflated;
        inflate.push(self.message.as_slice(), &mut |bytes| {
            Ok(inflated.extend(bytes)?)
        })?;
        self.message.clear();
        each(Item::Event {
            name: "",
            payload: inflated.as_slice(),
        });
        inflated.clear();
        Ok(())
    }
}

impl Splitter for WebSocket {
    fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<(), DecodeError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match &self.frame {
                Some(_) => self.body(rest, each)?,
                None => self.head(rest)?,
            };
            rest = &rest[taken..];
            // An empty frame ends with its header.
            if self
                .frame
                .as_ref()
                .is_some_and(|frame| frame.remaining == 0)
            {
                self.body(&[], each)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut dyn FnMut(Item<'_>)) {}
}
