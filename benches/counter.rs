//! Time of the token counter: `cargo bench --bench counter`, or only some texts: `cargo bench --bench counter --
//! English JSON`.
//!
//! Each text is counted as a whole. It is also counted in pushes of one token, with the count read after each push, as a
//! meter does. tiktoken-rs counts it for comparison. Texts that are hard to count are then tried at three lengths: if the time is linear, all
//! three figures are equal.

use std::hint::black_box;
use std::time::{Duration, Instant};
use tiktoken_rs::{CoreBPE, o200k_base_singleton};
use tokengauge_tokenizer::{self as tokens, Counter};

mod texts;

fn main() {
    let idle = resident_kb();
    let started = Instant::now();
    tokens::warm();
    let warm = started.elapsed();
    println!(
        "resident memory: {} at start, {} warm ({warm:.1?})",
        megabytes(idle),
        megabytes(resident_kb())
    );

    let reference = o200k_base_singleton();
    println!(
        "                 {} with tiktoken-rs loaded too\n",
        megabytes(resident_kb())
    );
    typical(reference);
    hard(reference);
}

fn typical(reference: &CoreBPE) {
    println!(
        "{:<28}{:>9}{:>9}{:>11}{:>13}{:>13}",
        "ns per token", "KB", "tokens", "whole", "one a push", "tiktoken-rs"
    );
    for (name, text) in texts::typical()
        .into_iter()
        .filter(|(name, _)| wanted(name))
    {
        let tokens = reference.encode_ordinary(&text);
        assert_eq!(tokens::count(&text), tokens.len() as u64, "{name}");
        let chunks: Vec<Vec<u8>> = tokens
            .iter()
            .map(|token| reference.decode_bytes(&[*token]).expect("its own token"))
            .collect();
        let per_token = |time: Duration| time.as_nanos() as f64 / tokens.len() as f64;
        println!(
            "{name:<28}{:>9.1}{:>9}{:>11.1}{:>13.1}{:>13.1}",
            text.len() as f64 / 1e3,
            tokens.len(),
            per_token(fastest(|| tokens::count(&text))),
            per_token(fastest(|| one_a_push(chunks.iter().map(Vec::as_slice)))),
            per_token(fastest(|| reference.encode_ordinary(&text).len() as u64)),
        );
    }
}

fn hard(reference: &CoreBPE) {
    let lengths = [1_000, 30_000, 1_000_000];
    println!(
        "\n{:<28}{:>33}{:>33}{:>13}",
        "ns per byte, by length", "whole", "4 bytes a push", "tiktoken-rs"
    );
    print!("{:<28}", "");
    for length in lengths.iter().chain(&lengths).chain(&lengths[..1]) {
        print!("{:>11}", length);
    }
    println!();
    for (name, text) in texts::hard().into_iter().filter(|(name, _)| wanted(name)) {
        print!("{name:<28}");
        let texts = lengths.map(&text);
        let per_byte = |time: Duration, text: &[u8]| time.as_nanos() as f64 / text.len() as f64;
        for text in &texts {
            print!("{:>11.1}", per_byte(fastest(|| one_push(text)), text));
        }
        for text in &texts {
            print!(
                "{:>11.1}",
                per_byte(fastest(|| one_a_push(text.chunks(4))), text)
            );
        }
        let text = String::from_utf8_lossy(&texts[0]);
        println!(
            "{:>11.1}",
            per_byte(
                fastest(|| reference.encode_ordinary(&text).len() as u64),
                text.as_bytes()
            )
        );
    }
}

/// Whether the command line selects this text, as in `-- Chinese`. Without a name, all are selected.
fn wanted(name: &str) -> bool {
    let mut names = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .peekable();
    names.peek().is_none() || names.any(|word| name.contains(&word))
}

fn one_push(text: &[u8]) -> u64 {
    let mut counter = Counter::new();
    counter.push_bytes(text);
    counter.finish()
}

fn one_a_push<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut counter = Counter::new();
    for chunk in chunks {
        counter.push_bytes(chunk);
        black_box(counter.count());
    }
    counter.finish()
}

/// The fastest of many runs, because others were disturbed.
fn fastest(run: impl Fn() -> u64) -> Duration {
    let (mut best, started) = (Duration::MAX, Instant::now());
    let enough = |runs| runs >= 3 && started.elapsed() > Duration::from_millis(300);
    for runs in 0.. {
        let start = Instant::now();
        black_box(run());
        best = best.min(start.elapsed());
        if enough(runs) || started.elapsed() > Duration::from_secs(3) {
            break;
        }
    }
    best
}

fn megabytes(kb: Option<u64>) -> String {
    kb.map_or("unknown".into(), |kb| {
        format!("{:.1} MB", kb as f64 / 1024.0)
    })
}

/// `VmRSS` of this process, if `/proc` exists.
fn resident_kb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
