//! The fallback routes of an injected sidecar whose configuration cannot be used.

use crate::inject::{arguments, container, fixture, settings, variable};
use crate::process::{Process, SteppedBackend};
use serde_json::{Value, json};
use tokengauge_config::Config;
use tokengauge_inject::{InjectBy, Outcome, Settings, inject};
use tokengauge_test_support::http_client::fetch;

const FALLBACK: &str = "TOKENGAUGE_FALLBACK_CONFIG";
const POLICY: &str = "TOKENGAUGE_ON_REFUSED_CONFIG";

fn injected(name: &str, annotations: &[(&str, &str)], settings: &Settings) -> (Value, Vec<String>) {
    let mut pod = fixture(name);
    for (name, value) in annotations {
        pod["metadata"]["annotations"][format!("tokengauge.dev/{name}")] = json!(value);
    }
    match inject(&pod, InjectBy::Annotation, settings) {
        Outcome::Injected { pod, warnings } => (pod, warnings),
        other => panic!("{name}: {other:?}"),
    }
}

fn fallback(pod: &Value) -> String {
    let text = variable(pod, "tokengauge", FALLBACK).expect("a fallback");
    text.replace("$$", "$")
}

fn upstreams(text: &str) -> Vec<(String, String)> {
    let config = Config::parse(text, "fallback").unwrap_or_else(|invalid| panic!("{invalid}"));
    let of = |route: &std::sync::Arc<tokengauge_config::Route>| {
        let authority = route.upstream.endpoints[0].authority.to_string();
        (route.matches.path_prefix.clone(), authority)
    };
    config.routes.iter().map(of).collect()
}

#[test]
fn a_config_map_blocks_no_pod_and_the_sidecar_has_the_routes_of_its_base_urls() {
    let (pod, _) = injected("several", &[], &settings(""));
    let volume = &pod["spec"]["volumes"][0]["configMap"];
    assert_eq!(*volume, json!({ "name": "voice-gauge", "optional": true }));
    assert!(arguments(&pod).contains("--config /etc/tokengauge/proxy-config.toml"));
    let text = fallback(&pod);
    let known = upstreams(&text);
    for (path, host) in [
        ("/openai", "api.openai.com"),
        ("/anthropic", "api.anthropic.com"),
    ] {
        assert!(known.contains(&(path.into(), host.into())), "{known:?}");
    }
    let config = Config::parse(&text, "fallback").expect("just read");
    assert_eq!(
        config.drain_timeout.as_secs(),
        25,
        "the pod's grace less 5 s"
    );
    assert_eq!(variable(&pod, "tokengauge", POLICY), None, "the default");
    let (pod, _) = injected("agent", &[], &settings("config_map = \"shared\""));
    assert_eq!(upstreams(&fallback(&pod)), known);
    let (pod, _) = injected("agent", &[], &settings(""));
    assert_eq!(
        variable(&pod, "tokengauge", FALLBACK),
        None,
        "nothing can be refused"
    );
}

#[test]
fn the_fallback_has_the_operators_routes_without_settings_that_could_be_refused() {
    let mut settings = settings("config_map = \"shared\"");
    settings.base = Some(
        "[admin]\ntoken_file = \"/no/token\"\n[[upstream]]\nname = \"o\"\nurl = \"https://o/$(HOME)\"\n\
         tls.ca = \"/no/file\"\nmetrics_url = \"http://o\"\ntimeouts.head = \"20m\"\n[[route]]\nname = \"first\"\n\
         path = \"/openai\"\nupstream = \"o\"\nheaders = { x-team = \"eu\" }\ninject_usage = true\n\
         [[quota]]\nname = \"q\"\nconcurrent = 1\n"
            .to_owned(),
    );
    let (pod, _) = injected("agent", &[], &settings);
    let written = variable(&pod, "tokengauge", FALLBACK).expect("a fallback");
    assert!(
        written.contains("$$(HOME)"),
        "no variable of the container: {written}"
    );
    let text = fallback(&pod);
    let config = Config::parse(&text, "fallback").unwrap_or_else(|invalid| panic!("{invalid}"));
    let route = &config.routes[0];
    assert_eq!((&*route.name, route.matches.headers.len()), ("first", 1));
    assert_eq!(route.upstream.timeouts.head.as_secs(), 1200);
    assert_eq!(route.upstream.endpoints[0].base_path, "/$(HOME)");
    assert!(!route.inject_usage && route.upstream.tls.ca.is_none());
    assert!(config.quotas.is_empty() && config.scrapes.is_empty());
    assert_eq!(config.admin.token, None);
    let many = (0..2000).map(|n| {
        format!("[[route]]\npath = \"/{n}\"\nname = \"route-{n:050}\"\nupstream = \"o\"\n")
    });
    settings.base = Some(format!(
        "[[upstream]]\nname = \"o\"\nurl = \"https://o\"\n{}",
        many.collect::<String>()
    ));
    let (pod, warnings) = injected("agent", &[], &settings);
    assert_eq!(
        variable(&pod, "tokengauge", FALLBACK),
        None,
        "no process could have it"
    );
    assert!(
        warnings
            .iter()
            .any(|warning| warning.contains("too many for a variable")),
        "{warnings:?}"
    );
}

#[test]
fn an_engines_fallback_leads_to_the_engine() {
    for (annotations, port) in [
        (&[][..], 8000),
        (&[("slo", ""), ("config", "engine-gauge")][..], 8000),
    ] {
        let (pod, _) = injected("vllm", annotations, &settings(""));
        assert_eq!(
            upstreams(&fallback(&pod)),
            [(String::new(), format!("127.0.0.1:{port}"))]
        );
    }
    let (pod, _) = injected("vllm-moved", &[], &settings(""));
    let [(_, authority)] = &upstreams(&fallback(&pod))[..] else {
        panic!("one route");
    };
    let args = container(&pod, "vllm")["args"].to_string();
    let port = authority.rsplit(':').next().expect("a port");
    assert!(args.contains(port), "{authority}: {args}");
}

#[test]
fn annotation_and_setting_decide_whether_calls_are_forwarded() {
    let pass = settings("on_refused_config = \"pass\"");
    let (pod, _) = injected("several", &[], &pass);
    assert_eq!(variable(&pod, "tokengauge", POLICY), Some("pass"));
    for (value, policy) in [("refuse", Some("refuse")), ("refuse-if-limited", None)] {
        let (pod, _) = injected("several", &[("on-refused-config", value)], &pass);
        assert_eq!(variable(&pod, "tokengauge", POLICY), policy, "{value}");
    }
    let mut pod = fixture("several");
    pod["metadata"]["annotations"]["tokengauge.dev/on-refused-config"] = json!("open");
    let outcome = inject(&pod, InjectBy::Annotation, &pass);
    assert!(
        matches!(&outcome, Outcome::Refused(reason) if reason.contains("`refuse-if-limited`, `pass` or `refuse`")),
        "{outcome:?}"
    );
    let wrong = Settings::parse("on_refused_config = \"open\"").expect_err("unknown");
    assert!(wrong.to_string().contains("refuse-if-limited"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_runs_by_what_injection_wrote() {
    let engine = SteppedBackend::start().await;
    let url = format!("mine=http://{}", engine.address);
    let (pod, _) = injected("agent", &[("upstream", url.as_str())], &settings(""));
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args([
        "run",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--config",
    ]);
    command.arg(folder.path().join("proxy-config.toml"));
    command.env(FALLBACK, fallback(&pod));
    let process = Process::start_by(command).await;
    let response = fetch(process.addresses()[0], "/mine/hello").await;
    assert_eq!(response.body, "hello");
}
