//! Turns of a conversation whose prompt should have come from the provider's cache and did not.
//!
//! Agents send the whole conversation again with each turn. Providers keep prompts for a while.
//! They charge a tenth to a half of the price for input that begins like a kept prompt.
//!
//! A turn is a **break** if three conditions hold by the provider's own counts:
//! - The previous turn of the agent was read from the cache or written to it.
//! - The prompt has not become shorter.
//! - Less than half of the possible tokens came from the cache.
//!
//! Providers that report no cached input never have breaks. If the prompt of a call was analyzed, its
//! record says whether the turn is a break, and why.

use crate::session::Session;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::dimension::model_of;
use tokengauge_core::prompt::{PromptBreak, PromptBreakCause};
use tokengauge_core::prompt_cache::{CachedTurn, KEPT_FOR, is_break};
use tokengauge_core::time::RECORDED_RESOLUTION;
use tokengauge_store::history::TimedCall;

/// A turn whose prompt should have come from a cache and did not.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CacheBreak {
    /// The id of the call.
    pub call: String,
    /// The start of the call, in seconds from the start of the session.
    pub offset: f64,
    /// The agent that made the call.
    pub agent: Option<String>,
    /// The most likely cause of the break.
    pub cause: BreakCause,
    /// Seconds between the agent's previous call and this call.
    pub idle_seconds: f64,
    /// The number of input tokens that could have come from the cache.
    pub expected: u64,
    /// The number of input tokens that came from the cache.
    pub cached: u64,
    /// The cost of the missed tokens in US dollars; `null` if the price is unknown.
    pub cost_usd: Option<f64>,
    /// The section of the prompt that changed, such as `system` or `tool search`; `null` if it is
    /// unknown or nothing changed.
    #[serde(default)]
    pub section: Option<String>,
    /// Identifies the kind of change across sessions.
    #[serde(default)]
    pub change: Option<String>,
}

/// Why a prompt did not come from a cache.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum BreakCause {
    /// Another model answered. Caches are separate for each model.
    OtherModel,
    /// The call went to another upstream, or to another endpoint of a self-hosted upstream.
    OtherUpstream,
    /// The previous turn was longer ago than caches keep a prompt.
    Idle,
    /// The beginning of the prompt changed: its tools, its system prompt, a time in it. If the prompt
    /// was not analyzed, the provider may also have dropped it early.
    PrefixChanged,
    /// The provider dropped an unchanged prompt early.
    Evicted,
}

impl BreakCause {
    pub const ALL: [BreakCause; 5] = [
        BreakCause::OtherModel,
        BreakCause::OtherUpstream,
        BreakCause::Idle,
        BreakCause::PrefixChanged,
        BreakCause::Evicted,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            BreakCause::OtherModel => "other_model",
            BreakCause::OtherUpstream => "other_upstream",
            BreakCause::Idle => "idle",
            BreakCause::PrefixChanged => "prefix_changed",
            BreakCause::Evicted => "evicted",
        }
    }
}

impl From<PromptBreakCause> for BreakCause {
    fn from(cause: PromptBreakCause) -> BreakCause {
        match cause {
            PromptBreakCause::Changed => BreakCause::PrefixChanged,
            PromptBreakCause::Evicted => BreakCause::Evicted,
            PromptBreakCause::Idle => BreakCause::Idle,
            PromptBreakCause::OtherModel => BreakCause::OtherModel,
            PromptBreakCause::OtherUpstream => BreakCause::OtherUpstream,
        }
    }
}

/// The facts about a turn that the next turn is compared with.
#[derive(Clone, Debug, PartialEq)]
struct Turn {
    model: Option<String>,
    upstream: String,
    endpoint: Option<String>,
    started: SystemTime,
    ended: SystemTime,
    cache: CachedTurn,
}

