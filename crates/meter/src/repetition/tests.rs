use super::*;
use tokengauge_tokenizer::Counter;

/// Numbers that look random, from a seed.
pub(super) struct Seeded(pub(super) u64);

impl Seeded {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    /// Words of one token each.
    fn words(&mut self, count: usize) -> String {
        const WORDS: [&str; 16] = [
            " the", " code", " file", " test", " and", " error", " list", " value", " of", " to",
            " new", " user", " name", " set", " time", " data",
        ];
        (0..count).map(|_| WORDS[self.below(WORDS.len())]).collect()
    }
}

struct Watched {
    counter: Counter,
    watch: Box<Watch>,
    /// The tokens of the text when a repetition was found.
    flagged: Option<u64>,
}

impl Watched {
    fn new(memory: &Arc<Memory>) -> Watched {
        Watched {
            counter: Counter::new(),
            watch: Watch::begin(memory, 0).expect("memory"),
            flagged: None,
        }
    }

    fn push(&mut self, part: &str) {
        self.counter.push(part);
        if self.watch.push(part.as_bytes()) {
            self.check();
        }
    }

    fn check(&mut self) {
        let count = self.counter.count();
        if self.watch.check(count) {
            self.flagged.get_or_insert(count);
        }
    }
}

/// Watches a text in parts of this many bytes, cut at characters.
fn watch(text: &str, mut part: impl FnMut() -> usize) -> Watched {
    let mut watched = Watched::new(&Memory::unbounded());
    let mut rest = text;
    while !rest.is_empty() {
        let end = part().clamp(1, MAX_PUSH - 4).min(rest.len());
        let end = (end..=rest.len()).find(|at| rest.is_char_boundary(*at));
        let (now, later) = rest.split_at(end.unwrap_or(rest.len()));
        watched.push(now);
        rest = later;
    }
    watched.counter.finish();
    watched.check();
    watched
}

#[test]
fn every_period_is_found_within_500_repeated_tokens() {
    let mut random = Seeded(7);
    for period in (1..24).chain((24..=256).step_by(29)).chain([256]) {
        for before in [0, 40, 300 + random.below(400), 1500 + random.below(300)] {
            let (intro, unit) = (random.words(before), random.words(period));
            let text = intro.clone() + &unit.repeat(1500 / period + 3);
            let watched = watch(&text, || 4);
            let at = watched.flagged.expect("a repetition");
            let first = (before + period) as u64;
            assert!(
                at <= first + 500,
                "period {period} after {before}: {}",
                at - first
            );
            let found = watched.watch.found().expect("a repetition");
            assert!(
                (period as u64).is_multiple_of(found.period),
                "{period}: {found:?}"
            );
            assert!(
                found.start.abs_diff(before as u64) <= 260 / 8,
                "{before}: {found:?}"
            );
        }
    }
}

#[test]
fn one_character_again_and_again_is_found() {
    for unit in [
        "a", "!", "\n", " ", "哈", "😊", "VVVV", "ab", "0, ", "<br>", "\u{301}",
    ] {
        let text = "It begins well. ".to_owned() + &unit.repeat(100_000 / unit.len());
        let found = watch(&text, || 3).watch.found();
        let found = found.unwrap_or_else(|| panic!("{unit:?}"));
        assert!(
            found.start.abs_diff(4) <= 8 && found.period <= 4,
            "{unit:?}: {found:?}"
        );
    }
}

#[test]
fn the_cuts_of_a_text_do_not_matter() {
    let mut random = Seeded(11);
    for _ in 0..40 {
        let (before, period) = (random.below(900), 1 + random.below(200));
        let text = random.words(before) + &random.words(period).repeat(1200 / period + 2);
        let text = text + &random.words(400);
        let whole = watch(&text, || MAX_PUSH)
            .watch
            .found()
            .expect("a repetition");
        let size = 1 + random.below(60);
        let cut = watch(&text, || 1 + random.below(size)).watch.found();
        let cut = cut.expect("a repetition");
        assert_eq!(cut.period, whole.period);
        assert!(cut.start.abs_diff(whole.start) <= 4, "{cut:?} {whole:?}");
        assert!(cut.tokens.abs_diff(whole.tokens) <= 4, "{cut:?} {whole:?}");
    }
}

#[test]
fn a_row_that_differs_is_no_repetition() {
    let rows = (0..900).map(|row| format!("| {row} | yes | 0.00 | 2026-01-01 |\n"));
    let objects = (0..900).map(|id| format!("{{\"id\": {id}, \"ok\": true, \"tags\": []}},\n"));
    for text in [rows.collect::<String>(), objects.collect()] {
        assert_eq!(watch(&text, || 4).watch.found(), None);
    }
}

#[test]
fn repetitions_before_and_after_other_text_add_up() {
    let mut random = Seeded(3);
    let text = random.words(100)
        + &" one two three four".repeat(250)
        + &random.words(700)
        + &" five six seven".repeat(400);
    let found = watch(&text, || 5).watch.found().expect("a repetition");
    assert!(found.start.abs_diff(100) <= 2, "{found:?}");
    assert_eq!(found.period, 3);
    assert!(found.tokens.abs_diff(4 * 249 + 3 * 399) <= 4, "{found:?}");
}

#[test]
fn a_block_that_comes_three_times_is_no_repetition() {
    let mut random = Seeded(5);
    for period in [60, 120, 170] {
        let text = random.words(200) + &random.words(period).repeat(3) + &random.words(600);
        assert_eq!(watch(&text, || 6).watch.found(), None, "{period}");
    }
}

#[test]
fn memory_is_limited_and_returned() {
    let memory = Memory::new(2 * CAPACITY);
    let watches: Vec<_> = (0..2).map(|_| Watch::begin(&memory, 0)).collect();
    assert!(watches.iter().all(Option::is_some) && Watch::begin(&memory, 0).is_none());
    drop(watches);
    assert_eq!(memory.used(), 0);
    let mut random = Seeded(9);
    let watched = watch(&random.words(20_000), || 500);
    assert!(watched.watch.bytes.len() <= CAPACITY);
    assert!(size_of::<Watch>() + CAPACITY <= 4096 + 256);
}
