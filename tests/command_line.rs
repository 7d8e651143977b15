//! The version, completions and manual pages of the real binary.

use std::path::Path;
use std::process::Command;

#[path = "../build.rs"]
#[allow(dead_code)]
mod build_script;

fn said(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    let output = command.args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_version_has_commit_and_the_day_of_the_prices() {
    let long = said(&["--version"]);
    let lines: Vec<_> = long.lines().collect();
    let name = concat!("tokengauge ", env!("CARGO_PKG_VERSION"));
    assert_eq!((lines[0], lines.len()), (name, 3), "{long}");
    assert!(lines[1].starts_with("commit "), "{long}");
    let table: toml::Table =
        toml::from_str(include_str!("../crates/accounting/src/cost/prices.toml")).expect("TOML");
    let checked = table["checked"].as_str().expect("a day");
    assert_eq!(lines[2], format!("list of prices of {checked}"));
    assert_eq!(said(&["-V"]), format!("{name}\n"));
}

fn git(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new("git");
    command.current_dir(folder).args(arguments);
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "n");
        command.env(format!("GIT_{who}_EMAIL"), "e");
        command.env(format!("GIT_{who}_DATE"), "2026-01-31T12:00:00Z");
    }
    let output = command.output().expect("git");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output.stdout
}

#[test]
fn the_commit_is_that_of_the_repository_or_of_the_archive() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    assert_eq!(build_script::of_repository(path), None, "no repository");
    git(path, &["init", "-q"]);
    assert_eq!(build_script::of_repository(path), None, "no commit");
    std::fs::create_dir(path.join("release")).expect("made");
    for name in ["release/commit.txt", ".gitattributes"] {
        std::fs::copy(name, path.join(name)).expect("copied");
    }
    git(path, &["add", "."]);
    git(path, &["commit", "-q", "-m", "m"]);
    let commit = build_script::of_repository(path).expect("a commit");
    let hash = String::from_utf8(git(path, &["rev-parse", "HEAD"])).expect("UTF-8");
    assert_eq!(commit, format!("{} of 2026-01-31", &hash[..12]));
    std::fs::create_dir(path.join("within")).expect("made");
    let within = build_script::of_repository(&path.join("within"));
    assert_eq!(within, None, "a repository around it is another");

    let tree = std::fs::read_to_string("release/commit.txt").expect("read");
    assert_eq!(build_script::archived(&tree), None, "the tree itself");
    git(path, &["archive", "--output", "a.tar", "HEAD"]);
    let mut tar = Command::new("tar");
    let tar = tar
        .current_dir(path)
        .args(["-xOf", "a.tar", "release/commit.txt"]);
    let text = tar.output().expect("tar").stdout;
    let archived = build_script::archived(&String::from_utf8_lossy(&text)).expect("a commit");
    let (short, day) = archived.split_once(" of ").expect("two parts");
    assert!(hash.starts_with(short) && day == "2026-01-31", "{archived}");
}

#[test]
fn every_shell_has_completions_that_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = said(&["completions", shell]);
        assert!(
            text.contains("bench") && text.contains("call-log"),
            "{shell}"
        );
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tokengauge.bash");
    std::fs::write(&path, said(&["completions", "bash"])).expect("written");
    let script = format!(
        "source {} && COMP_WORDS=(tokengauge che) COMP_CWORD=1 && \
         _tokengauge tokengauge che tokengauge && echo ${{COMPREPLY[@]}}",
        path.display()
    );
    let output = Command::new("bash").args(["-c", &script]).output();
    let output = output.expect("bash");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "check\n",
        "{output:?}"
    );
}

#[test]
fn every_command_has_a_manual_page() {
    let page = said(&["man"]);
    assert!(
        page.contains(".TH tokengauge 1") && page.contains("\\-\\-upstream"),
        "{page}"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    assert_eq!(said(&["man", pages.to_str().expect("UTF-8")]), "");
    for name in ["tokengauge", "tokengauge-check", "tokengauge-slo-test"] {
        let text = std::fs::read_to_string(pages.join(format!("{name}.1"))).expect(name);
        assert!(text.contains(".SH SYNOPSIS"), "{name}");
    }
}
