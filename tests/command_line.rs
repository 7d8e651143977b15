//! The version, completions and manual pages of the real binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tokengauge::cli;

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
    assert_eq!(lines[2], format!("price list of {checked}"));
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
fn the_commit_comes_from_the_repository_or_the_archive() {
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
        let text = said(&["print", "completions", shell]);
        assert!(
            text.contains("bench") && text.contains("call-log"),
            "{shell}"
        );
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tokengauge.bash");
    std::fs::write(&path, said(&["print", "completions", "bash"])).expect("written");
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
    let page = said(&["print", "man"]);
    assert!(
        page.contains(".TH tokengauge 1") && page.contains("\\-\\-upstream"),
        "{page}"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    assert_eq!(said(&["print", "man", pages.to_str().expect("UTF-8")]), "");
    for name in [
        "tokengauge",
        "tokengauge-check",
        "tokengauge-slo-test",
        "tokengauge-print-record",
    ] {
        let text = std::fs::read_to_string(pages.join(format!("{name}.1"))).expect(name);
        assert!(text.contains(".SH SYNOPSIS"), "{name}");
    }
}

fn help(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(words).arg("--help").output().expect("it runs")
}

#[test]
fn the_help_lists_few_commands() {
    let commands = cli::command();
    let visible = commands.get_subcommands().filter(|one| !one.is_hide_set());
    let visible: Vec<_> = visible.map(clap::Command::get_name).collect();
    assert!(visible.len() <= 16, "{visible:?}");
    let text = said(&["--help"]);
    for name in &visible {
        let listed = text
            .lines()
            .any(|line| line.starts_with(&format!("  {name} ")));
        assert!(listed, "{name}: {text}");
    }
    for hidden in ["probe", "pause", "ab", "capsule", "mark", "sim"] {
        assert!(!visible.contains(&hidden), "{hidden}");
    }
    assert!(help(&["probe"]).status.success() && help(&["pause"]).status.success());
}

#[test]
fn every_old_command_name_works_and_names_the_new_one() {
    for (old, new) in cli::RENAMED {
        let old_words: Vec<&str> = old.split(' ').collect();
        let new_words: Vec<&str> = new.split(' ').collect();
        let (before, now) = (help(&old_words), help(&new_words));
        assert!(now.status.success() && now.stderr.is_empty(), "{now:?}");
        assert_eq!(before.stdout, now.stdout, "{old}");
        let note = format!(
            "`tokengauge {old}` is now `tokengauge {new}`; version 0.4 removes the old name\n"
        );
        assert_eq!(String::from_utf8_lossy(&before.stderr), note, "{old}");
    }
    let before = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
        .args(["help", "ab"])
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&before.stdout);
    assert!(text.contains("tokengauge experiment"), "{text}");
    // Options and their values are not commands.
    let quiet = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
        .args(["slo", "import", "metrics"])
        .output()
        .expect("it runs");
    let stderr = String::from_utf8_lossy(&quiet.stderr);
    assert!(!stderr.contains("is now"), "{stderr}");
}

fn each_command(command: &clap::Command, path: &str, see: &mut dyn FnMut(&str, &clap::Command)) {
    see(path, command);
    for one in command.get_subcommands() {
        each_command(one, &format!("{path} {}", one.get_name()), see);
    }
}

