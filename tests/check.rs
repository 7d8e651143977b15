//! `tokengauge check`: every error at once with its place, warnings, and a summary of a valid file.

use std::process::{Command, Output};

fn check(text: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("c.toml"), text).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["check", "--config", "c.toml"]).args(more);
    command.current_dir(&folder).output().expect("it runs")
}

fn refused(text: &str) -> String {
    let output = check(text, &[]);
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

const ENGINE: &str = "[[upstream]]\nname = \"e\"\nurl = \"http://127.0.0.1:9\"\n\
                      [[route]]\nname = \"all\"\nupstream = \"e\"\n";

#[test]
fn every_mistake_has_its_line_and_column_and_plain_words() {
    let text = "drain_timeout = 30\n\
                [measure]\n\
                  buffered_above = \"many\"\n\
                max_models = 1.5\n\
                max_modles = 3\n\
                hash_users = \"yes\"\n\
                body_bytes = true\n";
    let error = refused(&format!("{text}{ENGINE}"));
    let expected = [
        "c.toml:1:17: drain_timeout: must be a duration such as \"30s\", not a whole number",
        "c.toml:3:18: buffered_above: must be a number, not text",
        "c.toml:4:14: max_models: must be a whole number, not a number with a fraction",
        "c.toml:5:1: max_modles: unknown field `max_modles`; did you mean `max_models`?",
        "c.toml:6:14: hash_users: must be `true` or `false`, not text",
        "c.toml:7:14: body_bytes: must be a size such as 65536 or \"64KiB\", not `true` or `false`",
    ];
    assert!(error.starts_with(&expected.join("\n")), "{error}");
    let large = refused(&format!(
        "{ENGINE}[limits]\nrequests_per_minute = 4294967296\n"
    ));
    let said = "c.toml:8:23: requests_per_minute: invalid value: integer `4294967296`, \
                expected a whole number from 1 to 4294967295";
    assert!(large.starts_with(said), "{large}");
    for name in ["f64", "u64", "usize", "u32", "boolean", "sequence"] {
        assert!(
            !error.contains(name) && !large.contains(name),
            "{name}: {error}"
        );
    }
}

#[test]
fn columns_count_characters_and_secrets_are_not_repeated() {
    let error = refused(&format!(
        "{ENGINE}[[workload]]\nname = \"é\"\nroute = [\"sesame\"]\n"
    ));
    assert!(error.starts_with("c.toml:9:9: route: must be text in quotes, not a list"));
    assert!(!error.contains("sesame"), "{error}");
    let error = refused("upstream = [{ name = \"é→\", url = 5 }]\n");
    assert!(error.contains("c.toml:1:34: "), "{error}");
}

#[test]
fn each_missing_file_is_named_with_the_line_of_its_key() {
    let text = format!(
        "{ENGINE}[tls]\ncertificate = \"no.crt\"\nkey = \"no.key\"\n\
         [[notify]]\nkind = \"slack\"\nurl_file = \"no.url\"\n"
    );
    let error = refused(&text);
    for place in [
        "c.toml:8:15: certificate: no.crt cannot be read: ",
        "c.toml:9:7: key: no.key cannot be read: ",
        "c.toml:12:12: url_file: no.url cannot be read: ",
    ] {
        assert!(error.contains(place), "{error}");
    }
    let header = format!("{ENGINE}[[workload]]\nname = \"w\"\nheaders = {{ key = \"x\" }}\n");
    assert!(check(&header, &[]).status.success());
}

#[test]
fn entries_that_no_call_can_reach_cause_warnings() {
    let route = |rest: &str| format!("[[route]]\nupstream = \"e\"\n{rest}\n");
    let workload = |rest: &str| format!("[[workload]]\nname = {rest}\n");
    let text = ENGINE.to_owned()
        + &route("name = \"v1\"\npath = \"/v1\"")
        + &route("name = \"again\"\nhost = \"h\"")
        + &workload("\"coders\"\nagent = \"coder*\"")
        + &workload("\"coders-h\"\nagent = \"coder*\"\nheaders = { x-a = \"1\" }")
        + "[[slo]]\nname = \"never\"\navailability = true\nobjective = 1\n";
    let output = check(&text, &[]);
    assert!(output.status.success(), "{output:?}");
    let warnings = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = warnings.lines().collect();
    assert_eq!(lines.len(), 4, "{warnings}");
    assert!(
        lines[0].starts_with(
            "warning: c.toml:9:8: name: this route gets no calls: route `all` in line 5"
        )
    );
    assert!(
        lines[1].starts_with("warning: c.toml:13:8: name: this route gets no calls: route `all`")
    );
    assert!(lines[2].starts_with(
        "warning: c.toml:19:8: name: this workload gets no calls: workload `coders` in line 16"
    ));
    assert!(lines[3].starts_with("warning: c.toml:25:13: objective: has no error budget"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.starts_with("c.toml: valid, with 4 warnings\n"),
        "{said}"
    );
    assert_eq!(check(&text, &["--strict"]).status.code(), Some(1));
}

#[test]
fn a_deprecated_key_is_a_warning_with_what_to_set_instead() {
    let output = check(&format!("{ENGINE}[runaway]\ntimes_usual = 10\n"), &[]);
    assert!(output.status.success(), "{output:?}");
    let warning = String::from_utf8_lossy(&output.stderr);
    assert!(
        warning.starts_with("warning: c.toml:8:15: times_usual: is deprecated"),
        "{warning}"
    );
    assert!(warning.contains("set tokens_per_minute and usd_per_minute"));
}

#[test]
fn routes_that_differ_in_host_path_or_header_cause_no_warning() {
    let text = "[[upstream]]\nname = \"e\"\nurl = \"http://127.0.0.1:9\"\n".to_owned()
        + "[[route]]\nname = \"a\"\nupstream = \"e\"\npath = \"/v1\"\nhost = \"h\"\n"
        + "[[route]]\nname = \"b\"\nupstream = \"e\"\npath = \"/v1\"\n"
        + "[[route]]\nname = \"c\"\nupstream = \"e\"\npath = \"/v10\"\nheaders = { x-a = \"1\" }\n"
        + "[[route]]\nname = \"d\"\nupstream = \"e\"\npath = \"/v10\"\nheaders = { x-a = \"2\" }\n"
        + "[[workload]]\nname = \"x\"\nmodel = \"gpt*\"\n[[workload]]\nname = \"y\"\nmodel = \"gpt-5\"\n"
        + "[[slo]]\nname = \"s\"\navailability = true\nobjective = 0.999\n";
    let output = check(&text, &["--strict"]);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[test]
fn a_valid_file_is_summed_up() {
    let text = format!(
        "state_dir = \"state\"\n{ENGINE}\
         [[workload]]\nname = \"chat\"\nagent = \"chat/*\"\n\
         [[slo]]\nname = \"fast\"\nttft.at_most = \"500ms\"\nobjective = 0.95\nwindow = \"7d\"\n\
         [[notify]]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:9/secret\"\nseverity = \"page\"\n\
         [[quota]]\nname = \"q\"\nconcurrent = 3\n\
         [ledger]\nretention_age = \"3d\"\n"
    );
    let output = check(&text, &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    for line in [
        "  workload chat: agent chat/*\n",
        "  objective fast: ",
        ", 95 % over 7days\n",
        "  receiver webhook (webhook): alerts of severity page\n",
        "  quota q, per all: refuses with 429; ",
        "  ledger state/ledger.sqlite: calls of the last 3days, at most 2000 MB\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("secret"), "{said}");
    let plain = check(ENGINE, &[]);
    let said = String::from_utf8_lossy(&plain.stdout);
    assert!(
        said.contains("no ledger: finished calls are only in memory"),
        "{said}"
    );
}

#[test]
fn values_without_a_configuration_are_valid_and_use_the_built_in_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |yaml: &str| {
        std::fs::write(folder.path().join("values.yaml"), yaml).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(["check", "--config", "values.yaml"]);
        command.current_dir(&folder).output().expect("it runs")
    };
    for yaml in [
        "mode: sidecar\n",
        "gateway: { replicas: 3 }\nconfig: \"\"\n",
        "# Defaults.\n",
        "mode: gateway\nexistingConfigMap: \"\"\n",
    ] {
        let output = check(yaml);
        assert!(output.status.success(), "{yaml}: {output:?}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.starts_with("values.yaml: valid\n"), "{said}");
        assert!(
            said.contains("  openai: /openai/… → https://api.openai.com\n"),
            "{said}"
        );
    }
    let engine: String = ENGINE.lines().map(|line| format!("  {line}\n")).collect();
    let state = format!("config: |\n  state_dir = \"/proc/no\"\n{engine}");
    let output = check(&state);
    assert!(output.status.success(), "it is in the pod: {output:?}");
    for (yaml, reason) in [
        ("conifg: x = 1\n", "`conifg` is not a value of the chart"),
        ("existingConfigMap: ours\n", "in the ConfigMap `ours`"),
    ] {
        let output = check(yaml);
        assert_eq!(output.status.code(), Some(78), "{yaml}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(reason), "{said}");
    }
}

/// Paths to create in a folder, each with the text of a file, or a folder if there is no text.
type Made = &'static [(&'static str, Option<&'static str>)];

#[test]
fn what_run_refuses_at_its_start_is_refused_here_with_the_same_words() {
    let objective = "[[slo]]\nname = \"up\"\navailability = true\nobjective = 0.9\n";
    let cases: [(Made, String); 8] = [
        (&[("file", Some(""))], "state_dir = \"file\"\n".to_owned()),
        (
            &[("file", Some(""))],
            "state_dir = \"file/state\"\n".to_owned(),
        ),
        (&[], "state_dir = \"/proc/no\"\n".to_owned()),
        (
            &[("state/slo-state.lock", None)],
            "state_dir = \"state\"\n".to_owned(),
        ),
        (
            &[("state/spending.json", None)],
            "state_dir = \"state\"\n".to_owned(),
        ),
        (
            &[("state/slo-audit.jsonl", None)],
            format!("state_dir = \"state\"\n{objective}"),
        ),
        (
            &[("url", Some("\n"))],
            "[[notify]]\nkind = \"slack\"\nurl_file = \"url\"\n".to_owned(),
        ),
        (
            &[("ca.pem", Some("none"))],
            "[quota_store]\nurl = \"rediss://127.0.0.1:9\"\ntls = { ca = \"ca.pem\" }\n".to_owned(),
        ),
    ];
    for (made, text) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, content) in made {
            let path = folder.path().join(path);
            let above = path.parent().expect("a folder");
            std::fs::create_dir_all(above).expect("made");
            match content {
                Some(content) => std::fs::write(path, content).expect("written"),
                None => std::fs::create_dir(path).expect("made"),
            }
        }
        // Top-level keys must come before tables.
        let any = "listen = \"127.0.0.1:0\"\n";
        let text = format!("{any}{text}[admin]\n{any}{ENGINE}");
        std::fs::write(folder.path().join("c.toml"), &text).expect("written");
        let of = |command: &str| {
            let mut process = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
            process.args([command, "--config", "c.toml"]);
            process.current_dir(&folder).output().expect("it runs")
        };
        let before = listed(folder.path());
        let checked = of("check");
        assert_eq!(checked.status.code(), Some(78), "{text}: {checked:?}");
        assert_eq!(listed(folder.path()), before, "it leaves nothing: {text}");
        let ran = of("run");
        assert_eq!(ran.status.code(), Some(78), "{text}: {ran:?}");
        let words = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
        let (ran, checked) = (words(&ran), words(&checked));
        assert!(ran.contains(checked.trim_end()), "{checked}: {ran}");
    }
}

fn listed(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(listed(&path));
        }
        all.push(path);
    }
    all.sort();
    all
}

#[test]
fn a_sink_that_run_refuses_is_refused() {
    let sink = "[[sink]]\nkind = \"clickhouse\"\nurl = \"https://127.0.0.1:9\"\ntls = { ca = \"c.toml\" }\n";
    let error = refused(&format!("{ENGINE}{sink}"));
    assert!(error.contains("sink clickhouse: "), "{error}");
}

#[test]
fn a_state_folder_that_could_be_made_is_not_made_and_a_ledger_that_could_not_is_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |text: &str| {
        std::fs::write(folder.path().join("c.toml"), text).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(["check", "--config", "c.toml", "--strict"]);
        command.current_dir(&folder).output().expect("it runs")
    };
    let output = check(&format!("state_dir = \"deep/state\"\n{ENGINE}"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(listed(folder.path()).len(), 1, "the configuration");
    for path in ["c.toml/ledger.sqlite", "/proc/no/ledger.sqlite", "."] {
        let output = check(&format!("[ledger]\npath = \"{path}\"\n{ENGINE}"));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let warning = format!("warning: c.toml: ledger {path}: ");
        assert!(said.starts_with(&warning), "{said}");
        assert!(said.contains("finished calls cannot be stored"), "{said}");
    }
    assert_eq!(listed(folder.path()).len(), 1);
}

#[test]
fn slips_in_objectives_have_the_key_that_was_meant() {
    for (line, expected) in [
        (
            "tps.at_least = 30",
            "c.toml:9:1: tps.at_least: unknown field `tps`; did you mean `output_tps.at_least`?",
        ),
        (
            "time_to_first_token.at_most = \"1s\"",
            "unknown field `time_to_first_token`; did you mean `ttft.at_most`?",
        ),
        (
            "error_rate = 0.01",
            "unknown field `error_rate`; did you mean `availability`?",
        ),
        (
            "ttft = \"500ms\"",
            "c.toml:9:8: ttft: must say which side is good: write `ttft.at_most = \"500ms\"`",
        ),
        ("output_tps = 30", "write `output_tps.at_least = 30`"),
        ("ttft = \"sesame\"", "ttft: must be a table, not text"),
    ] {
        let error = refused(&format!("{ENGINE}[[slo]]\nname = \"s\"\n{line}\n"));
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn programs_get_the_problems_and_the_summary_as_json() {
    let json = |output: &Output| -> serde_json::Value {
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    let output = check(ENGINE, &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let answer = json(&output);
    assert_eq!(answer["valid"], true);
    assert_eq!(answer["configuration"], "c.toml");
    assert!(
        answer["summary"].to_string().contains("all: "),
        "{answer:#}"
    );
    let output = check(
        &format!("{ENGINE}[measure]\nmax_modles = 3\n"),
        &["--format", "json"],
    );
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let answer = json(&output);
    assert_eq!(answer["valid"], false);
    let problem = &answer["problems"][0];
    assert_eq!(
        (&problem["line"], &problem["column"], &problem["key"]),
        (&8.into(), &1.into(), &"max_modles".into())
    );
}
