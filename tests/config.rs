//! Errors of bad configurations name the line and the key. Good configurations have the values they state.

use std::time::Duration;
use tokengauge_accounting::cost::Prices;
use tokengauge_config::{Config, Invalid, Problem};

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
fn missing_keys_have_defaults() {
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
    let upstream = &route.upstream;
    assert_eq!(upstream.timeouts.send, Duration::from_secs(300));
    assert_eq!(
        (upstream.max_connections, upstream.max_pending),
        (None, 1024)
    );
}

#[test]
fn an_upstream_that_may_have_no_connection_is_refused() {
    let text = GOOD.replacen("\n\n[[route]]", "\nmax_connections = 0\n\n[[route]]", 1);
    let (line, key, reason) = only_problem(&text);
    assert_eq!((line, &*key), (5, "max_connections"));
    assert!(reason.contains("at least 1"), "{reason}");
}

#[test]
fn a_host_with_a_port_would_never_match_and_is_refused() {
    let with = |host: &str| GOOD.replace("path = ", &format!("host = \"{host}\"\npath = "));
    for host in [
        "llm.example:8080",
        "http://llm.example",
        "llm.example/v1",
        "a b",
        "",
    ] {
        let (line, key, reason) = only_problem(&with(host));
        assert_eq!((line, &*key), (7, "host"), "{host}");
        assert!(
            reason.contains("leave out scheme, port and path"),
            "{reason}"
        );
    }
    for host in ["LLM.example", "10.0.0.1", "[::1]", "localhost"] {
        assert!(Config::parse(&with(host), "test.toml").is_ok(), "{host}");
    }
}

#[test]
fn what_would_cut_agents_off_or_lead_past_the_proxy_is_refused() {
    for (place, line, problem) in [
        ("\n\n[[route]]", "timeouts.send = \"0s\"", "longer than 0s"),
        (
            "\n[[route]]",
            "upgrades = [\"websocket\", \"h2c\"]",
            "`h2c` would bypass",
        ),
        (
            "\n[[route]]",
            "upgrades = [\"a b\"]",
            "`a b` cannot be the name of a protocol",
        ),
    ] {
        let text = match place {
            "\n[[route]]" => GOOD.replacen(place, &format!("{place}\n{line}"), 1),
            _ => GOOD.replacen(place, &format!("\n{line}{place}"), 1),
        };
        let (_, _, reason) = only_problem(&text);
        assert!(reason.contains(problem), "{line}: {reason}");
    }
}

