//! Decides when a session is a runaway: it spends unusually much, or repeats a tool call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// The number of parts of a window. Old figures leave the window one part at a time.
const SLOTS: usize = 20;
/// The limit for tool calls of one session that are remembered.
const MAX_TOOL_CALLS: usize = 512;

#[derive(Clone, Debug, PartialEq)]
pub struct RunawayLimits {
    /// The time up to now that is evaluated.
    pub window: Duration,
    /// The ceiling for tokens of input and output per minute, averaged over the window.
    pub tokens_per_minute: Option<f64>,
    /// The ceiling for US dollars per minute, averaged over the window.
    pub usd_per_minute: Option<f64>,
    /// The ceiling for equal tool calls of one agent within the window.
    pub same_tool_calls: Option<u32>,
    /// Ceilings relative to usual sessions, in addition to the fixed ceilings of tokens and
    /// dollars.
    pub times_usual: Option<TimesUsual>,
}

/// A ceiling relative to usual sessions. For each session of a workload and agent, the highest rate
/// per minute in a window counts. The median of these rates is the usual rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimesUsual {
    /// The ceiling is this number of times the median.
    pub times: f64,
    /// Only sessions with a call within this time count.
    pub over: Duration,
    /// If fewer sessions count, there is no such ceiling.
    pub min_sessions: usize,
}

impl TimesUsual {
    /// The default of `over`.
    pub const OVER: Duration = Duration::from_secs(6 * 3600);
    /// The default of `min_sessions`.
    pub const MIN_SESSIONS: usize = 20;
}

impl RunawayLimits {
    /// The default of `window`.
    pub const WINDOW: Duration = Duration::from_secs(10 * 60);
    /// The default of `usd_per_minute`.
    pub const USD_PER_MINUTE: f64 = 5.0;
    /// The default of `same_tool_calls`.
    pub const SAME_TOOL_CALLS: u32 = 20;
}

impl Default for RunawayLimits {
    fn default() -> RunawayLimits {
        RunawayLimits {
            window: RunawayLimits::WINDOW,
            tokens_per_minute: None,
            usd_per_minute: Some(RunawayLimits::USD_PER_MINUTE),
            same_tool_calls: Some(RunawayLimits::SAME_TOOL_CALLS),
            times_usual: None,
        }
    }
}

/// Why a session is a runaway.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum RunawayReason {
    /// The session uses too many tokens of input and output per minute.
    Tokens,
    /// The session spends too many US dollars per minute.
    Dollars,
    /// One agent of the session repeats a tool call with equal arguments.
    SameToolCall,
}

impl RunawayReason {
    pub const ALL: [RunawayReason; 3] = [
        RunawayReason::Tokens,
        RunawayReason::Dollars,
        RunawayReason::SameToolCall,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            RunawayReason::Tokens => "tokens",
            RunawayReason::Dollars => "dollars",
            RunawayReason::SameToolCall => "same_tool_call",
        }
    }
}

/// A figure of a runaway session, with the ceiling that the figure exceeds.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct RunawayFigure {
    /// The kind of figure.
    pub reason: RunawayReason,
    /// Tokens or US dollars per minute, averaged over the window, or the number of equal tool calls
    /// in the window.
    pub value: f64,
    /// The ceiling, in the unit of `value`.
    pub limit: f64,
    /// The usual value, in the unit of `value`. Set only if the ceiling is relative to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual: Option<f64>,
}

impl RunawayFigure {
    /// The figure in a few words, for logs and messages.
    pub fn in_words(&self) -> String {
        let RunawayFigure { value, limit, .. } = self;
        let times = |usual: f64| format!(", {:.0} times what is usual", value / usual);
        let times = self.usual.map_or(String::new(), times);
        match self.reason {
            RunawayReason::Tokens => {
                format!("{value:.0} tokens a minute (above {limit:.0}{times})")
            }
            RunawayReason::Dollars if self.usual.is_some() => {
                format!("{value:.2} USD a minute (above {limit:.2}{times})")
            }
            RunawayReason::Dollars => format!("{value:.2} USD a minute (above {limit})"),
            RunawayReason::SameToolCall => {
                format!("the same tool call {value:.0} times (limit {limit:.0})")
            }
        }
    }
}

/// The contribution of a finished call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent<'a> {
    pub(super) tokens: u64,
    pub(super) usd: f64,
    pub(super) tool_calls: &'a [u64],
}

