//! Follows sessions while they run. Counts prompt-cache breaks, and finds runaway sessions. All
//! work happens on the subscribers' thread, for a bounded number of sessions.

mod runaway;
mod usual;

use crate::cache::{BreakCause, Conversation};
use parking_lot::Mutex;
use runaway::{Activity, Rates, Spent};
pub use runaway::{RunawayFigure, RunawayLimits, RunawayReason, TimesUsual};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;
use tokengauge_core::alert_notification::{AlertNotification, AlertSubject};
use tokengauge_core::call::{CallRecord, OperationClass};
use tokengauge_core::finished::FinishedCall;
use tokengauge_core::printable::printable;
use tokengauge_core::subscriber::Subscriber;
use tokengauge_core::time::{Timestamp, since_1970};
use tokengauge_store::history::TimedCall;
use usual::{SessionKind, Usual};

/// Beyond this number of sessions, those that were idle longest are forgotten.
const MAX_SESSIONS: usize = 10_000;
const MAX_AGENTS: usize = 64;
const FORGOTTEN_AT_ONCE: usize = MAX_SESSIONS / 8;
const MAX_NAMED: usize = 5;

/// The cost of a call in US dollars if this number of its input tokens had come from a cache;
/// `None` if it is unknown.
pub type CachePrice = Arc<dyn Fn(&CallRecord, u64) -> Option<f64> + Send + Sync>;

/// A runaway session: it spends unusually much, or repeats a tool call.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "RunawaySession")]
pub struct Runaway {
    /// The id of the session.
    pub session: String,
    /// The agent of the session's last call.
    pub agent: Option<String>,
    /// The workload of the session's last call.
    pub workload: Option<String>,
    /// Whether the session id is guessed. Quotas ignore guessed sessions.
    pub guessed: bool,
    /// When the session became a runaway, in RFC 3339 format.
    pub since: Timestamp,
    /// The figures of the session that are above their ceilings.
    pub figures: Vec<RunawayFigure>,
}

impl Runaway {
    /// The session, its agent and the figures above their ceilings, for logs and messages.
    pub fn in_words(&self) -> String {
        let figures: Vec<String> = self.figures.iter().map(RunawayFigure::in_words).collect();
        let agent = self.agent.as_deref();
        let agent = agent.map_or(String::new(), |agent| format!(" of {agent}"));
        let whose = format!("{}{agent}", self.session);
        format!("{}: {}", printable(&whose), figures.join(", "))
    }
}

/// The number and the cost of prompt-cache breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BreakSum {
    /// The number of turns that broke the cache.
    pub breaks: u64,
    /// The cost of the breaks that have a price, in US dollars.
    pub usd: f64,
}

/// Counts since the start of the process.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchCounts {
    pub breaks: [(BreakCause, BreakSum); 5],
    /// Sessions that became runaways, by the first reason.
    pub found: [(RunawayReason, u64); 3],
    /// Sessions that are runaways now, by each of their reasons.
    pub now: [(RunawayReason, usize); 3],
    /// Sessions and conversations that were forgotten because there were too many.
    pub forgotten: u64,
}

/// Follows sessions from their finished calls.
pub struct SessionWatch {
    state: Mutex<WatchedSessions>,
}

struct WatchedSessions {
    limits: RunawayLimits,
    price: CachePrice,
    sessions: HashMap<Arc<str>, Followed>,
    runaway: BTreeMap<Arc<str>, Runaway>,
    usual: Usual,
    /// The ids of runaway sessions that are not guessed, for quotas.
    named: Arc<HashSet<Arc<str>>>,
    breaks: [BreakSum; 5],
    found: [u64; 3],
    forgotten: u64,
}

struct Followed {
    conversations: HashMap<Option<Box<str>>, Conversation>,
    kind: SessionKind,
    activity: Activity,
    last: Instant,
}

impl SessionWatch {
    /// Creates a watch without sessions and prices, with the default ceilings.
    pub fn new() -> Arc<SessionWatch> {
        let state = WatchedSessions {
            limits: RunawayLimits::default(),
            price: Arc::new(|_, _| None),
            sessions: HashMap::new(),
            runaway: BTreeMap::new(),
            usual: Usual::default(),
            named: Arc::default(),
            breaks: Default::default(),
            found: [0; 3],
            forgotten: 0,
        };
        Arc::new(SessionWatch {
            state: Mutex::new(state),
        })
    }

