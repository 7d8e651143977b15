//! The reference of usage members and finish reasons matches the program.

use std::fmt::Write;
use std::path::Path;
use tokengauge_core::finish_class::{FINISH_REASONS, FinishClass};
use tokengauge_wire::{USAGE_NAMES, UsageMeaning};

fn usage() -> String {
    let mut out = String::new();
    for shape in USAGE_NAMES {
        write!(
            out,
            "\n### {}\n\nThe counts are in {}. Source: ",
            shape.dialects, shape.place
        )
        .expect("text");
        let sources: Vec<String> = shape
            .source
            .split(", ")
            .map(|url| format!("<{url}>"))
            .collect();
        write!(
            out,
            "{}.\n\n| what | members |\n|---|---|\n",
            sources.join(", ")
        )
        .expect("text");
        let mut meanings: Vec<UsageMeaning> = Vec::new();
        for (_, meaning) in shape.names {
            if !meanings.contains(meaning) {
                meanings.push(*meaning);
            }
        }
        for meaning in meanings {
            let names = shape.names.iter().filter(|(_, of)| *of == meaning);
            let names: Vec<String> = names.map(|(name, _)| format!("`{name}`")).collect();
            writeln!(out, "| {} | {} |", meaning.as_str(), names.join(", ")).expect("text");
        }
    }
    out
}

fn finish_reasons() -> String {
    let mut out = "\n| sender | reasons | class | source |\n|---|---|---|---|\n".to_owned();
    for reasons in FINISH_REASONS {
        let words: Vec<String> = reasons
            .words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect();
        let class = match reasons.class {
            class if class.is_failure() => format!("{}: a failure", class.as_str()),
            class => class.as_str().to_owned(),
        };
        let (vendor, words, source) = (reasons.vendor, words.join(", "), reasons.source);
        writeln!(out, "| {vendor} | {words} | {class} | <{source}> |").expect("text");
    }
    let failed = FinishClass::Failed.as_str();
    writeln!(
        out,
        "| anybody | every other word that ends in `error` | {failed}: a failure | |"
    )
    .expect("text");
    let other = FinishClass::Other.as_str();
    writeln!(out, "| anybody | every other word | {other} | |").expect("text");
    out
}

#[test]
fn the_reference_matches_the_readers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/wire-reference.md");
    let there = std::fs::read_to_string(&path).expect("the reference");
    let (before, rest) = there.split_once("<!-- usage -->\n").expect("a mark");
    let (_, rest) = rest.split_once("\n## Finish reasons").expect("a heading");
    let (between, _) = rest
        .split_once("<!-- finish reasons -->\n")
        .expect("a mark");
    let now = format!(
        "{before}<!-- usage -->\n{}\n## Finish reasons{between}<!-- finish reasons -->\n{}",
        usage(),
        finish_reasons()
    );
    if std::env::var_os("TOKENGAUGE_WRITE").is_some() {
        std::fs::write(&path, &now).expect("written");
    } else {
        assert!(
            there == now,
            "docs/wire-reference.md: TOKENGAUGE_WRITE=1 renews it"
        );
    }
}
