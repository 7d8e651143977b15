//! No text of people, programs and tables counts as a repetition.

use super::tests::Seeded;
use super::{MAX_PUSH, Watch};
use std::fs;
use std::path::{Path, PathBuf};
use tokengauge_core::memory::Memory;
use tokengauge_tokenizer::Counter;

const EXCERPTS: usize = 10_000;
const LENGTH: usize = 6_000;

#[test]
fn no_excerpt_of_ordinary_text_is_a_repetition() {
    let sources = sources();
    assert!(sources.len() > 300, "{} files", sources.len());
    let mut random = Seeded(54);
    for number in 0..EXCERPTS {
        let source = &sources[random.below(sources.len())];
        let text = match number % 5 {
            0 => table(&mut random),
            1 => json(&mut random),
            2 => base64(source.as_bytes(), &mut random),
            _ => excerpt(source, &mut random).to_owned(),
        };
        assert!(
            !repeats(&text),
            "excerpt {number}: {}",
            &text[..text.len().min(500)]
        );
    }
}

/// The documents, sources and fixtures of the repository.
fn sources() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in [
        "docs",
        "src",
        "crates",
        "tests",
        "dashboards",
        "helm",
        "examples",
    ] {
        collect(&root.join(folder), &mut files);
    }
    files.sort();
    let texts = files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    texts.filter(|text| text.len() > 1_000).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    const KINDS: [&str; 12] = [
        "md", "rs", "py", "js", "mjs", "json", "toml", "yaml", "sse", "ndjson", "html", "tsv",
    ];
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        // These arrays of one number again and again are what the watch looks for.
        if path.ends_with("stats/tests/oracles") {
            continue;
        }
        if path.is_dir() && !is_link {
            collect(&path, files);
        } else if path
            .extension()
            .is_some_and(|kind| KINDS.iter().any(|known| kind == *known))
        {
            files.push(path);
        }
    }
}

fn excerpt<'a>(source: &'a str, random: &mut Seeded) -> &'a str {
    let start = random.below(source.len());
    let start = (start..)
        .find(|at| source.is_char_boundary(*at))
        .unwrap_or(0);
    let end = (start + LENGTH).min(source.len());
    let end = (end..).find(|at| source.is_char_boundary(*at));
    &source[start..end.unwrap_or(source.len())]
}

/// Rows with few values, which therefore often follow themselves.
fn table(random: &mut Seeded) -> String {
    let columns = 2 + random.below(5);
    let values = 2 + random.below(40);
    let mut text = "| name ".repeat(columns) + "|\n" + &"| --- ".repeat(columns) + "|\n";
    while text.len() < LENGTH {
        for _ in 0..columns {
            text += &format!("| {} ", random.below(values));
        }
        text += "|\n";
    }
    text
}

fn json(random: &mut Seeded) -> String {
    let values = 2 + random.below(60);
    let mut text = String::from("[\n");
    while text.len() < LENGTH {
        let (id, state) = (random.below(values), random.below(2) == 0);
        text +=
            &format!("  {{\"id\": {id}, \"active\": {state}, \"tags\": [], \"note\": null}},\n");
    }
    text
}

fn base64(bytes: &[u8], random: &mut Seeded) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes[random.below(bytes.len())..]
        .chunks_exact(3)
        .take(LENGTH / 4)
    {
        let bits = three
            .iter()
            .fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        text.extend(
            (0..4)
                .rev()
                .map(|at| char::from(DIGITS[bits >> (6 * at) & 63])),
        );
    }
    text
}

fn repeats(text: &str) -> bool {
    let mut counter = Counter::new();
    let mut watch = Watch::begin(&Memory::unbounded(), 0).expect("memory");
    let mut found = false;
    let mut rest = text;
    while !rest.is_empty() {
        let end = (MAX_PUSH - 3).min(rest.len());
        let end = (end..)
            .find(|at| rest.is_char_boundary(*at))
            .unwrap_or(rest.len());
        let (now, later) = rest.split_at(end);
        counter.push(now);
        if watch.push(now.as_bytes()) {
            found |= watch.check(counter.count());
        }
        rest = later;
    }
    found | watch.check(counter.finish())
}
