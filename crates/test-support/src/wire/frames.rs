//! WebSocket frames, created by a real WebSocket library.

use super::encode::{encoder, piece};
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};
use tungstenite::protocol::frame::{Frame as Wire, FrameHeader};

#[derive(Clone, Copy, Debug, Default)]
pub struct Frame {
    pub mask: Option<[u8; 4]>,
    /// Cut messages into frames of this number of bytes.
    pub fragment: Option<usize>,
    /// Send a ping before every frame except the first.
    pub ping: bool,
    pub deflate: bool,
}

pub fn socket(messages: &[Vec<u8>], how: &Frame) -> Vec<u8> {
    let mut deflate = how.deflate.then(|| encoder("raw-deflate"));
    let mut bytes = Vec::new();
    for message in messages {
        let mut payload = message.clone();
        if let Some(encoder) = &mut deflate {
            payload = piece(&mut **encoder, message);
            let tail = payload.len() - 4;
            assert_eq!(
                payload.split_off(tail),
                [0, 0, 0xff, 0xff],
                "a flush ends like this"
            );
        }
        write_message(&payload, how, &mut bytes);
    }
    bytes
}

fn write_message(payload: &[u8], how: &Frame, bytes: &mut Vec<u8>) {
    let size = how.fragment.unwrap_or(payload.len()).max(1);
    let count = payload.chunks(size).count();
    for (at, part) in payload.chunks(size).enumerate() {
        let opcode = if at == 0 { Data::Text } else { Data::Continue };
        let last = at + 1 == count;
        if how.ping && at > 0 {
            write(
                OpCode::Control(Control::Ping),
                true,
                false,
                how.mask,
                b"p",
                bytes,
            );
        }
        let compressed = how.deflate && at == 0;
        write(
            OpCode::Data(opcode),
            last,
            compressed,
            how.mask,
            part,
            bytes,
        );
    }
}

fn write(
    opcode: OpCode,
    is_final: bool,
    rsv1: bool,
    mask: Option<[u8; 4]>,
    payload: &[u8],
    bytes: &mut Vec<u8>,
) {
    let header = FrameHeader {
        is_final,
        rsv1,
        rsv2: false,
        rsv3: false,
        opcode,
        mask,
    };
    let frame = Wire::from_payload(header, payload.to_vec().into());
    frame.format(bytes).expect("a frame");
}