    /// Applies these ceilings and prices from now on. If the window changes, the counts of sessions
    /// start from zero.
    pub fn change(&self, limits: &RunawayLimits, price: CachePrice) {
        let mut state = self.state.lock();
        state.price = price;
        if state.limits.window != limits.window {
            let window = limits.window;
            for followed in state.sessions.values_mut() {
                followed.activity = Activity::new(window, followed.last);
            }
        }
        state.limits = limits.clone();
        state.usual = Usual::default();
    }

    /// The runaway sessions at `now`, newest first. Sessions that no longer exceed a ceiling are
    /// removed.
    pub fn runaways(&self, now: Instant) -> Vec<Runaway> {
        let mut state = self.state.lock();
        state.look_again(now);
        let mut all: Vec<Runaway> = state.runaway.values().cloned().collect();
        all.sort_by(|one, other| (other.since, &one.session).cmp(&(one.since, &other.session)));
        all
    }

    pub fn runaway_ids(&self, now: Instant) -> Arc<HashSet<Arc<str>>> {
        let mut state = self.state.lock();
        state.look_again(now);
        Arc::clone(&state.named)
    }

    pub fn counts(&self, now: Instant) -> WatchCounts {
        let mut state = self.state.lock();
        state.look_again(now);
        let runs = |reason: RunawayReason| {
            let has = |one: &&Runaway| one.figures.iter().any(|figure| figure.reason == reason);
            state.runaway.values().filter(has).count()
        };
        WatchCounts {
            breaks: BreakCause::ALL.map(|cause| (cause, state.breaks[cause as usize])),
            found: RunawayReason::ALL.map(|reason| (reason, state.found[reason as usize])),
            now: RunawayReason::ALL.map(|reason| (reason, runs(reason))),
            forgotten: state.forgotten,
        }
    }

    /// One notification for all runaway sessions at `now`.
    pub fn notification(&self, now: Instant) -> Option<AlertNotification> {
        let all = self.runaways(now);
        let first = all.last()?;
        let named: Vec<String> = all.iter().take(MAX_NAMED).map(Runaway::in_words).collect();
        let (verb, plural) = match all.len() {
            1 => ("runs", ""),
            _ => ("run", "s"),
        };
        Some(AlertNotification {
            about: AlertSubject::Runaway,
            slo: "sessions".to_owned(),
            severity: "ticket".to_owned(),
            firing: true,
            since: since_1970(first.since.time()),
            summary: format!("{} session{plural} {verb} away", all.len()),
            description: format!("{}.", named.join("; ")),
            cause: None,
            cause_known: false,
            view: "sessions?sort=-cost".to_owned(),
            page: None,
            runbook_url: None,
            dashboard_url: None,
        })
    }

    fn take(&self, call: &FinishedCall) {
        let record = &call.record;
        let Some(session) = record.session.as_deref() else {
            return;
        };
        if call.nested || record.operation_class != OperationClass::Generation {
            return;
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        let key = state.follow(session, call.ended);
        let price = Arc::clone(&state.price);
        let Some(followed) = state.sessions.get_mut(&key) else {
            return;
        };
        followed.last = followed.last.max(call.ended);
        match followed.conversation(record.agent.as_deref()) {
            None => state.forgotten += 1,
            Some(conversation) => {
                let timed = TimedCall::of_finished(call);
                if let Some(found) =
                    conversation.next(&timed, |record, cached| price(record, cached))
                {
                    let sum = &mut state.breaks[found.cause as usize];
                    sum.breaks += 1;
                    sum.usd += found.cost_usd.unwrap_or(0.0);
                }
            }
        }
        let tool_calls = of_agent(record.agent.as_deref(), &call.tool_calls);
        let spent = Spent {
            tokens: tokens(record),
            usd: record.cost_usd.unwrap_or(0.0),
            tool_calls: &tool_calls,
        };
        followed.activity.add(call.ended, spent);
        followed.kind = SessionKind::of(record);
        state.look_at_usual(call.ended);
        let figures = state.above(&key, call.ended);
        if !figures.is_empty() {
            state.runs_away(key, call, figures);
        }
    }
}

impl Followed {
    fn conversation(&mut self, agent: Option<&str>) -> Option<&mut Conversation> {
        let agent = agent.map(Box::from);
        if self.conversations.len() >= MAX_AGENTS && !self.conversations.contains_key(&agent) {
            return None;
        }
        Some(self.conversations.entry(agent).or_default())
    }
}

impl WatchedSessions {
    /// Follows a session. If there are too many, those that were idle longest are forgotten.
    fn follow(&mut self, session: &str, now: Instant) -> Arc<str> {
        if let Some((known, _)) = self.sessions.get_key_value(session) {
            return Arc::clone(known);
        }
        if self.sessions.len() >= MAX_SESSIONS {
            self.forget_idle();
        }
        let key: Arc<str> = session.into();
        let followed = Followed {
            conversations: HashMap::new(),
            kind: SessionKind::default(),
            activity: Activity::new(self.limits.window, now),
            last: now,
        };
        self.sessions.insert(Arc::clone(&key), followed);
        key
    }

