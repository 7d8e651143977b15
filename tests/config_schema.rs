//! Configuration keys are defined once: reference, schema, defaults and messages must agree. An independent validator
//! must accept and refuse the same files as the program.

use jsonschema::Validator;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tokengauge_config::{Config, json_schema, reference};
use tokengauge_core::upstream_facts::UpstreamFacts;
use toml::Table;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const EXAMPLE: &str = include_str!("../proxy-config.toml");
const SMALLEST: &str =
    "[[upstream]]\nname = \"e\"\nurl = \"http://h\"\n[[route]]\nupstream = \"e\"\n";
/// One of every table, with the keys that depend on each other.
const EVERY_TABLE: &str = r#"
[ledger]
path = "/ledger"
[[upstream]]
name = "u"
url = "http://127.0.0.1:1"
gpu_usd_per_hour = 1
metrics_url = "http://127.0.0.1:1"
[[route]]
upstream = "u"
[[workload]]
name = "w"
[[price]]
model = "m"
input = 1
[[budget]]
name = "b"
usd = 1
block = true
[[quota]]
name = "q"
concurrent = 1
[quota_store]
url = "redis://127.0.0.1:1"
[[slo]]
name = "t"
throughput.at_least = 900
select.upstream = "u"
[[slo]]
name = "s"
slice = "5m"
availability = true
[[drift]]
name = "d"
[[agent]]
name = "a"
path = "/a"
[[payer]]
team = "p"
path = "/p"
[[gate]]
name = "g"
candidate.upstream = "u"
baseline.route = "u"
ttft_above = "1s"
tps_below = 1
[[sink]]
kind = "clickhouse"
url = "http://127.0.0.1:1"
[[notify]]
kind = "webhook"
url = "http://127.0.0.1:1"
[[experiment]]
name = "e"
route = "u"
arms = [{ name = "a", upstream = "u" }, { name = "b", upstream = "u" }]
"#;

fn validator() -> Validator {
    jsonschema::draft202012::new(&json_schema()).expect("a schema")
}

fn json(text: &str) -> Option<Value> {
    let table: Table = text.parse().ok()?;
    serde_json::to_value(table).ok()
}

/// Compares a generated file with the file in the repository.
fn compare(name: &str, now: String) {
    let path = Path::new(ROOT).join(name);
    if std::env::var_os("TOKENGAUGE_WRITE").is_some() {
        fs::write(&path, &now).expect("written");
    }
    let there = fs::read_to_string(&path).expect("readable");
    assert!(there == now, "{name}: TOKENGAUGE_WRITE=1 renews it");
}

#[test]
fn the_reference_is_what_the_command_prints() {
    let document =
        fs::read_to_string(Path::new(ROOT).join("docs/configuration.md")).expect("readable");
    let (before, rest) = document.split_once("config_schema -->\n").expect("a mark");
    let (_, after) = rest.split_once("<!-- end of keys -->").expect("a mark");
    let now = format!(
        "{before}config_schema -->\n\n{}\n<!-- end of keys -->{after}",
        reference()
    );
    compare("docs/configuration.md", now);
}

#[test]
fn the_published_schema_is_what_the_command_prints() {
    let now = serde_json::to_string_pretty(&json_schema()).expect("JSON") + "\n";
    compare("proxy-config.schema.json", now);
    assert!(EXAMPLE.starts_with("#:schema ./proxy-config.schema.json\n"));
    jsonschema::draft202012::meta::validate(&json_schema()).expect("a schema of draft 2020-12");
}

#[test]
fn the_document_of_the_contributor_shows_a_key_as_it_is() {
    let document = include_str!("../docs/contributing.md");
    let section = document.split("## Adding a configuration key").nth(1);
    let code = section
        .and_then(|section| section.split("```rust,ignore\n").nth(1))
        .expect("an example");
    let code = code.split("```").next().unwrap_or_default();
    assert!(include_str!("../crates/config/src/file/process.rs").contains(code));
    let row = "| `max_models` | integer, at most 10000 | `200` | Distinct model names that become \
               labels; the rest are `other`. |\n";
    assert!(reference().contains(row));
    let schema = json_schema();
    let schema = &schema["properties"]["measure"]["properties"]["max_models"];
    assert_eq!(
        (&schema["default"], &schema["maximum"]),
        (&200.into(), &10_000.into())
    );
    let text = "[measure]\nmax_models = 10001\nmax_modles = 5\nmax_models_ = \"x\"\n";
    let said = Config::parse(text, "c.toml")
        .expect_err("refused")
        .to_string();
    assert!(said.contains(
        "c.toml:2:14: max_models: must be at most 10000: each model becomes a set of series\n\
         c.toml:3:1: max_modles: unknown field `max_modles`; did you mean `max_models`?"
    ));
    assert!(document.contains("must be at most 10000: each model becomes a set of series"));
}

