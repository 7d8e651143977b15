//! Attribution from the headers of a request, before its body is known.

use super::request_headers::RequestHeaders;
use super::rules::{NameSources, Rules};
use super::value::{RankedValue, clean, product, pseudonym, without_version};
use super::{agent_names, codex};
use crate::keys;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, Uri};
use serde::Deserialize;
use tokengauge_core::experiment::AssignedUnit;
use tokengauge_core::trace::TraceContext;

/// Values of headers. Fields are separate if values of the body take precedence over some of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderAttribution {
    /// From our own header or a configured header.
    pub(super) session: Option<String>,
    pub(super) known_session: Option<String>,
    pub(super) baggage_session: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) assigned_agent: Option<String>,
    pub(super) known_agent: Option<String>,
    pub(super) parent_agent: Option<String>,
    pub(super) user: Option<String>,
    pub(super) known_user: Option<String>,
    pub(super) experiment: Option<String>,
    pub(super) variant: Option<String>,
    pub(super) trace_id: Option<u128>,
    sampled: bool,
}

/// Session headers in order of precedence. Any other `x-*-session-id` comes after them.
const SESSION: &[&str] = &[
    "helicone-session-id",
    "x-litellm-session-id",
    "x-litellm-trace-id",
    "x-bf-session-id",
    "agent-session-id",
    "x-claude-code-session-id",
    "x-qwen-code-session-id",
    "x-openwebui-chat-id",
];
const ANY_SESSION: usize = SESSION.len();
/// The rank of a generic name. All other session headers take precedence over it.
const PLAIN_SESSION: usize = ANY_SESSION + 1;
const CODEX_SESSION: usize = PLAIN_SESSION + 1;
const CODEX_TURN: usize = CODEX_SESSION + codex::SESSION.len();
/// This header names the parent's session and not the call's session.
const PARENT_SESSION: &str = "x-parent-session-id";

const CLAUDE_AGENT: &str = "x-claude-code-agent-id";
const CLAUDE_PARENT: &str = "x-claude-code-parent-agent-id";
const CODEX_AGENT: &str = "x-openai-subagent";
const CODEX_PARENT: &str = "x-codex-parent-thread-id";
/// The prefix of Open WebUI's headers about its users. Open WebUI sends no specific user agent.
const OPEN_WEBUI: &str = "x-openwebui-";
/// The header with the name of a Codex program, which identifies its first agent.
const ORIGINATOR: &str = "originator";

impl HeaderAttribution {
    /// Reads the headers of a call of `uri` at `port`; `None` if they attribute nothing.
    pub fn of(
        headers: &HeaderMap,
        uri: &Uri,
        port: Option<u16>,
        rules: &Rules,
    ) -> Option<Box<HeaderAttribution>> {
        let keys = || keys::keys_of(headers, uri);
        let given = agent_names::name_of(&rules.agent_names, port, uri.path(), keys);
        let attribution = HeaderAttribution {
            assigned_agent: given.map(|name| name.to_string()),
            ..HeaderAttribution::read(headers, rules)
        };
        (attribution != HeaderAttribution::default()).then(|| Box::new(attribution))
    }

    fn read(headers: &HeaderMap, rules: &Rules) -> HeaderAttribution {
        let headers = RequestHeaders::new(headers);
        let trace = TraceContext::of_headers(headers.all());
        let mut attribution = HeaderAttribution {
            session: explicit(headers, "x-tokengauge-session", &rules.session),
            agent: explicit(headers, "x-tokengauge-agent", &rules.agent),
            user: explicit(headers, "x-tokengauge-user", &rules.user),
            trace_id: trace.map(|context| context.trace_id),
            sampled: trace.is_some_and(|context| context.sampled()),
            ..HeaderAttribution::default()
        };
        attribution.known_session = known_session(headers);
        (attribution.known_agent, attribution.parent_agent) = known_agents(headers, rules);
        let parent = value(headers, "x-tokengauge-parent-agent");
        attribution.parent_agent = parent.or(attribution.parent_agent);
        attribution.known_user = known_user(headers);
        if let Some(experiment) = value(headers, "x-tokengauge-experiment") {
            (attribution.experiment, attribution.variant) = split(&experiment);
        }
        attribution.baggage(headers);
        let hashed = |user: String| pseudonym(user, rules.hash_users);
        attribution.user = attribution.user.map(hashed);
        attribution.known_user = attribution.known_user.map(hashed);
        attribution
    }

    pub fn agent(&self) -> Option<&str> {
        let agent = self.agent.as_deref().or(self.assigned_agent.as_deref());
        agent.or(self.known_agent.as_deref())
    }

    /// The name of the unit that an experiment assigns as a whole. Only named sessions count. A
    /// guess from the trace or the beginning of the conversation may change within a session.
    pub fn unit(self, unit: AssignedUnit) -> Option<String> {
        match unit {
            AssignedUnit::Session => self.session.or(self.known_session).or(self.baggage_session),
            AssignedUnit::Agent => self.agent.or(self.assigned_agent).or(self.known_agent),
            AssignedUnit::User => self.user.or(self.known_user),
        }
    }

    pub fn sampled(&self) -> bool {
        self.sampled
    }

    /// Reads W3C baggage: `session.id` (or Langfuse's name for it) and `user.id`.
    fn baggage(&mut self, headers: RequestHeaders<'_>) {
        let sent = headers.get_all("baggage");
        let texts = sent.filter_map(|text| text.to_str().ok());
        for member in texts.flat_map(|text| text.split(',')) {
            let Some((key, value)) = member.split_once('=') else {
                continue;
            };
            let value = clean(value.split(';').next().unwrap_or_default());
            let slot = match key.trim() {
                "session.id" | "langfuse.session_id" => &mut self.baggage_session,
                "user.id" => &mut self.known_user,
                _ => continue,
            };
            *slot = slot.take().or(value);
        }
    }
}