/// Tokens and US dollars per minute, averaged over a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) tokens: f64,
    pub(super) usd: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Activity {
    window: Duration,
    origin: Instant,
    /// The number of the newest slot.
    latest: u64,
    slots: [(u64, f64); SLOTS],
    tool_calls: VecDeque<(Instant, u64)>,
    /// The highest rates at the end of any call.
    pub(super) most: Rates,
}

impl Activity {
    pub(super) fn new(window: Duration, now: Instant) -> Activity {
        Activity {
            window,
            origin: now,
            latest: 0,
            slots: Default::default(),
            tool_calls: VecDeque::new(),
            most: Rates::default(),
        }
    }

    pub(super) fn add(&mut self, now: Instant, spent: Spent<'_>) {
        self.advance(now);
        let (tokens, usd) = &mut self.slots[(self.latest % SLOTS as u64) as usize];
        *tokens += spent.tokens;
        *usd += spent.usd;
        for hash in spent.tool_calls {
            if self.tool_calls.len() >= MAX_TOOL_CALLS {
                self.tool_calls.pop_front();
            }
            self.tool_calls.push_back((now, *hash));
        }
        let rates = self.rates();
        self.most.tokens = self.most.tokens.max(rates.tokens);
        self.most.usd = self.most.usd.max(rates.usd);
    }

    fn rates(&self) -> Rates {
        let minutes = self.window.as_secs_f64() / 60.0;
        let tokens: u64 = self.slots.iter().map(|(tokens, _)| tokens).sum();
        let usd: f64 = self.slots.iter().map(|(_, usd)| usd).sum();
        Rates {
            tokens: tokens as f64 / minutes,
            usd: usd / minutes,
        }
    }

    /// Forgets everything before the window.
    fn advance(&mut self, now: Instant) {
        let slot = self.window.as_secs_f64() / SLOTS as f64;
        let since = now.saturating_duration_since(self.origin).as_secs_f64();
        let number = (since / slot) as u64;
        let passed = number.saturating_sub(self.latest).min(SLOTS as u64);
        for gone in 1..=passed {
            let at = (number + SLOTS as u64 - (passed - gone)) % SLOTS as u64;
            self.slots[at as usize] = (0, 0.0);
        }
        self.latest = self.latest.max(number);
        let old = |at: &Instant| now.saturating_duration_since(*at) > self.window;
        while self.tool_calls.front().is_some_and(|(at, _)| old(at)) {
            self.tool_calls.pop_front();
        }
    }

    /// The figures at `now` that are above their ceilings. Some ceilings are relative to `usual`.
    pub(super) fn above(
        &mut self,
        now: Instant,
        limits: &RunawayLimits,
        usual: Option<Rates>,
    ) -> Vec<RunawayFigure> {
        self.advance(now);
        let rates = self.rates();
        let times = limits.times_usual.map(|ceiling| ceiling.times);
        let over = |reason, value: f64, limit: Option<f64>, usual: Option<f64>| {
            let usual = usual.filter(|usual| *usual > 0.0);
            let by_usual = times.zip(usual).map(|(times, usual)| times * usual);
            let fixed = limit.filter(|limit| value > *limit);
            // A ceiling that somebody configured says more than a relative one.
            let limit = fixed.or(by_usual.filter(|limit| value > *limit))?;
            Some(RunawayFigure {
                reason,
                value,
                limit,
                usual: usual.filter(|_| fixed.is_none()),
            })
        };
        let of = |part: fn(Rates) -> f64| usual.map(part);
        let (tokens, usd) = (limits.tokens_per_minute, limits.usd_per_minute);
        let found = [
            over(
                RunawayReason::Tokens,
                rates.tokens,
                tokens,
                of(|usual| usual.tokens),
            ),
            over(
                RunawayReason::Dollars,
                rates.usd,
                usd,
                of(|usual| usual.usd),
            ),
            self.repeated(limits),
        ];
        found.into_iter().flatten().collect()
    }

    fn repeated(&self, limits: &RunawayLimits) -> Option<RunawayFigure> {
        let most = limits.same_tool_calls?;
        let value = self.most_equal();
        (value >= most).then(|| RunawayFigure {
            reason: RunawayReason::SameToolCall,
            value: f64::from(value),
            limit: f64::from(most),
            usual: None,
        })
    }

    /// The number of repetitions of the most frequent tool call.
    fn most_equal(&self) -> u32 {
        let mut counts: HashMap<u64, u32> = HashMap::new();
        for (_, hash) in &self.tool_calls {
            *counts.entry(*hash).or_default() += 1;
        }
        counts.into_values().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> RunawayLimits {
        RunawayLimits {
            window: Duration::from_secs(600),
            tokens_per_minute: Some(1_000.0),
            usd_per_minute: Some(0.5),
            same_tool_calls: Some(5),
            times_usual: None,
        }
    }

    fn spent(tokens: u64, usd: f64, tool_calls: &[u64]) -> Spent<'_> {
        Spent {
            tokens,
            usd,
            tool_calls,
        }
    }

