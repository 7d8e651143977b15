//! A minimal WebSocket server: text messages, pings and the close.

use bytes::{Buf, Bytes, BytesMut};
use std::io::{self, Cursor};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};
use tungstenite::protocol::frame::{Frame, FrameHeader};

const MOST_MESSAGE: usize = 16 << 20;

#[derive(Debug)]
pub enum Message {
    Text(Vec<u8>),
    Ping(Vec<u8>),
}

/// The client's side. Cancelling [`Reader::next`] loses no data.
pub struct Reader<R> {
    io: R,
    buffer: BytesMut,
    message: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub fn new(io: R) -> Reader<R> {
        Reader {
            io,
            buffer: BytesMut::with_capacity(4096),
            message: Vec::new(),
        }
    }

    /// The next message; `None` if the client has closed the connection or broken the protocol.
    pub async fn next(&mut self) -> Option<Message> {
        loop {
            match self.frame().ok()? {
                Some((OpCode::Control(Control::Close), ..)) => return None,
                Some((OpCode::Control(Control::Ping), _, payload)) => {
                    return Some(Message::Ping(payload));
                }
                Some((OpCode::Data(_), last, payload)) => {
                    if self.message.len() + payload.len() > MOST_MESSAGE {
                        return None;
                    }
                    self.message.extend_from_slice(&payload);
                    if last {
                        return Some(Message::Text(std::mem::take(&mut self.message)));
                    }
                }
                Some(_) => {}
                None if self.io.read_buf(&mut self.buffer).await.ok()? == 0 => return None,
                None => {}
            }
        }
    }

    fn frame(&mut self) -> io::Result<Option<(OpCode, bool, Vec<u8>)>> {
        let mut cursor = Cursor::new(&self.buffer[..]);
        let Some((header, length)) = FrameHeader::parse(&mut cursor).map_err(io::Error::other)?
        else {
            return Ok(None);
        };
        if length > MOST_MESSAGE as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (start, length) = (cursor.position() as usize, length as usize);
        if self.buffer.len() < start + length {
            return Ok(None);
        }
        self.buffer.advance(start);
        let mut payload = self.buffer.split_to(length).to_vec();
        if let Some(mask) = header.mask {
            payload
                .iter_mut()
                .zip(mask.iter().cycle())
                .for_each(|(byte, mask)| *byte ^= mask);
        }
        Ok(Some((header.opcode, header.is_final, payload)))
    }
}

/// Writes frames in one write.
pub async fn write<W: AsyncWrite + Unpin>(
    io: &mut W,
    frames: impl IntoIterator<Item = Frame>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    for frame in frames {
        frame.format(&mut bytes).map_err(io::Error::other)?;
    }
    io.write_all(&bytes).await?;
    io.flush().await
}

pub fn text(payload: &[u8]) -> Frame {
    Frame::message(
        Bytes::copy_from_slice(payload),
        OpCode::Data(Data::Text),
        true,
    )
}

pub fn pong(payload: Vec<u8>) -> Frame {
    Frame::pong(payload)
}

pub fn close() -> Frame {
    Frame::close(None)
}
