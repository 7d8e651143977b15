//! The README's references are those of the code.

use clap::CommandFactory;
use tokengauge::cli::Cli;
use tokengauge::export::names;

const README: &str = include_str!("../README.md");

#[test]
fn every_metric_is_in_the_readme_with_its_meaning() {
    for metric in names::ALL {
        let row = README
            .lines()
            .find(|line| line.starts_with(&format!("| `{}` |", metric.name)));
        let row = row.unwrap_or_else(|| panic!("no row for {}", metric.name));
        assert!(row.ends_with(&format!("{} |", metric.help)), "{row}");
    }
    let rows = README
        .lines()
        .filter(|line| line.starts_with("| `tokengauge_"));
    let ours = |name: &str| names::ALL.iter().any(|metric| metric.name == name);
    for row in rows {
        let name = row.split('`').nth(1).unwrap_or_default();
        assert!(ours(name), "{name} is no metric");
    }
}

#[test]
fn every_command_is_in_the_readme() {
    for command in Cli::command().get_subcommands() {
        let name = format!("`tokengauge {}", command.get_name());
        assert!(README.contains(&name), "{name}");
    }
}
