//! Who made a call: what agents already send about session, agent, user and
//! experiment. Correlation only, never authority: every value is capped at 200
//! characters, refused where it has control characters, and forwarded unchanged.

use crate::call::RequestFacts;
use crate::trace::TraceContext;
use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

/// Characters kept of a value.
const MAX_VALUE: usize = 200;

/// Who made a call, as far as the request says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The session.
    pub session: Option<String>,
    /// The agent, by its own name.
    pub agent: Option<String>,
    /// The agent that started this one.
    pub parent_agent: Option<String>,
    /// The user, hashed unless configured otherwise.
    pub user: Option<String>,
    /// The experiment.
    pub experiment: Option<String>,
    /// The variant of the experiment.
    pub variant: Option<String>,
    /// The W3C trace id.
    pub trace_id: Option<String>,
}

/// A value and how much it weighs against others of its kind: the lowest rank wins.
#[derive(Debug, Default)]
struct Best(Option<(usize, String)>);

impl Best {
    fn offer(&mut self, rank: usize, value: &str) {
        if self.0.as_ref().is_none_or(|(best, _)| rank < *best)
            && let Some(value) = clean(value)
        {
            self.0 = Some((rank, value));
        }
    }

    fn value(self) -> Option<String> {
        self.0.map(|(_, value)| value)
    }
}

/// Session headers, the first wins. Any other `x-*-session-id` comes after them.
const SESSION: &[&str] = &[
    "x-tokengauge-session",
    "helicone-session-id",
    "x-litellm-session-id",
    "x-litellm-trace-id",
    "x-bf-session-id",
    "agent-session-id",
    "x-claude-code-session-id",
    "x-qwen-code-session-id",
];
/// The parent's session, not the call's own.
const PARENT_SESSION: &str = "x-parent-session-id";
/// A name so plain that every other session header goes before it.
const PLAIN_SESSION: &str = "x-session-id";
/// Agent headers, the first wins; the user agent comes after them.
const AGENT: &[&str] = &[
    "x-claude-code-agent-id",
    "x-openai-subagent",
    "originator",
    "helicone-session-path",
    "x-litellm-agent-id",
];
/// User headers, the first wins.
const USER: &[&str] = &["helicone-user-id"];

impl Attribution {
    /// What the headers say; `None` where they say nothing.
    pub fn of_headers(headers: &HeaderMap, hash_users: bool) -> Option<Box<Attribution>> {
        let (mut session, mut agent, mut user) =
            (Best::default(), Best::default(), Best::default());
        let mut found = Attribution::default();
        for (name, value) in headers {
            let Ok(text) = std::str::from_utf8(value.as_bytes()) else {
                continue;
            };
            if let Some(rank) = session_rank(name) {
                session.offer(rank, text);
            } else if let Some(rank) = rank(AGENT, name) {
                agent.offer(rank, text);
            } else if let Some(rank) = rank(USER, name) {
                user.offer(rank, text);
            }
            match name.as_str() {
                "user-agent" => agent.offer(AGENT.len(), product(text)),
                "x-tokengauge-experiment" => found.experiment = clean(text),
                "baggage" => of_baggage(text, &mut session, &mut user),
                _ => {}
            }
        }
        found.trace_id = TraceContext::of_headers(headers).map(|context| context.trace());
        found.session = session.value();
        found.agent = agent.value();
        found.user = user.value().map(|user| known_as(user, hash_users));
        (found != Attribution::default()).then(|| Box::new(found))
    }

    /// What the headers and the body say together. A header was put there to be read
    /// on the way, so it goes before the body; a user in the body is the provider's
    /// own notion and goes first.
    pub fn merged(
        headers: Option<&Attribution>,
        facts: Option<&RequestFacts>,
        hash_users: bool,
    ) -> Attribution {
        let mut merged = headers.cloned().unwrap_or_default();
        if let Some(facts) = facts {
            let of_body = |value: &Option<String>| value.as_deref().and_then(clean);
            merged.session = merged.session.or_else(|| of_body(&facts.session));
            let user = of_body(&facts.user).map(|user| known_as(user, hash_users));
            merged.user = user.or(merged.user);
        }
        merged
    }
}

fn rank(names: &[&str], name: &HeaderName) -> Option<usize> {
    names.iter().position(|known| name == known)
}

fn session_rank(name: &HeaderName) -> Option<usize> {
    if name == PARENT_SESSION {
        return None;
    }
    let any = || {
        let text = name.as_str();
        let matches = text.starts_with("x-") && text.ends_with("-session-id");
        matches.then_some(SESSION.len())
    };
    let plain = || (name == PLAIN_SESSION).then_some(SESSION.len() + 1);
    rank(SESSION, name).or_else(plain).or_else(any)
}

