//! The counter must agree with tiktoken on the whole text, however it is cut.

use std::sync::LazyLock;
use tiktoken_rs::CoreBPE;
use tokengauge_tokenizer::Counter;

static TIKTOKEN: LazyLock<CoreBPE> =
    LazyLock::new(|| tiktoken_rs::o200k_base().expect("a vocabulary"));

pub fn run(input: &[u8]) {
    let [cut, bytes @ ..] = input else { return };
    let text = String::from_utf8_lossy(bytes);
    let expected = TIKTOKEN.encode_ordinary(&text).len() as u64;
    let mut whole = Counter::new();
    whole.push(&text);
    assert_eq!(whole.count(), expected, "{text:?}");
    let mut counter = Counter::new();
    for piece in text.as_bytes().chunks(usize::from(*cut).max(1)) {
        counter.push_bytes(piece);
    }
    assert_eq!(counter.finish(), expected, "cut by {cut}: {text:?}");
}