/// The value of a header if it is present and valid. Most headers are absent.
#[inline]
fn value(headers: RequestHeaders<'_>, name: &str) -> Option<String> {
    if headers.may_contain(name) {
        sent_value(headers, name)
    } else {
        None
    }
}

fn sent_value(headers: RequestHeaders<'_>, name: &str) -> Option<String> {
    let sent = headers.get_all(name);
    let mut texts = sent.filter_map(|sent| std::str::from_utf8(sent.as_bytes()).ok());
    texts.find_map(clean)
}

fn explicit(headers: RequestHeaders<'_>, ours: &str, places: &NameSources) -> Option<String> {
    let configured = || places.headers.iter().map(HeaderName::as_str);
    value(headers, ours).or_else(|| configured().find_map(|name| value(headers, name)))
}

fn known_session(headers: RequestHeaders<'_>) -> Option<String> {
    let mut session = RankedValue::default();
    let codex = codex::is(headers.all());
    for (name, value) in headers.all() {
        if let Some(rank) = session_rank(name, codex)
            && let Ok(text) = std::str::from_utf8(value.as_bytes())
        {
            session.offer(rank, text);
        }
    }
    if codex {
        let turn = codex::Turn::of(headers.all());
        let ids = [turn.session_id, turn.thread_id];
        for (more, id) in ids.iter().enumerate() {
            session.offer(CODEX_TURN + more, id.as_deref().unwrap_or_default());
        }
    }
    session.value()
}

fn session_rank(name: &HeaderName, codex: bool) -> Option<usize> {
    let text = name.as_str();
    let at = |names: &[&str]| names.iter().position(|known| *known == text);
    if let Some(rank) = at(SESSION) {
        return Some(rank);
    }
    match text {
        PARENT_SESSION | "x-tokengauge-session" => None,
        "x-session-id" => Some(PLAIN_SESSION),
        _ if text.starts_with("x-") && text.ends_with("-session-id") => Some(ANY_SESSION),
        _ if codex => at(codex::SESSION).map(|rank| CODEX_SESSION + rank),
        _ => None,
    }
}

/// The agent and its parent. If a subagent does not name its parent, the program started it. The
/// product or the originator identifies the program.
fn known_agents(headers: RequestHeaders<'_>, rules: &Rules) -> (Option<String>, Option<String>) {
    let user_agent = value(headers, USER_AGENT.as_str());
    let product = || user_agent.as_deref().and_then(|text| clean(product(text)));
    let product = rules.default_agent.clone().or_else(product);
    if let Some(agent) = value(headers, CLAUDE_AGENT) {
        let parent = value(headers, CLAUDE_PARENT).or(product);
        return (Some(agent), parent);
    }
    let turn = if codex::is(headers.all()) {
        codex::Turn::of(headers.all())
    } else {
        codex::Turn::default()
    };
    let program = value(headers, ORIGINATOR);
    let named = value(headers, CODEX_AGENT);
    let subagent = turn.subagent().and_then(clean).or(named);
    let thread = value(headers, CODEX_PARENT);
    if subagent.is_some() || thread.is_some() {
        let parent = turn.parent().and_then(clean);
        let parent = parent.or_else(|| program.clone()).or(thread);
        return (subagent.or(program).or(product), parent);
    }
    let others = ["helicone-session-path", "x-litellm-agent-id"];
    let other = others.iter().find_map(|name| value(headers, name));
    let other = other.or_else(|| open_webui(headers));
    // Programs send originator and user agent to one provider and only the user agent to others, so
    // both headers must give the same name.
    let same = |program: &String| product.as_deref().map(without_version) == Some(program);
    let program = program.filter(|program| codex::is(headers.all()) || !same(program));
    (program.or(other).or(product), None)
}

fn open_webui(headers: RequestHeaders<'_>) -> Option<String> {
    let mut names = headers.all().keys();
    let sent = names.any(|name| name.as_str().starts_with(OPEN_WEBUI));
    sent.then(|| "open-webui".to_owned())
}

fn known_user(headers: RequestHeaders<'_>) -> Option<String> {
    value(headers, "helicone-user-id")
        .or_else(|| value(headers, "x-openwebui-user-id"))
        .or_else(|| portkey(headers))
        .or_else(|| {
            let dimensions = ["x-bf-dim-user-id", "x-bf-dim-user_id", "x-bf-dim-user"];
            dimensions.iter().find_map(|name| value(headers, name))
        })
        .or_else(|| tagged(headers))
}

fn portkey(headers: RequestHeaders<'_>) -> Option<String> {
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(alias = "user", alias = "user_id")]
        _user: Option<String>,
    }
    let sent = headers.get("x-portkey-metadata")?;
    let metadata: Metadata = serde_json::from_slice(sent.as_bytes()).ok()?;
    metadata._user.as_deref().and_then(clean)
}

fn tagged(headers: RequestHeaders<'_>) -> Option<String> {
    let sent = headers.get("x-litellm-tags")?.to_str().ok()?;
    let mut tags = sent.split(',').filter_map(|tag| tag.split_once([':', '=']));
    tags.find_map(|(key, value)| match key.trim() {
        "user" | "user_id" | "user-id" => clean(value),
        _ => None,
    })
}

/// Splits `name/variant` at the last slash, because a name may contain slashes.
fn split(experiment: &str) -> (Option<String>, Option<String>) {
    match experiment.rsplit_once('/') {
        Some((name, variant)) => (clean(name), clean(variant)),
        None => (clean(experiment), None),
    }
}