    fn forget_idle(&mut self) {
        let mut by_last: Vec<(Instant, Arc<str>)> = self
            .sessions
            .iter()
            .map(|(key, followed)| (followed.last, Arc::clone(key)))
            .collect();
        by_last.sort_unstable();
        for (_, key) in by_last.iter().take(FORGOTTEN_AT_ONCE) {
            self.sessions.remove(key);
            self.forgotten += 1;
        }
    }

    fn runs_away(&mut self, key: Arc<str>, call: &FinishedCall, figures: Vec<RunawayFigure>) {
        let record = &call.record;
        if let Some(known) = self.runaway.get_mut(&key) {
            known.figures = figures;
            return;
        }
        let since = call.timestamps.wall(call.ended);
        let runaway = Runaway {
            session: key.to_string(),
            agent: record.agent.clone(),
            workload: record.workload.clone(),
            guessed: call.guessed_session,
            since: since.into(),
            figures,
        };
        for figure in &runaway.figures {
            self.found[figure.reason as usize] += 1;
        }
        tracing::warn!(why = runaway.in_words(), "a session runs away");
        self.runaway.insert(key, runaway);
        self.name_again();
    }

    fn above(&mut self, key: &Arc<str>, now: Instant) -> Vec<RunawayFigure> {
        let Some(followed) = self.sessions.get_mut(key) else {
            return Vec::new();
        };
        let usual = self.usual.of(&followed.kind);
        followed.activity.above(now, &self.limits, usual)
    }

    /// Updates the usual rates if a ceiling depends on them and they are old.
    fn look_at_usual(&mut self, now: Instant) {
        if let Some(ceiling) = self.limits.times_usual.filter(|_| self.usual.is_old(now)) {
            let recent =
                |followed: &&Followed| now.saturating_duration_since(followed.last) <= ceiling.over;
            let sessions = self.sessions.values().filter(recent);
            let sessions = sessions.map(|followed| (&followed.kind, followed.activity.most));
            self.usual = Usual::among(sessions, ceiling.min_sessions, now);
        }
    }

    /// Removes sessions that are no longer runaways, and updates the figures of the others to
    /// `now`.
    fn look_again(&mut self, now: Instant) {
        let before = self.runaway.len();
        let mut runaway = std::mem::take(&mut self.runaway);
        runaway.retain(|key, runaway| {
            runaway.figures = self.above(key, now);
            !runaway.figures.is_empty()
        });
        self.runaway = runaway;
        if self.runaway.len() != before {
            self.name_again();
        }
    }

    fn name_again(&mut self) {
        let named = self.runaway.iter().filter(|(_, one)| !one.guessed);
        self.named = Arc::new(named.map(|(key, _)| Arc::clone(key)).collect());
    }
}

impl Subscriber for SessionWatch {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        self.take(finished_call);
    }
}

/// Tokens of input and output. The provider's count is preferred to ours.
fn tokens(record: &CallRecord) -> u64 {
    let (reported, ours) = (&record.tokens.reported, &record.tokens.normalised);
    let input = reported.input.or(ours.input).unwrap_or(0);
    input.saturating_add(reported.output.or(ours.output).unwrap_or(0))
}

/// Adds the agent to the hashes of its tool calls, because two agents may make equal calls.
fn of_agent(agent: Option<&str>, hashes: &[u64]) -> Vec<u64> {
    let of = |hash: &u64| {
        let mut hasher = DefaultHasher::new();
        (agent, hash).hash(&mut hasher);
        hasher.finish()
    };
    hashes.iter().map(of).collect()
}