    fn reasons(activity: &mut Activity, now: Instant) -> Vec<RunawayReason> {
        let above = activity.above(now, &limits(), None);
        above.iter().map(|figure| figure.reason).collect()
    }

    #[test]
    fn a_rate_is_the_sum_of_the_window_over_all_of_its_minutes() {
        let begin = Instant::now();
        let at = |second| begin + Duration::from_secs(second);
        let mut activity = Activity::new(limits().window, begin);
        activity.add(at(1), spent(9_000, 4.0, &[]));
        assert_eq!(reasons(&mut activity, at(1)), [], "900 a minute, 0.4 USD");
        activity.add(at(90), spent(2_000, 0.5, &[]));
        assert_eq!(
            activity.above(at(90), &limits(), None),
            [RunawayFigure {
                reason: RunawayReason::Tokens,
                value: 1_100.0,
                limit: 1_000.0,
                usual: None,
            }]
        );
        activity.add(at(95), spent(0, 1.0, &[]));
        let both = [RunawayReason::Tokens, RunawayReason::Dollars];
        assert_eq!(reasons(&mut activity, at(95)), both);
        assert_eq!(reasons(&mut activity, at(631)), []);
        assert_eq!(reasons(&mut activity, at(100_000)), []);
        activity.add(at(100_001), spent(10_001, 0.0, &[]));
        assert_eq!(reasons(&mut activity, at(100_001)), [RunawayReason::Tokens]);
    }

    #[test]
    fn the_same_tool_call_counts_however_many_others_are_between() {
        let begin = Instant::now();
        let at = |second| begin + Duration::from_secs(second);
        let mut activity = Activity::new(limits().window, begin);
        for turn in 0..4 {
            activity.add(at(turn * 10), spent(0, 0.0, &[7, 100 + turn]));
        }
        assert_eq!(reasons(&mut activity, at(40)), []);
        activity.add(at(50), spent(0, 0.0, &[7]));
        let found = activity.above(at(50), &limits(), None);
        assert_eq!(found[0].reason, RunawayReason::SameToolCall);
        assert_eq!((found[0].value, found[0].limit), (5.0, 5.0));
        assert_eq!(reasons(&mut activity, at(601)), [], "the first has left");
        for hash in 0..100_000 {
            activity.add(at(700), spent(0, 0.0, &[hash]));
        }
        assert_eq!(activity.tool_calls.len(), MAX_TOOL_CALLS);
    }

    #[test]
    fn a_ceiling_by_what_is_usual_stands_beside_the_fixed_one() {
        let begin = Instant::now();
        let limits = RunawayLimits {
            times_usual: Some(TimesUsual {
                times: 10.0,
                over: TimesUsual::OVER,
                min_sessions: 1,
            }),
            ..limits()
        };
        let usual = |tokens| Some(Rates { tokens, usd: 0.0 });
        let mut activity = Activity::new(limits.window, begin);
        activity.add(begin, spent(4_000, 0.1, &[]));
        assert_eq!(activity.above(begin, &limits, None), []);
        assert_eq!(activity.above(begin, &limits, usual(50.0)), [], "8 times");
        let found = activity.above(begin, &limits, usual(20.0));
        let by_usual = RunawayFigure {
            reason: RunawayReason::Tokens,
            value: 400.0,
            limit: 200.0,
            usual: Some(20.0),
        };
        assert_eq!(found, [by_usual], "no price says nothing of dollars");
        assert_eq!(
            found[0].in_words(),
            "400 tokens a minute (above 200, 20 times what is usual)"
        );
        activity.add(begin, spent(8_000, 0.0, &[]));
        let found = activity.above(begin, &limits, usual(20.0));
        assert_eq!((found[0].limit, found[0].usual), (1_000.0, None));
    }

    #[test]
    fn a_ceiling_that_is_switched_off_is_never_passed() {
        let begin = Instant::now();
        let none = RunawayLimits {
            tokens_per_minute: None,
            usd_per_minute: None,
            same_tool_calls: None,
            ..limits()
        };
        let mut activity = Activity::new(none.window, begin);
        activity.add(begin, spent(u64::MAX / 2, 1e9, &[1; 100]));
        assert_eq!(activity.above(begin, &none, None), []);
    }
}
