//! The chunked coding: what is read, and whether it is malformed, does not depend on how it
//! is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tokengauge::proxy::Chunked;

fuzz_target!(|input: &[u8]| {
    let [cut, body @ ..] = input else { return };
    let whole = read(body, body.len().max(1));
    let cut = read(body, usize::from(*cut).max(1));
    assert_eq!(whole, cut);
});

/// The payload, and how it ended: with so many trailers, open, or malformed.
fn read(body: &[u8], length: usize) -> (Option<Vec<u8>>, &'static str) {
    let mut chunked = Chunked::default();
    let (mut unread, mut payload) = (Vec::new(), Vec::new());
    for piece in body.chunks(length) {
        unread.extend_from_slice(piece);
        let Ok(read) = chunked.read(&unread) else {
            // How much of it was read before depends on the cut.
            return (None, "malformed");
        };
        assert!(read.content <= read.whole && read.whole <= unread.len());
        payload.extend_from_slice(&read.payload);
        unread.drain(..read.whole);
        if read.trailers.is_some() {
            return (Some(payload), "over");
        }
    }
    (Some(payload), "open")
}
