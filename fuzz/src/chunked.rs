//! The chunked coding: content and validity do not depend on cuts, and the bytes that are forwarded unchanged have the
//! same content.

use tokengauge_proxy::ChunkedDecoder;

pub fn run(input: &[u8]) {
    let [cut, body @ ..] = input else { return };
    let whole = read(body, body.len().max(1));
    let pieces = read(body, usize::from(*cut).max(1));
    assert_eq!((&whole.payload, whole.end), (&pieces.payload, pieces.end));
    for read_so in [whole, pieces] {
        if read_so.end != "malformed" {
            let again = read(&read_so.forwarded, 7);
            assert_eq!((again.payload, again.end), (read_so.payload, "open"));
        }
    }
}

/// A decoded body.
#[derive(Default)]
struct Whole {
    payload: Vec<u8>,
    /// The part that is forwarded unchanged: everything except the end.
    forwarded: Vec<u8>,
    /// `over`, `open` or `malformed`.
    end: &'static str,
}

fn read(body: &[u8], length: usize) -> Whole {
    let mut chunked = ChunkedDecoder::default();
    let mut unread = Vec::new();
    let mut whole = Whole::default();
    for piece in body.chunks(length) {
        unread.extend_from_slice(piece);
        let Ok(read) = chunked.read(&unread) else {
            // The amount that was read before the error depends on the cut.
            return Whole {
                end: "malformed",
                ..Whole::default()
            };
        };
        assert!(read.forwardable <= read.consumed && read.consumed <= unread.len());
        whole.payload.extend_from_slice(&read.payload);
        whole
            .forwarded
            .extend_from_slice(&unread[..read.forwardable]);
        unread.drain(..read.consumed);
        if read.trailers.is_some() {
            whole.end = "over";
            return whole;
        }
    }
    whole.end = "open";
    whole
}
