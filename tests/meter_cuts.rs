//! Tokens, facts and instants of a body do not depend on how it is cut into chunks.

use proptest::prelude::*;
use tokengauge_core::call::CallRecord;
use tokengauge_core::observer::End;
use tokengauge_test_support::meter::{Bench, DONE, choice, finish, thoughts};
use tokengauge_tokenizer as tokens;

fn play(body: &str, cuts: &[usize]) -> CallRecord {
    let bench = Bench::default();
    let call = bench.chat();
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
    cuts.sort_unstable();
    let ends = cuts.iter().copied().chain([body.len()]);
    let mut start = 0;
    for end in ends {
        bench.chunk(&*call, 100, &body.as_bytes()[start..end]);
        start = end;
    }
    bench.end(&*call, 200, End::Complete)
}

fn content(text: &str) -> String {
    choice(0, &serde_json::json!({ "content": text }).to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cutting_a_body_into_chunks_changes_no_count(
        pieces in prop::collection::vec("[ a-zA-Z0-9'.,\n世界é🎉]{1,12}", 1..20),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let events: String = pieces.iter().map(|piece| content(piece)).collect();
        let body = thoughts(3) + &events + &finish(Some(9)) + DONE;
        let cuts: Vec<_> = cuts.iter().map(|cut| cut.index(body.len())).collect();
        let (whole, cut) = (play(&body, &[]), play(&body, &cuts));
        prop_assert_eq!(whole.tokens.normalised.answer, Some(tokens::count(&pieces.concat())));
        prop_assert_eq!(whole.tokens, cut.tokens);
        prop_assert_eq!(whole.first_token_event, cut.first_token_event);
        prop_assert_eq!(&whole.finish_reasons, &cut.finish_reasons);
        prop_assert_eq!(&whole.model, &cut.model);
        prop_assert_eq!(whole.outcome, cut.outcome);
        prop_assert_eq!(whole.seconds.ttft, cut.seconds.ttft);
        prop_assert_eq!(whole.bytes, cut.bytes);
    }
}