/// The example configuration with every commented key enabled.
fn uncommented() -> String {
    let lines = EXAMPLE.lines().map(|line| {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        let is_key = bare.split_once(" = ").is_some_and(|(key, _)| {
            key.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.".contains(c))
        });
        match (is_key || bare.starts_with('['), bare) {
            (true, bare) if !bare.contains("at the top of the file") => bare,
            _ => "",
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn keys(prefix: &str, value: &toml::Value, found: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) if !prefix.ends_with(".headers") => {
            for (key, value) in table {
                let dot = if prefix.is_empty() { "" } else { "." };
                keys(&format!("{prefix}{dot}{key}"), value, found);
            }
        }
        toml::Value::Array(all) if all.first().is_some_and(toml::Value::is_table) => {
            all.iter().for_each(|one| keys(prefix, one, found));
        }
        _ => drop(found.insert(prefix.to_owned())),
    }
}

/// Collects every key of the schema as a dotted path, with its schema.
fn schema_keys(prefix: &str, schema: &Value, found: &mut Vec<(String, Value)>) {
    let table = [schema, &schema["items"]];
    let table = table.iter().find(|one| one["properties"].is_object());
    let Some(properties) = table.and_then(|table| table["properties"].as_object()) else {
        return found.push((prefix.to_owned(), schema.clone()));
    };
    for (key, schema) in properties {
        let dot = if prefix.is_empty() { "" } else { "." };
        schema_keys(&format!("{prefix}{dot}{key}"), schema, found);
    }
}

fn all_keys() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    schema_keys("", &json_schema(), &mut found);
    found
}

/// Every key of the reference as a dotted path.
fn referenced() -> BTreeSet<String> {
    let (mut section, mut found) = (String::new(), BTreeSet::new());
    for line in reference().lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            section = match heading.trim_matches(['`', '[', ']']) {
                "At the top of the file" => String::new(),
                table => format!("{table}."),
            };
        }
        if let Some(row) = line.strip_prefix("| `") {
            let key = row.split('`').next().unwrap_or_default();
            assert!(!row.contains("|  |\n"), "{row}");
            found.insert(format!("{section}{key}"));
        }
    }
    found
}

#[test]
fn every_key_of_the_schema_and_of_the_example_is_in_the_reference() {
    let referenced = referenced();
    let schema: BTreeSet<_> = all_keys().into_iter().map(|(key, _)| key).collect();
    assert_eq!(referenced, schema);
    assert!(schema.len() > 150, "{}", schema.len());
    let mut shown = BTreeSet::new();
    let example: Table = uncommented().parse().expect("TOML");
    keys("", &toml::Value::Table(example), &mut shown);
    let strange: Vec<_> = shown.difference(&schema).collect();
    assert!(strange.is_empty(), "{strange:?}");
    assert!(shown.len() > 120, "{}", shown.len());
}

#[test]
fn every_key_has_a_description_and_facts_match_upstreams() {
    for (key, schema) in all_keys() {
        let text = schema["description"].as_str().unwrap_or_default();
        assert!(
            text.len() > 5 && text.ends_with(['.', ')']),
            "{key}: {text}"
        );
    }
    let schema = json_schema();
    let facts = &schema["properties"]["upstream"]["items"]["properties"]["facts"];
    let facts = facts["properties"].as_object().expect("facts");
    assert!(facts.keys().eq(UpstreamFacts::NAMES));
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The string literals of Rust source, except raw strings.
fn literals(source: &str) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), None::<String>);
    let mut signs = source.chars().peekable();
    while let Some(sign) = signs.next() {
        match (sign, &mut open) {
            ('"', None) => open = Some(String::new()),
            ('"', Some(_)) => found.extend(open.take()),
            ('\\', Some(text)) => match signs.next() {
                Some('n') => text.push('\n'),
                // The string continues after the leading blanks of the next line.
                Some('\n') => while signs.next_if(|next| next.is_whitespace()).is_some() {},
                other => text.extend(other),
            },
            (sign, Some(text)) => text.push(sign),
            (_, None) => {}
        }
    }
    found
}

