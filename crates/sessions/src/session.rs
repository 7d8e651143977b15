//! The calls of a session, timed from its start.

use std::time::SystemTime;
use tokengauge_core::call::CallRecord;
use tokengauge_store::history::TimedCall;
use tokengauge_store::query::{Filter, Page, Paging};

/// If a session has more calls, only the last ones are read.
const MAX_CALLS: usize = 5_000;
const PAGE: usize = 1_000;

/// The calls of one session, sorted by start.
#[derive(Clone, Debug)]
pub struct Session<'a> {
    calls: Vec<TimedCall<'a>>,
    started: SystemTime,
    seconds: f64,
}

impl<'a> Session<'a> {
    /// The session of these calls, in any order. Calls with an unreadable start, and nested calls
    /// (`nested`), are omitted.
    pub fn of(calls: impl IntoIterator<Item = TimedCall<'a>>) -> Session<'a> {
        let mut calls: Vec<TimedCall<'a>> = calls.into_iter().filter(|call| !call.nested).collect();
        calls.sort_by(|one, other| {
            (one.started, &one.record.id).cmp(&(other.started, &other.record.id))
        });
        let surplus = calls.len().saturating_sub(MAX_CALLS);
        calls.drain(..surplus);
        let started = calls
            .first()
            .map_or(SystemTime::UNIX_EPOCH, |call| call.started);
        let mut session = Session {
            calls,
            started,
            seconds: 0.0,
        };
        session.seconds = (0..session.calls.len())
            .map(|call| session.end(call))
            .fold(0.0, f64::max);
        session
    }

    pub fn calls(&self) -> &[TimedCall<'a>] {
        &self.calls
    }

    pub fn started(&self) -> SystemTime {
        self.started
    }

    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// When a call began, in seconds from the session's start.
    pub fn start(&self, call: usize) -> f64 {
        let since = self.calls[call].started.duration_since(self.started);
        since.unwrap_or_default().as_secs_f64()
    }

    /// When a call ended, in seconds from the session's start.
    pub fn end(&self, call: usize) -> f64 {
        let lasted = self.calls[call].record.seconds.duration.unwrap_or(0.0);
        self.start(call) + lasted.max(0.0)
    }
}

/// The last calls of the session `id`, newest first. `ask` returns a page of a store's calls.
///
/// # Errors
/// The errors of `ask`.
pub fn last_calls<E>(
    id: &str,
    ask: impl Fn(&Filter, &Paging) -> Result<Page<CallRecord>, E>,
) -> Result<Vec<CallRecord>, E> {
    let filter = Filter {
        session: Some(id.to_owned()),
        ..Filter::default()
    };
    let mut paging = Paging {
        limit: PAGE,
        cursor: None,
    };
    let mut calls = Vec::new();
    loop {
        let page = ask(&filter, &paging)?;
        calls.extend(page.rows);
        paging.cursor = page.next_cursor;
        if paging.cursor.is_none() || calls.len() >= MAX_CALLS {
            return Ok(calls);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::time::Duration;
    use tokengauge_core::time::rfc3339_millis;

    #[derive(Clone, Debug)]
    pub(crate) struct TestCall {
        pub(crate) id: String,
        pub(crate) agent: String,
        pub(crate) parent: Option<String>,
        pub(crate) start: f64,
        pub(crate) end: f64,
        /// Input tokens, tokens from a cache, and tokens written to a cache.
        pub(crate) input: Option<(u64, Option<u64>, Option<u64>)>,
        pub(crate) model: &'static str,
        pub(crate) upstream: &'static str,
    }

    impl TestCall {
        pub(crate) fn new(id: &str, agent: &str, start: f64, end: f64) -> TestCall {
            TestCall {
                id: id.to_owned(),
                agent: agent.to_owned(),
                parent: None,
                start,
                end,
                input: None,
                model: "m",
                upstream: "u",
            }
        }

        pub(crate) fn parent(mut self, parent: &str) -> TestCall {
            self.parent = Some(parent.to_owned());
            self
        }

        pub(crate) fn record(&self) -> CallRecord {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs_f64(1_000_000.0 + self.start);
            let (input, cached, written) = self.input.unwrap_or_default();
            let length = self.end - self.start;
            serde_json::from_value(serde_json::json!({
                "id": self.id,
                "started_at": rfc3339_millis(at).to_string(),
                "route": "r",
                "upstream": self.upstream,
                "dialect": "openai_chat",
                "operation": "chat",
                "operation_class": "generation",
                "model": self.model,
                "outcome": "complete",
                "status": 200,
                "streamed": true,
                "finish_reasons": ["stop"],
                "session": "s",
                "agent": self.agent,
                "parent_agent": self.parent,
                "warm_up": false,
                "tokens": {
                    "normalised": {"output": 10},
                    "reported": {
                        "input": self.input.map(|_| input),
                        "cached_input": cached,
                        "cache_write": written,
                        "output": 10,
                    },
                    "source": "reported",
                },
                "seconds": {
                    "connect": length * 0.1,
                    "ttft": length * 0.5,
                    "last_token": length * 0.9,
                    "duration": length,
                },
                "tps": {},
                "frames": 10,
                "stalls": 0,
                "bytes": {"request": 1, "response": 1},
            }))
            .expect("a record")
        }
    }

    pub(crate) fn session_of(records: &[CallRecord]) -> Session<'_> {
        Session::of(records.iter().map(TimedCall::of))
    }
}
