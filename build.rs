//! Finds the commit and its date for `--version`.

use std::env;
use std::path::Path;
use std::process::Command;

/// `git archive` replaces the placeholder in this file by the commit.
const ARCHIVED: &str = "release/commit.txt";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    set_commit();
}

fn set_commit() {
    println!("cargo::rerun-if-changed={ARCHIVED}");
    println!("cargo::rerun-if-env-changed=TOKENGAUGE_COMMIT");
    let given = env::var("TOKENGAUGE_COMMIT").ok();
    let given = given.filter(|given| !given.is_empty());
    let commit = given
        .or_else(|| archived(&std::fs::read_to_string(ARCHIVED).unwrap_or_default()))
        // Only for published builds, because a development build would be rebuilt after each commit.
        .or_else(|| match env::var("PROFILE").as_deref() {
            Ok("release") => of_repository(Path::new(".")),
            _ => None,
        })
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=TOKENGAUGE_COMMIT={commit}");
}

/// The commit that `git archive` wrote into a file, as `1234567 of 2026-01-31`.
pub fn archived(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && !text.contains("$Format")).then(|| text.to_owned())
}

/// The commit of the folder, if it is the root of a repository.
pub fn of_repository(folder: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        let output = command.current_dir(folder).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // Ignore a surrounding repository, such as one with a vendored copy.
    let prefix = git(&["rev-parse", "--show-prefix"])?;
    if !prefix.is_empty() {
        return None;
    }
    println!(
        "cargo::rerun-if-changed={}",
        git(&["rev-parse", "--git-path", "logs/HEAD"])?
    );
    git(&["log", "-1", "--format=%h of %cs", "--abbrev=12"])
}