/// Texts in tests, sources, documents and the chart that may be a configuration or a part of one.
fn candidates() -> Vec<String> {
    let mut paths = Vec::new();
    for folder in ["src", "tests", "docs", "helm", "fuzz/corpus/config"] {
        let folder = Path::new(ROOT).join(folder);
        if folder.exists() {
            files(&folder, &mut paths);
        }
    }
    let mut found = vec![EXAMPLE.to_owned(), EVERY_TABLE.to_owned()];
    for path in paths {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let marks = match path.extension().and_then(|end| end.to_str()) {
            Some("rs") => {
                found.extend(literals(&text));
                [("r#\"", "\"#"), ("\"\"\"", "\"\"\"")]
            }
            Some("md" | "py") => [("```toml", "```"), ("\"\"\"", "\"\"\"")],
            _ => {
                found.push(text);
                continue;
            }
        };
        for (begin, end) in marks {
            let parts = text.split(begin).skip(1);
            found.extend(
                parts
                    .filter_map(|part| part.split(end).next())
                    .map(str::to_owned),
            );
        }
    }
    found
}

#[test]
fn what_the_program_accepts_the_schema_accepts() {
    let validator = validator();
    let mut accepted = BTreeSet::new();
    for text in candidates() {
        // A part may belong before the tables or after them.
        let whole = [
            text.clone(),
            format!("{text}\n{SMALLEST}"),
            format!("{SMALLEST}{text}"),
        ];
        let valid = |text: &&String| !text.is_empty() && Config::parse(text, "test").is_ok();
        let Some(text) = whole.iter().find(valid) else {
            continue;
        };
        let document = json(text).expect("TOML");
        let errors: Vec<_> = validator.iter_errors(&document).collect();
        assert!(errors.is_empty(), "{errors:?} in {text}");
        accepted.insert(text.clone());
    }
    assert!(accepted.len() > 100, "{}", accepted.len());
    let example = json(&uncommented()).expect("TOML");
    let errors: Vec<_> = validator.iter_errors(&example).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn what_the_schema_refuses_the_program_refuses_with_line_and_key() {
    let validator = validator();
    let rest = EVERY_TABLE;
    for (line, key, said) in [
        ("listn = 1", "listn", "did you mean `listen`?"),
        ("listen = 5", "listen", "an address such as"),
        ("drain_timeout = \"soon\"", "drain_timeout", "250ms"),
        ("admin.hots = []", "admin.hots", "did you mean `hosts`?"),
        (
            "admin.enabled = 1",
            "admin.enabled",
            "must be `true` or `false`",
        ),
        (
            "limits.connections = 0",
            "limits.connections",
            "at least 1, or no agent",
        ),
        (
            "limits.connections = -1",
            "limits.connections",
            "at least 1",
        ),
        (
            "limits.head_bytes = 5",
            "limits.head_bytes",
            "at least 8KiB",
        ),
        ("limits.head_bytes = \"many\"", "limits.head_bytes", "64KiB"),
        (
            "limits.requests_per_minute = 0",
            "limits.requests_per_minute",
            "at least 1",
        ),
        (
            "measure.max_models = 10001",
            "measure.max_models",
            "at most 10000",
        ),
        (
            "measure.buffered_above = 0",
            "measure.buffered_above",
            "above 0",
        ),
        ("measure.zebra = 0", "measure.zebra", "expected one of"),
        (
            "otlp.conventions = \"v2\"",
            "otlp.conventions",
            "unknown variant",
        ),
    ] {
        let text = format!("{line}\n{rest}");
        let document = json(&text).expect("TOML");
        assert!(!validator.is_valid(&document), "{line}");
        let problems = Config::parse(&text, "test").expect_err(line).problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!((problems[0].line, &*problems[0].key), (Some(1), key));
        assert!(
            problems[0].reason.contains(said),
            "{line}: {}",
            problems[0].reason
        );
    }
    for (good, bad) in [
        ("usd = 1", "usd = 0"),
        ("usd = 1", "usd = nan"),
        ("kind = \"webhook\"", "kind = \"pigeon\""),
        ("kind = \"webhook\"", "kindly = \"webhook\""),
        ("path = \"/a\"", "path = \"/a\"\nport = 65536"),
        ("url = \"http", "url = \"ftp"),
        ("throughput.at_least = 900", "throughput.at_least = 0"),
        ("name = \"w\"", "name = \"\""),
        ("input = 1", "input = -1"),
        ("concurrent = 1", "tokens_per_minute = 0"),
        ("slice = \"5m\"", "slice = \"5m\"\nobjective = 1.5"),
        (
            "upstream = \"u\"\n[[work",
            "upstream = \"u\"\npath = \"a\"\n[[work",
        ),
    ] {
        let text = rest.replacen(good, bad, 1);
        assert_ne!(text, rest, "{good}");
        let document = json(&text).expect("TOML");
        assert!(!validator.is_valid(&document), "{bad}");
        let problems = Config::parse(&text, "test").expect_err(bad).problems;
        assert!(problems[0].line.is_some(), "{problems:?}");
    }
}

#[test]
fn bounds_of_durations_and_lists_match_the_definition() {
    for (line, said) in [
        (
            "ledger.retention_age = \"59m\"",
            "must be at least 1h, or nothing",
        ),
        (
            "ledger.retention_bytes = \"1MiB\"",
            "must be at least 16MiB, which",
        ),
        (
            "upstream = [{ name = \"u\", url = \"http://h\", timeouts = { send = \"0s\" } }]",
            "longer than 0s, or",
        ),
        (
            "slo = [{ preset = \"chat\", window = \"5m\" }]",
            "must be from 1h to 400days",
        ),
        (
            "slo = [{ name = \"s\", ttft = { at_most = \"0s\" } }]",
            "must be longer than 0s",
        ),
        (
            "budget = [{ name = \"b\", usd = 1, warn_at = [0] }]",
            "must be shares of the budget above 0",
        ),
        (
            "budget = [{ name = \"b\", usd = 1, warn_at = [1, 2, 3, 4, 5, 6, 7, 8, 9] }]",
            "there can be at most 8 entries",
        ),
    ] {
        let problems = Config::parse(&format!("\n{line}\n"), "test")
            .expect_err(line)
            .problems;
        let there = problems
            .iter()
            .find(|problem| problem.reason.contains(said));
        assert_eq!(there.expect(line).line, Some(2), "{problems:?}");
    }
}

#[test]
fn every_problem_is_found_at_once() {
    let text = "listn = 1\n[measure]\nmax_modles = 5\nmax_models = 10001\nhash_users = 3\n";
    let problems = Config::parse(text, "test").expect_err("refused").problems;
    let lines: Vec<_> = problems.iter().filter_map(|problem| problem.line).collect();
    assert_eq!(lines, [1, 3, 4, 5]);
    let columns: Vec<_> = problems
        .iter()
        .filter_map(|problem| problem.column)
        .collect();
    assert_eq!(columns, [1, 1, 14, 14]);
}

fn put(table: &mut Table, key: &str, value: &toml::Value) {
    let Some((first, rest)) = key.split_once('.') else {
        // `slice_target` needs `slice`, which `throughput` does not allow.
        if key != "slice_target" || table.contains_key("slice") {
            table.insert(key.to_owned(), value.clone());
        }
        return;
    };
    if first == "throughput" && !table.contains_key(first) {
        return;
    }
    match table
        .entry(first.to_owned())
        .or_insert_with(|| Table::new().into())
    {
        toml::Value::Table(inner) => put(inner, rest, value),
        toml::Value::Array(all) => all
            .iter_mut()
            .filter_map(toml::Value::as_table_mut)
            .for_each(|one| put(one, rest, value)),
        other => panic!("{first} is {other}"),
    }
}

fn resolved(table: &Table) -> String {
    let config = Config::parse(&table.to_string(), "test").expect("valid");
    format!(
        "{:?}",
        Config {
            digest: String::new(),
            redacted: "".into(),
            ..config
        }
    )
}

#[test]
fn defaults_that_are_stated_are_those_that_are_used() {
    let base: Table = EVERY_TABLE.parse().expect("TOML");
    let before = resolved(&base);
    let mut tried = 0;
    for (key, schema) in all_keys() {
        let Some(default) = schema.get("default") else {
            continue;
        };
        // A setting that depends on a switch is tried with the switch on.
        if key == "budget.block" {
            continue;
        }
        let default = toml::Value::try_from(default).expect("a value of TOML");
        let mut with = base.clone();
        put(&mut with, &key, &default);
        assert_ne!(with, base, "{key}");
        assert_eq!(resolved(&with), before, "{key} = {default}");
        tried += 1;
    }
    assert!(tried > 50, "{tried}");
}