#[test]
fn formats_have_the_same_names_everywhere_and_one_default_for_each_kind_of_output() {
    /// Format names for terminals and programs, documents, calls, and Prometheus.
    const KINDS: [(&str, &[&str]); 4] = [
        (
            "text",
            &[
                "text", "markdown", "json", "html", "csv", "junit", "github", "perfetto", "otlp",
            ],
        ),
        ("markdown", &["markdown", "json"]),
        ("jsonl", &["jsonl", "parquet", "csv", "mooncake", "weka"]),
        ("file", &["file", "operator", "helm", "alertmanager"]),
    ];
    let mut commands = cli::command();
    commands.build();
    let mut seen = Vec::new();
    each_command(&commands, "tokengauge", &mut |path, command| {
        let option = |name: &str| {
            command
                .get_arguments()
                .find(|argument| argument.get_long() == Some(name))
        };
        let Some(format) = option("format") else {
            return;
        };
        let default = format.get_default_values()[0].to_str().expect("UTF-8");
        let kind = KINDS.iter().find(|(first, _)| *first == default);
        let (_, known) = kind.unwrap_or_else(|| panic!("{path}: {default}"));
        let names: Vec<_> = format.get_possible_values();
        for value in &names {
            let name = value.get_name();
            assert!(known.contains(&name), "{path}: {name}");
        }
        let has_json = names.iter().any(|value| value.get_name() == "json");
        assert_eq!(has_json, option("json").is_some(), "{path}");
        if default == "text" {
            let table = names.iter().any(|value| value.matches("table", false));
            assert!(table, "{path} takes the name of 0.2");
        }
        seen.push(path.to_owned());
    });
    assert!(seen.len() >= 14, "{seen:?}");
}

#[test]
fn the_keys_of_the_configuration_are_lines_of_json() {
    let lines = said(&["print", "keys", "--json"]);
    let keys = lines.lines().map(|line| -> serde_json::Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let keys: Vec<_> = keys.collect();
    let of = |table: &str, key: &str| {
        let found = keys
            .iter()
            .find(|one| one["table"] == table && one["key"] == key);
        found.unwrap_or_else(|| panic!("{table} {key}"))
    };
    assert_eq!(
        of("[[slo]]", "ttft.at_most")["description"],
        "A call is good if its first token arrives within this time, such as `500ms`."
    );
    assert_eq!(of("[[upstream]]", "name")["required"], true);
    assert_eq!(of("", "drain_timeout")["default"], "25s");
    let rows = said(&["print", "keys"]);
    let rows = rows.lines().filter(|line| line.starts_with("| `"));
    assert_eq!(rows.count(), keys.len());
}

fn files(path: &Path, found: &mut Vec<PathBuf>) {
    let kind = std::fs::symlink_metadata(path).expect("there is one");
    if kind.is_file() {
        found.push(path.to_owned());
    } else if kind.is_dir() {
        for entry in std::fs::read_dir(path).expect("a folder") {
            files(&entry.expect("an entry").path(), found);
        }
    }
}

#[test]
fn no_document_has_an_old_name_of_a_command() {
    const READ: [&str; 12] = [
        "README.md",
        "SECURITY.md",
        "Makefile",
        "Dockerfile",
        "proxy-config.toml",
        "proxy-config.schema.json",
        "docs",
        "helm",
        "examples",
        "dashboards",
        "src",
        "crates",
    ];
    /// These files explain the old names.
    const ABOUT_NAMES: [&str; 2] = ["docs/upgrade.md", "src/cli/renamed.rs"];
    let mut found = Vec::new();
    for path in READ {
        files(Path::new(path), &mut found);
    }
    let mut read = 0;
    for path in found {
        let about_names = ABOUT_NAMES.iter().any(|name| path == Path::new(name));
        // Skip pictures.
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        if about_names {
            continue;
        }
        read += 1;
        for (old, new) in cli::RENAMED {
            for before in ["tokengauge", "cargo run --release --"] {
                let name = format!("{before} {old}");
                let mut places = text.match_indices(&name);
                let whole = places.any(|(at, _)| {
                    let next = text[at + name.len()..].chars().next();
                    !next.is_some_and(|next| next.is_alphanumeric() || "-_./".contains(next))
                });
                let path = path.display();
                assert!(!whole, "{path}: `{name}` is `tokengauge {new}`");
            }
        }
    }
    assert!(read > 300, "{read}");
    let upgrade = include_str!("../docs/upgrade.md");
    for (old, new) in cli::RENAMED.iter().filter(|(old, _)| *old != "config") {
        let row = format!("| `tokengauge {old}` | `tokengauge {new}` |");
        assert!(upgrade.contains(&row), "{row}");
    }
}
