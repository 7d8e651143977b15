//! The chunked coding: what is read, and whether it is malformed, does not depend on how it
//! is cut; and what may leave as it came says the same.

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

/// A body that was read.
#[derive(Default)]
struct Whole {
    payload: Vec<u8>,
    /// What of it may leave as it came: all but the end.
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
            // How much of it was read before depends on the cut.
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
