//! Arbitrary bytes in every dialect, framing and encoding: no reader panics, and cuts do not change what is read.

use crate::fuzz_corpora::targets::wire::DIALECTS;
use proptest::prelude::*;
use tokengauge_core::call::Dialect;
use tokengauge_test_support::wire::reading::{read, read_cut};
use tokengauge_wire::{Decoder, Framing, Limits};

const FRAMINGS: [Framing; 6] = [
    Framing::Sse,
    Framing::Ndjson,
    Framing::Json,
    Framing::JsonArray,
    Framing::AwsEventStream,
    Framing::WebSocket,
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_any_reader_panic_and_no_cut_changes_what_is_read(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "data: ", "data:", "event: x", "\n", "\r\n", "\r", "{", "}", "[", "]", ",", ":", "\"", "\\", "\\ud800",
            "\"choices\":", "\"delta\":", "\"content\":", "\"text\":", "\"type\":", "\"index\":", "-1", "1e999", "null",
            "\"response.output_text.delta\"", "\"output\":", "\"message\":", "\"usage\":", "\"tool_calls\":", "true",
            "\"error\":", "[DONE]", "\u{0}\u{0}\u{0}\u{10}", "\u{81}", "é", "\"candidates\":", "\"parts\":", "\"a\"",
        ]), 0..60),
        dialect in prop::sample::select(DIALECTS.to_vec()),
        framing in prop::sample::select(FRAMINGS.to_vec()),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let body = pieces.concat().into_bytes();
        let decoder = || Decoder::with_framing(dialect, framing, None, Limits::default());
        let cuts = cuts.iter().map(|cut| cut.index(body.len() + 1));
        prop_assert_eq!(read_cut(decoder(), &body, cuts), read(decoder(), &body));
    }

    #[test]
    fn random_bytes_in_any_encoding_are_an_error_at_worst(
        body in prop::collection::vec(any::<u8>(), 0..300),
        coding in prop::sample::select(vec!["gzip", "deflate", "br", "zstd", "deflate, gzip"]),
        framing in prop::sample::select(FRAMINGS.to_vec()),
    ) {
        read(Decoder::with_framing(Dialect::OpenaiChat, framing, Some(coding), Limits::default()), &body);
    }
}
