use super::value::MAX_VALUE;
use super::*;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use tokengauge_core::call::BodyNames;
use tokengauge_wire::JsonPath;

type Headers<'a> = &'a [(&'static str, &'a str)];

fn map(headers: Headers<'_>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a header value");
        map.append(*name, value);
    }
    map
}

fn attributed(headers: Headers<'_>, facts: &RequestFacts, rules: &Rules) -> Attribution {
    let from_headers = HeaderAttribution::of(&map(headers), &Uri::default(), None, rules);
    Attribution::merged(from_headers.as_deref(), Some(facts), rules)
}

fn of(headers: Headers<'_>) -> Attribution {
    attributed(headers, &RequestFacts::default(), &Rules::default())
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const CODEX: (&str, &str) = (
    "user-agent",
    "codex_exec/0.169.0 (Debian 12; x86_64) unknown",
);

#[test]
fn the_session_of_the_first_place_in_rank_wins_whatever_the_order() {
    let rules = Rules {
        session: NameSources {
            headers: vec![HeaderName::from_static("x-thread")],
            paths: vec![JsonPath::parse("metadata.thread").expect("a path")],
        },
        ..Rules::default()
    };
    let facts = |places: usize| {
        let known = |at: usize, text: &str| (places >= at).then(|| text.to_owned());
        RequestFacts {
            session_hint: known(1, "cache-key"),
            session: known(3, "in-body"),
            configured: Some(Box::new(BodyNames {
                session: known(13, "configured-path"),
                ..BodyNames::default()
            })),
            ..RequestFacts::default()
        }
    };
    let all = [
        (0, ("traceparent", TRACEPARENT), TRACE),
        (1, ("x-nothing", "-"), "cache-key"),
        (
            2,
            ("baggage", "a=b, session.id=in-baggage;x=y"),
            "in-baggage",
        ),
        (3, ("x-nothing", "-"), "in-body"),
        (
            4,
            (
                "x-codex-turn-metadata",
                r#"{"thread_id":"t","session_id":"turn"}"#,
            ),
            "turn",
        ),
        (5, ("conversation_id", "conversation"), "conversation"),
        (6, ("thread-id", "thread"), "thread"),
        (7, ("session_id", "codex_"), "codex_"),
        (8, ("session-id", "codex"), "codex"),
        (9, ("x-session-id", "plain"), "plain"),
        (10, ("x-some-agent-session-id", "any"), "any"),
        (11, ("x-qwen-code-session-id", "qwen"), "qwen"),
        (12, ("x-claude-code-session-id", "claude"), "claude"),
        (13, ("x-nothing", "-"), "configured-path"),
        (14, ("x-thread", "configured"), "configured"),
        (15, ("x-tokengauge-session", "ours"), "ours"),
    ];
    for (places, _, expected) in all {
        let mut headers: Vec<_> = all[..=places]
            .iter()
            .map(|(_, header, _)| *header)
            .collect();
        headers.push(CODEX);
        let found = attributed(&headers, &facts(places), &rules);
        assert_eq!(found.session.as_deref(), Some(expected));
        assert_eq!(found.session_guess.is_some(), places <= 1, "{expected}");
    }
}

#[test]
fn gateways_go_before_agents_and_the_parents_session_is_none_of_the_call() {
    let gateways = [
        "agent-session-id",
        "x-bf-session-id",
        "x-litellm-trace-id",
        "x-litellm-session-id",
        "helicone-session-id",
    ];
    let mut headers = vec![
        ("x-claude-code-session-id", "claude"),
        ("x-parent-session-id", "up"),
    ];
    assert_eq!(of(&headers[1..]).session, None);
    for gateway in gateways {
        headers.push((gateway, gateway));
        assert_eq!(of(&headers).session.as_deref(), Some(gateway));
    }
}

#[test]
fn the_plain_headers_of_codex_count_only_with_its_user_agent() {
    let plain = [
        ("session_id", "s"),
        ("thread-id", "t"),
        ("conversation_id", "c"),
    ];
    assert_eq!(of(&plain).session, None);
    let with = |agent| of(&[plain[0], ("user-agent", agent)]).session;
    assert_eq!(with("codex_cli_rs/0.98.0"), some("s"));
    assert_eq!(with("Codex Desktop/1"), some("s"));
    assert_eq!(with("not-codex/1"), None);
}

#[test]
fn a_session_in_the_baggage_yields_to_the_body_and_a_guess_to_both() {
    let hint = RequestFacts {
        session_hint: some("key"),
        ..RequestFacts::default()
    };
    let rules = Rules::default();
    let baggage = ("baggage", "langfuse.session_id=l,user.id=ada");
    let found = attributed(&[baggage, ("traceparent", TRACEPARENT)], &hint, &rules);
    assert_eq!(
        (found.session, found.session_guess.is_some()),
        (some("l"), false)
    );
    let found = attributed(&[("traceparent", TRACEPARENT)], &hint, &rules);
    assert_eq!(
        (found.session, found.session_guess.is_some()),
        (some("key"), true)
    );
    assert_eq!(found.trace_id.map(|id| format!("{id:032x}")), some(TRACE));
    assert_eq!(
        (of(&[]).session, of(&[]).session_guess.is_some()),
        (None, false)
    );
}

#[test]
fn the_agent_is_named_by_its_header_else_by_its_product() {
    let agent = ("user-agent", "claude-cli/2.0.1 (external, cli)");
    assert_eq!(of(&[agent]).agent, some("claude-cli/2.0.1"));
    assert_eq!(
        of(&[agent, ("originator", "codex_exec")]).agent,
        some("codex_exec")
    );
    let path = ("helicone-session-path", "/plan/search");
    assert_eq!(of(&[agent, path]).agent, some("/plan/search"));
    assert_eq!(
        of(&[agent, path, ("x-tokengauge-agent", "me")]).agent,
        some("me")
    );
}

#[test]
fn a_program_has_one_name_however_it_says_it() {
    let agent = |headers: Headers<'_>| of(headers).agent;
    let opencode = ("user-agent", "opencode/1.18.33 ai-sdk/5 runtime/bun");
    assert_eq!(agent(&[opencode]), some("opencode/1.18.33"));
    let both = [opencode, ("originator", "opencode")];
    assert_eq!(agent(&both), some("opencode/1.18.33"));
    let k6 = ("user-agent", "Grafana k6/1.3.0");
    assert_eq!(agent(&[k6]), some("k6/1.3.0"));
    assert_eq!(
        agent(&[("user-agent", "k6/0.50 (https://k6.io/)")]),
        some("k6/0.50")
    );
    let desktop = ("user-agent", "Codex Desktop/1 (mac)");
    assert_eq!(agent(&[desktop]), some("Codex Desktop/1"));
    let aiohttp = ("user-agent", "Python/3.11 aiohttp/3.14.5");
    assert_eq!(agent(&[aiohttp]), some("aiohttp/3.14.5"));
    let chat = ("x-openwebui-user-id", "ada");
    assert_eq!(agent(&[aiohttp, chat]), some("open-webui"));
    assert_eq!(agent(&[("user-agent", "Python/3.11")]), some("Python/3.11"));
    assert_eq!(agent(&[("user-agent", "curl")]), some("curl"));
    assert_eq!(agent(&[("user-agent", "my own agent")]), some("my"));
}

#[test]
fn a_chat_of_open_webui_is_a_session_of_its_user() {
    let chat = ("x-openwebui-chat-id", "8f14e45f");
    let user = ("x-openwebui-user-id", "ada");
    let found = of(&[chat, user]);
    assert_eq!(found.session, some("8f14e45f"));
    assert!(found.user.is_some_and(|user| user.len() == 32));
}

#[test]
fn a_subagent_knows_who_started_it() {
    let claude = ("user-agent", "claude-cli/2.1.197 (external, sdk-cli)");
    let sub = ("x-claude-code-agent-id", "explorer");
    let nested = ("x-claude-code-parent-agent-id", "planner");
    let pair = |headers: Headers<'_>| {
        let found = of(headers);
        (found.agent, found.parent_agent)
    };
    assert_eq!(pair(&[claude]), (some("claude-cli/2.1.197"), None));
    assert_eq!(
        pair(&[claude, sub]),
        (some("explorer"), some("claude-cli/2.1.197"))
    );
    assert_eq!(
        pair(&[claude, sub, nested]),
        (some("explorer"), some("planner"))
    );
    let exec = ("originator", "codex_exec");
    let turn = |text| ("x-codex-turn-metadata", text);
    assert_eq!(
        pair(&[CODEX, exec, turn(r#"{"agent_name":"/root"}"#)]),
        (some("codex_exec"), None)
    );
    assert_eq!(
        pair(&[CODEX, exec, turn(r#"{"agent_name":"/root/tester"}"#)]),
        (some("/root/tester"), some("codex_exec"))
    );
    assert_eq!(
        pair(&[CODEX, exec, turn(r#"{"agent_name":"/root/tester/fixer"}"#)]),
        (some("/root/tester/fixer"), some("/root/tester"))
    );
    let review = ("x-openai-subagent", "review");
    assert_eq!(
        pair(&[CODEX, exec, review]),
        (some("review"), some("codex_exec"))
    );
    let thread = ("x-codex-parent-thread-id", "t-0");
    assert_eq!(
        pair(&[CODEX, thread]),
        (some("codex_exec/0.169.0"), some("t-0"))
    );
    let ours = ("x-tokengauge-parent-agent", "boss");
    assert_eq!(pair(&[claude, ours]).1, some("boss"));
}

#[test]
fn users_are_hashed_stably_and_only_told_when_configured() {
    let user = |headers: Headers<'_>| of(headers).user.expect("a user");
    let one = user(&[("helicone-user-id", "ada@example.org")]);
    assert_eq!(one, "13407dfd2021bf2951b1e2009f72eb13");
    for same in [
        ("x-tokengauge-user", "ada@example.org"),
        (
            "x-portkey-metadata",
            r#"{"_user":"ada@example.org","environment":"test"}"#,
        ),
        ("x-bf-dim-user", "ada@example.org"),
        ("x-litellm-tags", "team:search, user:ada@example.org"),
        ("baggage", "user.id=ada@example.org"),
    ] {
        assert_eq!(user(&[same]), one, "{same:?}");
    }
    assert_ne!(user(&[("helicone-user-id", "bob@example.org")]), one);
    let facts = RequestFacts {
        user: some("ada@example.org"),
        ..RequestFacts::default()
    };
    let gateway = [("helicone-user-id", "gateway")];
    let hashed = attributed(&gateway, &facts, &Rules::default());
    assert_eq!(hashed.user, Some(one), "the body's goes first");
    let plain = Rules {
        hash_users: false,
        ..Rules::default()
    };
    assert_eq!(
        attributed(&gateway, &facts, &plain).user,
        some("ada@example.org")
    );
    assert_eq!(of(&[("x-portkey-metadata", "no JSON")]).user, None);
}

#[test]
fn an_experiment_names_its_variant_behind_the_last_slash() {
    let pair = |text| {
        let found = of(&[("x-tokengauge-experiment", text)]);
        (found.experiment, found.variant)
    };
    assert_eq!(pair("prompt-7"), (some("prompt-7"), None));
    assert_eq!(pair("prompt-7/b"), (some("prompt-7"), some("b")));
    assert_eq!(
        pair("search/prompt-7/b"),
        (some("search/prompt-7"), some("b"))
    );
    assert_eq!(pair("  "), (None, None));
    assert_eq!(pair("prompt-7/"), (some("prompt-7"), None));
}

#[test]
fn values_are_capped_and_control_characters_refused() {
    let long = "é".repeat(500);
    let session = of(&[("x-tokengauge-session", &long)]).session;
    assert_eq!(session.expect("a session").chars().count(), MAX_VALUE);
    let tab = [("x-tokengauge-session", "a\tb"), ("x-session-id", "next")];
    assert_eq!(of(&tab).session, some("next"));
    assert_eq!(value::clean("a\u{9d}b"), None);
}

#[test]
fn only_a_valid_traceparent_gives_a_trace_id() {
    let found = of(&[("traceparent", TRACEPARENT)]).trace_id;
    assert_eq!(found.map(|id| format!("{id:032x}")), some(TRACE));
    assert_eq!(of(&[("traceparent", &TRACEPARENT[..52])]).trace_id, None);
}