impl Turn {
    /// The turn of a call; `None` if the call reports nothing about caches.
    fn of(call: &TimedCall<'_>) -> Option<Turn> {
        let record = call.record;
        let cache = CachedTurn::of(record)?;
        Some(Turn {
            model: model_of(record).map(str::to_owned),
            upstream: record.upstream.clone(),
            endpoint: record.endpoint.clone(),
            started: call.started,
            ended: call.ended,
            cache,
        })
    }
}

/// The break if `call` broke the cache that the turn `before` left. `in_use` says whether any
/// earlier turn of the conversation was cached.
fn cache_break(
    before: &Turn,
    in_use: bool,
    call: &TimedCall<'_>,
    price: impl Fn(&CallRecord, u64) -> Option<f64>,
) -> Option<CacheBreak> {
    let turn = Turn::of(call)?;
    let record = call.record;
    let cached = turn.cache.cached;
    let expected = before.cache.kept;
    let is_shorter = turn.cache.input < before.cache.input;
    if !in_use || is_shorter || !is_break(expected, cached) {
        return None;
    }
    let idle = idle(before, call);
    let cost = price(record, cached).zip(price(record, expected));
    Some(CacheBreak {
        call: record.id.clone(),
        offset: 0.0,
        agent: record.agent.clone(),
        cause: cause(before, &turn, idle),
        idle_seconds: idle.as_secs_f64(),
        expected,
        cached,
        cost_usd: cost.map(|(paid, possible)| (paid - possible).max(0.0)),
        section: None,
        change: None,
    })
}

/// The break that the analysis of the prompt found.
fn analyzed(before: Option<&Turn>, call: &TimedCall<'_>, found: &PromptBreak) -> CacheBreak {
    let record = call.record;
    let cached = record.tokens.reported.cached_input.unwrap_or(0);
    let idle = before.map_or(Duration::ZERO, |before| idle(before, call));
    CacheBreak {
        call: record.id.clone(),
        offset: 0.0,
        agent: record.agent.clone(),
        cause: found.cause.into(),
        idle_seconds: idle.as_secs_f64(),
        expected: cached.saturating_add(found.tokens),
        cached,
        cost_usd: found.cost_usd,
        section: found.section.clone(),
        change: found.change.clone(),
    }
}

fn idle(before: &Turn, call: &TimedCall<'_>) -> Duration {
    let since = call.started.duration_since(before.ended);
    since.unwrap_or_default()
}

fn cause(before: &Turn, turn: &Turn, idle: Duration) -> BreakCause {
    if before.model != turn.model {
        return BreakCause::OtherModel;
    }
    if before.upstream != turn.upstream || before.endpoint != turn.endpoint {
        return BreakCause::OtherUpstream;
    }
    if idle > KEPT_FOR {
        BreakCause::Idle
    } else {
        BreakCause::PrefixChanged
    }
}