/// W3C baggage: `session.id` (or Langfuse's name for it) and `user.id`.
fn of_baggage(text: &str, session: &mut Best, user: &mut Best) {
    for member in text.split(',') {
        let Some((key, value)) = member.split_once('=') else {
            continue;
        };
        let value = value.split(';').next().unwrap_or_default();
        match key.trim() {
            "session.id" | "langfuse.session_id" => session.offer(SESSION.len() + 2, value),
            "user.id" => user.offer(USER.len(), value),
            _ => {}
        }
    }
}

/// The first product of a user agent: its name and version.
fn product(user_agent: &str) -> &str {
    user_agent.split_whitespace().next().unwrap_or_default()
}

/// A value worth keeping: trimmed, not empty, without control characters, capped.
fn clean(value: &str) -> Option<String> {
    let value = value.trim();
    let usable = !value.is_empty() && !value.contains(char::is_control);
    usable.then(|| value.chars().take(MAX_VALUE).collect())
}

/// The user as records name them: the first 32 hexadecimal digits of the SHA-256 of
/// the name, stable over restarts and pods so that calls of one user belong together.
/// It hides names from readers of records; it does not stop who guesses a name and
/// hashes it.
fn known_as(user: String, hashed: bool) -> String {
    if !hashed {
        return user;
    }
    let mut digest = Sha256::new();
    digest.update(b"tokengauge user\0");
    digest.update(user.as_bytes());
    let digest = digest.finalize();
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn of(headers: &[(&'static str, &str)]) -> Attribution {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("a header value");
            map.append(*name, value);
        }
        let found = Attribution::of_headers(&map, true);
        found.map(|found| *found).unwrap_or_default()
    }

    #[test]
    fn the_session_of_the_first_header_in_rank_wins_whatever_their_order() {
        let session = |headers: &[_]| of(headers).session;
        let all = [
            ("baggage", "a=b, session.id=in-baggage;x=y"),
            ("x-session-id", "plain"),
            ("x-some-agent-session-id", "any"),
            ("x-claude-code-session-id", "claude"),
            ("x-tokengauge-session", "ours"),
        ];
        let expected = ["in-baggage", "plain", "any", "claude", "ours"];
        for (last, expected) in expected.iter().enumerate() {
            assert_eq!(session(&all[..=last]).as_deref(), Some(*expected));
        }
        assert_eq!(session(&[("x-parent-session-id", "parent")]), None);
    }

    #[test]
    fn the_agent_is_named_by_its_header_else_by_its_product() {
        let agent = ("user-agent", "claude-cli/2.0.1 (external, cli)");
        assert_eq!(of(&[agent]).agent.as_deref(), Some("claude-cli/2.0.1"));
        let named = of(&[agent, ("originator", "codex_cli_rs")]);
        assert_eq!(named.agent.as_deref(), Some("codex_cli_rs"));
    }

    #[test]
    fn users_are_hashed_stably_and_only_told_when_configured() {
        let one = of(&[("helicone-user-id", "ada@example.org")])
            .user
            .expect("a user");
        let other = of(&[("helicone-user-id", "bob@example.org")])
            .user
            .expect("a user");
        assert_eq!(one, "13407dfd2021bf2951b1e2009f72eb13");
        assert_ne!(one, other);
        let facts = RequestFacts {
            user: Some("ada@example.org".to_owned()),
            session: Some("body".to_owned()),
            ..RequestFacts::default()
        };
        let hashed = Attribution::merged(None, Some(&facts), true);
        assert_eq!(hashed.user.as_deref(), Some(one.as_str()));
        let plain = Attribution::merged(None, Some(&facts), false);
        assert_eq!(plain.user.as_deref(), Some("ada@example.org"));
    }

    #[test]
    fn a_header_goes_before_the_body_for_the_session() {
        let headers = Attribution {
            session: Some("header".to_owned()),
            ..Attribution::default()
        };
        let facts = RequestFacts {
            session: Some("body".to_owned()),
            ..RequestFacts::default()
        };
        let session = |headers| Attribution::merged(headers, Some(&facts), true).session;
        assert_eq!(session(Some(&headers)).as_deref(), Some("header"));
        assert_eq!(session(None).as_deref(), Some("body"));
    }

    #[test]
    fn values_are_capped_and_control_characters_refused() {
        let long = "é".repeat(500);
        let session = of(&[("x-tokengauge-session", &long)])
            .session
            .expect("a session");
        assert_eq!(session.chars().count(), MAX_VALUE);
        assert_eq!(of(&[("x-tokengauge-session", "a\tb")]).session, None);
        assert_eq!(of(&[("x-tokengauge-experiment", "  ")]).experiment, None);
        assert_eq!(clean("a\u{9d}b"), None);
    }

    #[test]
    fn only_a_valid_traceparent_gives_a_trace_id() {
        const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
        let trace = |text: String| of(&[("traceparent", &text)]).trace_id;
        let valid = format!("00-{TRACE}-00f067aa0ba902b7-01");
        assert_eq!(trace(valid).as_deref(), Some(TRACE));
        assert_eq!(trace(format!("00-{TRACE}-00f067aa0ba902b7")), None);
    }
}
