//! The headers of Codex. Their names are so generic that they are read only if the user agent is
//! Codex.

use http::HeaderMap;
use serde::Deserialize;

/// Session headers in order of precedence.
pub(super) const SESSION: &[&str] = &["session-id", "session_id", "thread-id", "conversation_id"];

/// Whether the request is from Codex: `codex_cli_rs/…`, `codex_exec/…`, `Codex Desktop/…`.
pub(super) fn is(headers: &HeaderMap) -> bool {
    let agent = headers.get(http::header::USER_AGENT);
    let start = agent.and_then(|agent| agent.as_bytes().get(..5));
    start.is_some_and(|start| start.eq_ignore_ascii_case(b"codex"))
}

#[derive(Default, Deserialize)]
pub(super) struct Turn {
    pub(super) session_id: Option<String>,
    pub(super) thread_id: Option<String>,
    agent_name: Option<String>,
}

impl Turn {
    pub(super) fn of(headers: &HeaderMap) -> Turn {
        let sent = headers.get("x-codex-turn-metadata");
        let read = sent.and_then(|sent| serde_json::from_slice(sent.as_bytes()).ok());
        read.unwrap_or_default()
    }

    pub(super) fn subagent(&self) -> Option<&str> {
        self.agent_name
            .as_deref()
            .filter(|name| name.len() > 1 && *name != "/root")
    }

    pub(super) fn parent(&self) -> Option<&str> {
        let (parent, _) = self.subagent()?.rsplit_once('/')?;
        Some(parent).filter(|parent| !parent.is_empty() && *parent != "/root")
    }
}