/// The breaks of a session. Each agent has a separate conversation. A turn that begins before the
/// end of the previous one does not continue it.
pub(crate) fn cache_breaks(
    session: &Session<'_>,
    price: impl Fn(&CallRecord, u64) -> Option<f64>,
) -> Vec<CacheBreak> {
    let mut conversations: HashMap<Option<&str>, Conversation> = HashMap::new();
    let mut breaks = Vec::new();
    for (number, call) in session.calls().iter().enumerate() {
        let agent = call.record.agent.as_deref();
        let conversation = conversations.entry(agent).or_default();
        if let Some(mut found) = conversation.next(call, &price) {
            found.offset = session.start(number);
            breaks.push(found);
        }
    }
    breaks
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation {
    last: Option<Turn>,
    in_use: bool,
}

impl Conversation {
    /// Adds a call. Returns its break, if it is one.
    pub(crate) fn next(
        &mut self,
        call: &TimedCall<'_>,
        price: impl Fn(&CallRecord, u64) -> Option<f64>,
    ) -> Option<CacheBreak> {
        let turn = Turn::of(call)?;
        let before = self.last.as_ref();
        let before = before.filter(|before| before.ended <= call.started + RECORDED_RESOLUTION);
        let found = match &call.record.cache_break {
            Some(found) => Some(analyzed(before, call, found)),
            None if call.record.prompt.is_some() => None,
            None => before.and_then(|before| cache_break(before, self.in_use, call, price)),
        };
        self.in_use |= turn.cache.shows;
        // In live traffic calls end in another order than they begin.
        if self
            .last
            .as_ref()
            .is_none_or(|last| last.started <= turn.started)
        {
            self.last = Some(turn);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::{TestCall, session_of};

    /// A turn with `input` tokens, of which `cached` came from the cache.
    fn turn(id: &str, start: f64, input: u64, cached: u64) -> TestCall {
        TestCall {
            input: Some((input, Some(cached), None)),
            ..TestCall::new(id, "main", start, start + 2.0)
        }
    }

    /// One dollar per thousand tokens, and a tenth of that for cached ones.
    fn price(record: &CallRecord, cached: u64) -> Option<f64> {
        let input = record.tokens.reported.input?;
        Some((input - cached) as f64 / 1e3 + cached as f64 / 1e4)
    }

    fn breaks(calls: &[TestCall]) -> Vec<CacheBreak> {
        let records: Vec<_> = calls.iter().map(TestCall::record).collect();
        cache_breaks(&session_of(&records), price)
    }

    fn causes(calls: &[TestCall]) -> Vec<(String, BreakCause)> {
        let found = breaks(calls).into_iter();
        found.map(|one| (one.call, one.cause)).collect()
    }

    #[test]
    fn a_conversation_that_grows_in_the_cache_has_no_break() {
        let calls = [
            turn("a", 0.0, 2_000, 0),
            turn("b", 5.0, 2_500, 1_920),
            turn("c", 10.0, 3_000, 2_432),
        ];
        assert_eq!(breaks(&calls), []);
    }

    #[test]
    fn a_turn_right_after_another_follows_it() {
        // Starts are whole milliseconds, but lengths are not. The second call began 50 µs after the
        // end of the first.
        let first = TestCall {
            input: Some((4_000, Some(3_968), None)),
            ..TestCall::new("a", "main", 0.0, 2.0008)
        };
        let overlaps = turn("b", 1.99, 5_000, 0);
        assert_eq!(causes(&[first.clone(), overlaps]), []);
        let follows = turn("b", 2.0, 5_000, 0);
        assert_eq!(
            causes(&[first, follows]),
            [("b".to_owned(), BreakCause::PrefixChanged)]
        );
    }

    #[test]
    fn each_cause_has_its_name() {
        let begun = [turn("a", 0.0, 4_000, 0), turn("b", 5.0, 4_500, 3_968)];
        let with = |last: TestCall| causes(&[begun[0].clone(), begun[1].clone(), last]);
        let one = |cause| vec![("c".to_owned(), cause)];
        assert_eq!(
            with(turn("c", 10.0, 5_000, 0)),
            one(BreakCause::PrefixChanged)
        );
        assert_eq!(with(turn("c", 308.0, 5_000, 0)), one(BreakCause::Idle));
        let other = TestCall {
            model: "n",
            ..turn("c", 308.0, 5_000, 0)
        };
        assert_eq!(with(other), one(BreakCause::OtherModel));
        let other = TestCall {
            upstream: "v",
            ..turn("c", 10.0, 5_000, 0)
        };
        assert_eq!(with(other), one(BreakCause::OtherUpstream));
    }

    #[test]
    fn an_analyzed_prompt_says_itself_whether_it_is_a_break() {
        let calls = [
            turn("a", 0.0, 4_000, 0),
            turn("b", 5.0, 4_500, 3_968),
            turn("c", 20.0, 6_000, 500),
        ];
        let mut records: Vec<_> = calls.iter().map(TestCall::record).collect();
        records[2].prompt = Some(Box::default());
        assert_eq!(cache_breaks(&session_of(&records), price), []);
        records[2].cache_break = Some(Box::new(PromptBreak {
            cause: PromptBreakCause::Evicted,
            section: None,
            tokens: 3_000,
            cost_usd: Some(0.5),
            block: None,
            change: None,
        }));
        let found = cache_breaks(&session_of(&records), price);
        assert_eq!(found.len(), 1);
        let one = &found[0];
        assert_eq!((one.cause, one.cost_usd), (BreakCause::Evicted, Some(0.5)));
        assert_eq!(
            (one.expected, one.cached, one.idle_seconds),
            (3_500, 500, 13.0)
        );
    }

    #[test]
    fn a_break_says_what_it_cost() {
        let calls = [
            turn("a", 0.0, 4_000, 0),
            turn("b", 5.0, 4_500, 3_968),
            turn("c", 20.0, 6_000, 500),
        ];
        let found = breaks(&calls);
        assert_eq!(found.len(), 1);
        let one = &found[0];
        assert_eq!((one.expected, one.cached), (4_500, 500));
        assert_eq!((one.offset, one.idle_seconds), (20.0, 13.0));
        // 4,000 tokens at the difference of the two prices.
        let cost = one.cost_usd.expect("a cost");
        assert!((cost - 4.0 * 0.9).abs() < 1e-9, "{cost}");
    }

    #[test]
    fn what_is_no_break_is_none() {
        // This provider never caches.
        let never = [turn("a", 0.0, 4_000, 0), turn("b", 5.0, 4_500, 0)];
        assert_eq!(breaks(&never), []);
        // This provider reports nothing about caches.
        let mut silent = [
            turn("a", 0.0, 4_000, 0),
            turn("b", 5.0, 4_500, 3_968),
            turn("c", 9.0, 5_000, 0),
        ];
        silent[2].input = Some((5_000, None, None));
        assert_eq!(breaks(&silent), []);
        // The agent summarised the conversation, so the prompt became shorter.
        silent[2].input = Some((1_500, Some(0), None));
        assert_eq!(breaks(&silent), []);
        // Half of the prompt came from the cache.
        silent[2].input = Some((5_000, Some(2_250), None));
        assert_eq!(breaks(&silent), []);
        // These prompts are too short to be cached.
        let short = [
            turn("a", 0.0, 900, 0),
            turn("b", 5.0, 950, 640),
            turn("c", 9.0, 990, 0),
        ];
        assert_eq!(breaks(&short), []);
    }

    #[test]
    fn what_was_written_is_what_can_be_read() {
        let with = |id: &str, start, input, cached, written| TestCall {
            input: Some((input, Some(cached), Some(written))),
            ..turn(id, start, input, cached)
        };
        // 3,000 of 9,000 tokens were marked for the cache, and came from it.
        let calls = [
            with("a", 0.0, 9_000, 0, 3_000),
            with("b", 9.0, 9_500, 3_000, 0),
        ];
        assert_eq!(breaks(&calls), []);
        let broken = [calls[0].clone(), with("b", 9.0, 9_500, 0, 3_000)];
        assert_eq!(
            causes(&broken),
            [("b".to_owned(), BreakCause::PrefixChanged)]
        );
    }

    #[test]
    fn agents_have_conversations_of_their_own() {
        let sub = |id: &str, start, input, cached| TestCall {
            agent: "sub".to_owned(),
            ..turn(id, start, input, cached)
        };
        let calls = [
            turn("a", 0.0, 8_000, 0),
            turn("b", 5.0, 8_500, 7_936),
            sub("c", 8.0, 2_000, 0),
            turn("d", 12.0, 9_000, 8_448),
            sub("e", 14.0, 9_100, 1_920),
        ];
        assert_eq!(breaks(&calls), []);
    }
}