/// The example configuration with the defaults of its sections uncommented.
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
        let optional = ["requests_per_minute", "total_http2_streams"].map(|key| line.contains(key));
        result.push_str(match default {
            Some(rest)
                if ["[limits]", "[measure]"].contains(&section) && optional == [false; 2] =>
            {
                rest
            }
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
fn every_problem_is_reported_at_once_in_the_order_of_the_file() {
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
    assert!(printed.starts_with("my.toml:1:10: listen: "), "{printed}");
}

#[test]
fn an_unreadable_file_is_reported() {
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
    assert!(refused.to_string().contains("http://"), "{refused}");
}

#[test]
fn places_of_attribution_are_read_and_secrets_and_conversations_are_none() {
    let text = format!(
        "{GOOD}\n[attribution]\nsession_headers = [\"X-Thread\"]\nuser_paths = [\"metadata.employee\"]\n"
    );
    let rules = Config::parse(&text, "test.toml")
        .expect("valid")
        .measure
        .attribution
        .clone();
    assert_eq!(rules.session.headers[0].as_str(), "x-thread");
    assert_eq!((rules.user.paths.len(), rules.hash_users), (1, true));
    for (line, reason) in [
        ("agent_headers = [\"no header\"]", "is not a header name"),
        ("user_headers = [\"Authorization\"]", "holds a secret"),
        (
            "session_paths = [\"messages.content\"]",
            "leads into the conversation",
        ),
        ("session_paths = [\"a..b\"]", "one of its names is empty"),
    ] {
        let (_, key, message) = only_problem(&format!("{GOOD}\n[attribution]\n{line}\n"));
        assert_eq!(key, line.split(' ').next().expect("a key"));
        assert!(message.contains(reason), "{message}");
    }
    let many: Vec<_> = (0..17).map(|number| format!("\"x-{number}\"")).collect();
    let many = format!(
        "{GOOD}\n[attribution]\nsession_headers = [{}]\n",
        many.join(", ")
    );
    assert!(only_problem(&many).2.contains("16"));
}

#[test]
fn a_price_is_for_tokens_and_for_an_upstream_that_there_is() {
    let price = |rest: &str| format!("{GOOD}\n[[price]]\nmodel = \"m*\"\n{rest}\n");
    let text = format!(
        "shipped_prices = false\n{}",
        price("input = 2\noutput = 8\nabove = 1000")
    );
    let prices = &Config::parse(&text, "test.toml").expect("valid").prices;
    assert!(!prices.shipped);
    assert_eq!(prices.configured[0].tariff.output, Some(8.0));
    assert_eq!(prices.configured[0].above, Some(1000));
    for (rest, reason) in [
        ("", "needs an `input` price"),
        ("input = -1", "from 0 up"),
        ("input = nan", "from 0 up"),
        ("output = 1\ncached_input = 1", "needs the price of `input`"),
        (
            "input = 1\nupstream = \"other\"",
            "no upstream named `other`",
        ),
    ] {
        let (_, _, message) = only_problem(&price(rest));
        assert!(message.contains(reason), "{message}");
    }
    let (_, key, message) = only_problem(&price("input = 1\npound = 3"));
    assert!(
        key == "pound" && message.contains("unknown field"),
        "{message}"
    );
}

#[test]
fn gpus_have_a_price_and_a_number() {
    let upstream = |rest: &str| GOOD.replace("[[route]]", &format!("{rest}\n[[route]]"));
    let config = upstream("gpu_usd_per_hour = 2.5\ngpus = 8");
    let prices = Config::parse(&config, "test.toml").expect("valid").prices;
    let prices = Prices::new(&prices);
    assert_eq!(prices.gpus("engine").expect("gpus").usd_per_hour(), 20.0);
    for (rest, reason) in [
        ("gpus = 8", "needs `gpu_usd_per_hour`"),
        ("gpu_usd_per_hour = 0", "above 0"),
        ("gpu_usd_per_hour = 1\ngpus = 0", "at least 1"),
    ] {
        let (_, _, message) = only_problem(&upstream(rest));
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn a_budget_has_defaults_and_says_what_is_wrong_with_it() {
    use tokengauge_accounting::cost::budget::{BudgetScope, Period};
    let budget = |rest: &str| format!("{GOOD}\n[[budget]]\nname = \"b\"\n{rest}\n");
    let read = |rest: &str| {
        let mut config = Config::parse(&budget(rest), "test.toml").expect("valid");
        config.budgets.remove(0)
    };
    let plain = read("usd = 5");
    assert_eq!(
        (plain.per, plain.usd, plain.block),
        (BudgetScope::All, 5.0, false)
    );
    assert_eq!(plain.warn_at, [0.5, 0.8, 1.0]);
    assert_eq!(plain.period, Period::Every(Duration::from_secs(86_400)));
    let full =
        read("usd = 5\nper = \"session\"\nperiod = \"month\"\nwarn_at = [1.0, 0.25]\nblock = true");
    assert_eq!(
        (full.per, full.period, full.block),
        (BudgetScope::Session, Period::Month, true)
    );
    assert_eq!(full.warn_at, [0.25, 1.0]);
    for (rest, reason) in [
        ("usd = 0", "above 0"),
        ("usd = 1\nperiod = \"1s\"", "at least a minute"),
        ("usd = 1\nwarn_at = [0]", "above 0"),
        ("usd = 1\nselect = { route = \"other\" }", "other"),
        ("usd = 1\nper = \"key\"", "unknown variant"),
    ] {
        let (_, _, message) = only_problem(&budget(rest));
        assert!(message.contains(reason), "{message}");
    }
    let two = format!("{}[[budget]]\nname = \"b\"\nusd = 1\n", budget("usd = 1"));
    assert!(only_problem(&two).2.contains("two budgets named `b`"));
}
