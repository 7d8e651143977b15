//! Bad configurations name the line and the key; good ones are what they say.

use std::time::Duration;
use tokengauge::config::{Config, Invalid, Problem};

const GOOD: &str = r#"
[[upstream]]
name = "engine"
url = "http://127.0.0.1:8000/v1/"

[[route]]
path = "/engine/"
upstream = "engine"
"#;

fn problems(text: &str) -> Vec<Problem> {
    let error: Invalid = Config::parse(text, "test.toml").expect_err("not valid");
    error.problems
}

fn only_problem(text: &str) -> (usize, String, String) {
    let mut problems = problems(text);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let problem = problems.remove(0);
    (problem.line.expect("a line"), problem.key, problem.reason)
}

#[test]
fn defaults_fill_what_is_not_written() {
    let config = Config::parse(GOOD, "test.toml").expect("valid");
    assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:8080");
    assert_eq!(
        config.admin.address.expect("on").to_string(),
        "127.0.0.1:9464"
    );
    assert_eq!(config.drain_timeout, Duration::from_secs(25));
    let route = &config.routes[0];
    assert_eq!(&*route.name, "engine");
    assert_eq!(route.matches.path_prefix, "/engine");
    assert!(route.strip_prefix);
    assert_eq!(route.upstream.endpoints[0].base_path, "/v1");
    assert_eq!(config.measure.min_output_tokens, 32);
}

/// The example with the defaults of its sections taken out of their comments.
fn spelled_out(text: &str) -> String {
    let mut section = "";
    let mut result = String::new();
    for line in text
        .lines()
        .take_while(|line| !line.starts_with("# Upstreams"))
    {
        if line.starts_with('[') {
            section = line;
        }
        let default = line.strip_prefix("# ").filter(|rest| rest.contains(" = "));
        let optional = line.contains("requests_per_minute");
        result.push_str(match default {
            Some(rest) if ["[limits]", "[measure]"].contains(&section) && !optional => rest,
            _ => line,
        });
        result.push('\n');
    }
    result + GOOD
}

#[test]
fn the_shipped_example_is_valid_and_its_comments_show_the_defaults() {
    let text = include_str!("../proxy-config.toml");
    let shipped = Config::parse(text, "proxy-config.toml").expect("valid");
    let prefixes: Vec<&str> = shipped
        .routes
        .iter()
        .map(|r| r.matches.path_prefix.as_str())
        .collect();
    for prefix in ["/openai", "/anthropic", "/gemini", "/ollama"] {
        assert!(prefixes.contains(&prefix), "{prefix}");
    }
    let text = spelled_out(text);
    assert!(
        text.contains("\nmax_models = 200"),
        "defaults are spelled out"
    );
    let explicit = Config::parse(&text, "spelled out").expect("valid");
    assert_eq!(
        format!("{:?}", explicit.measure),
        format!("{:?}", shipped.measure)
    );
    assert_eq!(
        format!("{:?}", explicit.limits),
        format!("{:?}", shipped.limits)
    );
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    let (line, key, reason) = only_problem(&format!("listn = \"127.0.0.1:1\"\n{GOOD}"));
    assert_eq!((line, key.as_str()), (1, "listn"));
    assert!(
        reason.contains("unknown field") && reason.contains("listen"),
        "{reason}"
    );
}

#[test]
fn a_value_of_the_wrong_kind_names_its_key() {
    let soon = format!("{GOOD}\n[measure]\nstall_threshold = \"soon\"\n");
    let (line, key, reason) = only_problem(&soon);
    assert_eq!((line, key.as_str()), (11, "stall_threshold"));
    assert!(reason.contains("250ms"), "{reason}");
    let (line, key, _) = only_problem(&format!("{GOOD}\n[measure]\nhash_users = 3\n"));
    assert_eq!((line, key.as_str()), (11, "hash_users"));
}

#[test]
fn every_problem_is_told_at_once_in_the_order_of_the_file() {
    let text = r#"
[limits]
connections = 0

[[upstream]]
name = "a"

[[upstream]]
name = "b"
url = "http://h"
tls.certificate = "c.pem"

[[route]]
upstream = "nobody"
path = "x"

[[route]]
upstream = "b"

[[route]]
upstream = "b"
path = "b"
"#;
    let found: Vec<(Option<usize>, String)> = problems(text)
        .into_iter()
        .map(|problem| (problem.line, problem.key))
        .collect();
    let expected = [
        (3, "connections"),
        (6, "name"),
        (11, "tls.certificate"),
        (14, "upstream"),
        (21, "upstream"),
        (22, "path"),
    ];
    assert_eq!(
        found,
        expected.map(|(line, key)| (Some(line), key.to_owned()))
    );
}

#[test]
fn a_file_without_upstreams_or_routes_says_what_to_add() {
    let keys: Vec<String> = problems("")
        .into_iter()
        .map(|problem| problem.key)
        .collect();
    assert_eq!(keys, ["upstream", "route"]);
}

#[test]
fn the_printed_form_has_file_line_key_and_reason() {
    let error = Config::parse("listen = 5\n", "my.toml").expect_err("not valid");
    let printed = error.to_string();
    assert!(printed.starts_with("my.toml:1: listen: "), "{printed}");
}

#[test]
fn a_file_that_cannot_be_read_is_a_problem_of_its_own() {
    let error = Config::load("does-not-exist.toml".as_ref()).expect_err("no file");
    assert!(
        error
            .to_string()
            .contains("does-not-exist.toml: cannot be read"),
        "{error}"
    );
}

#[test]
fn a_sidecar_needs_no_file() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let config = Config::sidecar("http://127.0.0.1:8000", any, any).expect("a URL");
    assert_eq!(config.routes[0].matches.path_prefix, "");
    assert!(!config.routes[0].strip_prefix);
    let refused = Config::sidecar("127.0.0.1:8000", any, any).expect_err("no scheme");
    assert!(refused.contains("http://"), "{refused}");
}
