//! Generated references in the documents match the code, and links have targets.

use clap::CommandFactory;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use strum::VariantArray;
use tokengauge::cli::Cli;
use tokengauge_core::dimension::DIMENSIONS;
use tokengauge_core::observer::FailureKind;
use tokengauge_telemetry::export::names;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const API: &str = include_str!("../docs/api.md");
const CONFIGURATION: &str = include_str!("../docs/configuration.md");
const METRICS: &str = include_str!("../docs/metrics.md");
const GETTING_STARTED: &str = include_str!("../docs/cli.md");
const README: &str = include_str!("../README.md");
const SUMMARY: &str = include_str!("../docs/SUMMARY.md");

#[test]
fn every_metric_is_in_the_reference_with_its_meaning() {
    for metric in names::all() {
        let row = METRICS
            .lines()
            .find(|line| line.starts_with(&format!("| `{}` |", metric.name)))
            .unwrap_or_else(|| panic!("no row for {}", metric.name));
        assert!(row.ends_with(&format!("{} |", metric.help)), "{row}");
    }
    let rows = METRICS
        .lines()
        .filter(|line| line.starts_with("| `tokengauge_"));
    let ours = |name: &str| names::all().any(|metric| metric.name == name);
    for row in rows {
        let name = row.split('`').nth(1).unwrap_or_default();
        assert!(ours(name), "{name} is no metric");
    }
}

#[test]
fn every_dimension_is_in_the_reference_as_the_program_has_it() {
    let rows = DIMENSIONS.iter().map(|row| {
        let filter = if row.filter { "yes" } else { "" };
        let attribute = row.attribute.map(|name| format!("`{name}`"));
        let attribute = attribute.unwrap_or_default();
        format!(
            "| `{}` | {} | {filter} | {attribute} |",
            row.name, row.about
        )
    });
    let table = rows.collect::<Vec<_>>().join("\n");
    assert!(
        API.contains(&table),
        "docs/api.md needs these rows:\n{table}"
    );
}

#[test]
fn every_error_of_the_proxy_is_in_the_reference_with_its_status() {
    for kind in FailureKind::VARIANTS {
        let row = format!("| `{}` | {} |", kind.as_str(), kind.status().as_u16());
        assert!(CONFIGURATION.contains(&row), "{row}");
    }
}

#[test]
fn every_command_is_in_the_reference() {
    fn look(command: &clap::Command, path: &str) {
        for one in command.get_subcommands() {
            let path = format!("{path} {}", one.get_name());
            // Commands such as `print` do nothing without a subcommand.
            if !one.is_subcommand_required_set() {
                let name = format!("`{path}");
                assert!(GETTING_STARTED.contains(&name), "{name}");
            }
            look(one, &path);
        }
    }
    look(&Cli::command(), "tokengauge");
}

#[test]
fn the_readme_can_be_read_to_its_end() {
    assert!(README.lines().count() <= 150);
    let block = README.split("```console\n").nth(1).unwrap_or_default();
    let block = block.split("```").next().unwrap_or_default();
    let commands: Vec<_> = block
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .collect();
    assert_eq!(commands, ["$ cargo run --release", "$ make test"]);
}

fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(Path::new(ROOT).join("docs")).expect("docs");
    let docs = docs.map(|entry| entry.expect("an entry").path());
    let mut pages: Vec<_> = docs
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .collect();
    pages.extend(
        [
            "README.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "CHANGELOG.md",
        ]
        .map(|page| Path::new(ROOT).join(page)),
    );
    pages
}

#[test]
fn every_page_is_in_the_summary() {
    for page in pages() {
        let name = page
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        let inside = page.parent().is_some_and(|folder| folder.ends_with("docs"));
        if inside && name != "SUMMARY.md" {
            assert!(SUMMARY.contains(&format!("]({name})")), "{name}");
        }
    }
}

/// The anchors of a page as GitHub and mdBook derive them from headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let heads = text.lines().filter(|line| line.starts_with('#'));
    heads
        .map(|head| {
            let head = head.trim_start_matches('#').trim().to_lowercase();
            let kept = head
                .chars()
                .filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter));
            kept.collect::<String>().replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut links = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("readable");
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap_or_default();
            if link.starts_with("http") || link.contains(char::is_whitespace) {
                continue;
            }
            links += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().expect("a folder").join(file),
            };
            let shown = page.display();
            assert!(target.exists(), "{shown}: {link}");
            if !anchor.is_empty() && target.extension().is_some_and(|ending| ending == "md") {
                let there = anchors(&fs::read_to_string(&target).expect("readable"));
                assert!(there.contains(anchor), "{shown}: {link}");
            }
        }
    }
    assert!(links > 100, "{links}");
}
