use super::*;

const BODY: &[u8] =
    b"5\r\nhello\r\n1;quality=\"high\"\r\n \r\n000A  \r\n0123456789\r\n00\r\nx-sum: 7\r\n\r\n";
const CONTENT: &[u8] = b"hello 0123456789";

#[derive(Default)]
struct Decoded {
    payload: Vec<u8>,
    forwarded: Vec<u8>,
    trailers: Option<HeaderMap>,
}

/// Decodes a body that arrives in pieces. Unread bytes are kept for the next piece.
fn decode_pieces<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Decoded, ResponseBodyError> {
    let (mut chunked, mut unread) = (ChunkedDecoder::default(), Vec::new());
    let mut decoded = Decoded::default();
    for piece in pieces {
        unread.extend_from_slice(piece);
        let read = chunked.read(&unread)?;
        decoded.payload.extend_from_slice(&read.payload);
        decoded
            .forwarded
            .extend_from_slice(&unread[..read.forwardable]);
        unread.drain(..read.consumed);
        decoded.trailers = decoded.trailers.or(read.trailers);
    }
    Ok(decoded)
}

#[test]
fn a_body_cut_anywhere_decodes_the_same_and_is_forwarded_unchanged() {
    for cut in 0..=BODY.len() {
        let (one, other) = BODY.split_at(cut);
        let decoded = decode_pieces([one, other].into_iter()).expect("good");
        assert_eq!(decoded.payload, CONTENT, "{cut}");
        assert!(BODY.starts_with(&decoded.forwarded), "{cut}");
        assert!(decoded.forwarded.ends_with(b"0123456789\r\n"), "{cut}");
        assert_eq!(decoded.trailers.expect("over")["x-sum"], "7", "{cut}");
    }
    let decoded = decode_pieces(BODY.chunks(1)).expect("good");
    assert_eq!(decoded.payload, CONTENT);
}

#[test]
fn ambiguous_codings_are_rejected() {
    for body in [
        &b"5\nhello\r\n"[..],
        b"\r\n5\r\nhello\r\n",
        b"+5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b"-1\r\n",
        b"5 5\r\nhello\r\n",
        b"5;a=\rb\r\nhello\r\n",
        b"5\r\r\nhello\r\n",
        b"5\x0c\r\nhello\r\n",
        b"5\r\nhelloX\n",
        b"5\r\nhello\n\n",
        b"11111111111111111\r\n",
        b"0\r\nno colon\r\n\r\n",
        b"0\r\nx: y\n\r\n",
        b"0\r\n\n",
    ] {
        assert!(
            decode_pieces([body].into_iter()).is_err(),
            "{:?}",
            String::from_utf8_lossy(body)
        );
    }
}

#[test]
fn endless_lines_and_trailers_are_rejected() {
    let line = [b"5;".as_slice(), &[b'a'; MAX_LINE_BYTES]].concat();
    assert!(decode_pieces(line.chunks(100)).is_err());
    let trailers = [b"0\r\nx: ".as_slice(), &[b'a'; MAX_TRAILER_BYTES]].concat();
    assert!(decode_pieces(trailers.chunks(100)).is_err());
    let whole = [&trailers, b"\r\n\r\n".as_slice()].concat();
    assert!(decode_pieces([&whole[..]].into_iter()).is_err());
}

#[test]
fn the_longest_line_may_be_cut_anywhere() {
    let extension = [b'a'; MAX_LINE_BYTES - 2];
    let body = [b"1;".as_slice(), &extension, b"\r\na\r\n0\r\n\r\n"].concat();
    for cut in MAX_LINE_BYTES - 1..MAX_LINE_BYTES + 4 {
        let (one, other) = body.split_at(cut);
        assert!(decode_pieces([one, other].into_iter()).is_ok(), "{cut}");
    }
}

#[test]
fn bytes_after_the_end_are_not_consumed() {
    let read = ChunkedDecoder::default()
        .read(b"1\r\na\r\n0\r\n\r\nHTTP/1.1")
        .expect("good");
    assert_eq!((read.consumed, read.forwardable), (11, 6));
    assert!(read.trailers.is_some());
}

/// The chunks of a request body, and whether it ended with the last chunk.
fn chunks_of(body: &[u8], pieces: usize) -> Result<(Vec<Vec<u8>>, bool), ResponseBodyError> {
    let (mut decoder, mut held) = (ChunkedDecoder::of_request(), Vec::new());
    let (mut chunks, mut ended) = (Vec::new(), false);
    for piece in body.chunks(pieces) {
        held.extend_from_slice(piece);
        loop {
            let next = decoder.next_chunk(&held)?;
            chunks.extend((!next.payload.is_empty()).then(|| held[next.payload.clone()].to_vec()));
            ended |= next.trailers.is_some();
            held.drain(..next.consumed);
            if next.consumed == 0 || ended {
                break;
            }
        }
    }
    Ok((chunks, ended))
}

#[test]
fn chunks_come_one_by_one_and_the_end_with_the_last() {
    let (chunks, ended) = chunks_of(BODY, BODY.len()).expect("good");
    assert_eq!(chunks, [&b"hello"[..], b" ", b"0123456789"]);
    assert!(ended);
    let mut decoder = ChunkedDecoder::of_request();
    let last = decoder.next_chunk(b"1\r\na\r\n0\r\n\r\nGET").expect("good");
    assert_eq!((last.payload, last.consumed), (3..4, 11));
    assert!(last.trailers.is_some());
    for pieces in 1..BODY.len() {
        let (chunks, ended) = chunks_of(BODY, pieces).expect("good");
        assert_eq!(chunks.concat(), CONTENT, "{pieces}");
        assert!(ended, "{pieces}");
    }
}

#[test]
fn extensions_of_a_request_are_bounded_over_all_its_chunks() {
    let chunk = format!("1;{}\r\na\r\n", "x".repeat(1_000));
    assert!(chunks_of(chunk.repeat(15).as_bytes(), 700).is_ok());
    assert!(chunks_of(chunk.repeat(20).as_bytes(), 700).is_err());
}
