//! Runs the fuzz targets without a fuzzer: every kept input, and then random mutations of them.
//! `TOKENGAUGE_FUZZ_INPUTS` is the number of mutations for each target. `TOKENGAUGE_FUZZ_SEED` is the seed; without it
//! every run has the same inputs.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use tokengauge_test_support::records::SplitMix64;

#[path = "../fuzz/src/lib.rs"]
pub mod targets;

const MAX_FILES: usize = 200;
const MAX_BYTES: usize = 300 << 10;
const MAX_INPUT: usize = 4096;
const INPUTS: u64 = 300;

type Target = fn(&[u8]);

macro_rules! targets {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            fuzz(stringify!($name), targets::$name::run);
        })*
    };
}

targets! {
    admission answers chunked config counter engine framed inject manifests poisoning query
    request smuggling wire
}

#[test]
fn every_target_is_played_here_and_fuzzed_there() {
    let manifest = std::fs::read_to_string(folder("Cargo.toml")).expect("a manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let bins = manifest["bin"].as_array().expect("targets").iter();
    let mut fuzzed: Vec<_> = bins.filter_map(|bin| bin["name"].as_str()).collect();
    fuzzed.sort_unstable();
    assert_eq!(fuzzed, NAMES);
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz")
        .join(name)
}

fn fuzz(name: &str, target: Target) {
    let corpus = corpus(name);
    for input in &corpus {
        play(name, target, input);
    }
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let inputs = variable("TOKENGAUGE_FUZZ_INPUTS").unwrap_or(INPUTS);
    let mut random = SplitMix64(variable("TOKENGAUGE_FUZZ_SEED").unwrap_or(1));
    for _ in 0..inputs {
        play(name, target, &mutated(&corpus, &mut random));
    }
    println!("{name}: {} kept inputs, {inputs} random ones", corpus.len());
}

/// The kept inputs in a fixed order.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = folder("corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let all: Vec<_> = files
        .iter()
        .map(|file| std::fs::read(file).expect("a file"))
        .collect();
    let bytes: usize = all.iter().map(Vec::len).sum();
    assert!(
        !all.is_empty() && all.len() <= MAX_FILES && bytes <= MAX_BYTES,
        "{name}: {} files of {bytes} bytes; fuzz/run --keep makes it smaller",
        all.len()
    );
    all
}

/// A failing input is stored where the fuzzer stores it, for `fuzz/run`.
fn play(name: &str, target: Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let artifacts = folder("artifacts").join(name);
        let file = artifacts.join("crash-of-the-tests");
        let written =
            std::fs::create_dir_all(&artifacts).and_then(|()| std::fs::write(&file, input));
        eprintln!(
            "{name} failed on {}: {file:?}, {written:?}",
            input.escape_ascii()
        );
        resume_unwind(panic);
    }
}

fn mutated(corpus: &[Vec<u8>], random: &mut SplitMix64) -> Vec<u8> {
    let any = |random: &mut SplitMix64| &corpus[random.below(corpus.len() as u64) as usize];
    let mut input = any(random).clone();
    for _ in 0..=random.below(6) {
        let at = random.below(input.len() as u64 + 1) as usize;
        let end = (at + 1 + random.below(16) as usize).min(input.len());
        match random.below(6) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.draw() as u8,
            2 if at < end => drop(input.drain(at..end)),
            3 if at < end => {
                let again = input[at..end].to_vec();
                input.splice(at..at, again);
            }
            4 => input.insert(at, random.draw() as u8),
            _ => {
                let other = any(random);
                let from = random.below(other.len() as u64 + 1) as usize;
                let to = (from + random.below(64) as usize).min(other.len());
                input.splice(at..at, other[from..to].iter().copied());
            }
        }
    }
    input.truncate(MAX_INPUT);
    input
}
