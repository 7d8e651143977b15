//! Simulated hours of one series.

use rand::RngExt;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_core::concurrency::concurrency_class;
use tokengauge_core::lengths::prompt_length_class;
use tokengauge_drift::{DriftState, Series, Settings, SignalDrift, SignalName, assess};
use tokengauge_stats::Generator;
use tokengauge_store::query::{DistributionSeries, Distributions, Signal};

pub const MONDAY: u64 = 1_762_732_800 / 3_600;
pub const WEEK: u64 = 168;

pub type Hours = BTreeMap<SystemTime, Distributions>;

#[derive(Clone, Copy)]
pub struct Level {
    pub calls: u32,
    /// The number of sessions in half a day; 0 for calls without a session.
    pub sessions: u32,
    pub input: f64,
    pub output: f64,
    /// Seconds to the first token as a function of prompt tokens.
    pub ttft: fn(f64) -> f64,
    pub tps: f64,
    pub streams: u32,
    pub failed: f64,
}

impl Default for Level {
    fn default() -> Self {
        Level {
            calls: 60,
            sessions: 0,
            input: 1_500.0,
            output: 300.0,
            ttft: |tokens| 0.3 + tokens / 10_000.0,
            tps: 50.0,
            streams: 4,
            failed: 0.01,
        }
    }
}

/// `count` hours from the Monday on. `level` describes each hour by its number.
pub fn hours(random: &mut Generator, count: u64, level: impl Fn(u64) -> Level) -> Hours {
    let hours = (0..count).map(|number| (at(number), one(random, number, level(number))));
    hours.collect()
}

pub fn at(number: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs((MONDAY + number) * 3_600)
}

fn one(random: &mut Generator, number: u64, level: Level) -> Distributions {
    let mut hour = Distributions::default();
    // A factor that all calls of an hour have in common.
    let hourly = spread(random, 0.05);
    for call in 0..level.calls {
        let input = (level.input * hourly * spread(random, 0.6)).round();
        let output = (level.output * hourly * spread(random, 0.5)).round();
        let ttft = (level.ttft)(input) * spread(random, 0.2);
        hour.observe(Signal::InputTokens, 0, Some(input));
        hour.observe(Signal::OutputTokens, 0, Some(output));
        let class = prompt_length_class(input as u64);
        hour.observe(Signal::Ttft, class, Some(ttft));
        let class = concurrency_class(level.streams);
        hour.observe(Signal::Tps, class, Some(level.tps * spread(random, 0.15)));
        let failed = random.random::<f64>() < level.failed;
        hour.observe(Signal::Outcome, if failed { 4 } else { 0 }, None);
        hour.observe(Signal::FinishReason, 0, None);
        let (part, session) = match level.sessions {
            0 => (number, call),
            sessions => (number / 12, call % sessions),
        };
        hour.observe_session(part * 617 + u64::from(session));
    }
    hour
}

/// A log-normal factor with a median of 1 and this standard deviation of its logarithm.
pub fn spread(random: &mut Generator, sigma: f64) -> f64 {
    let uniform: f64 = (0..12).map(|_| random.random::<f64>()).sum();
    ((uniform - 6.0) * sigma).exp()
}

/// The result for the hours up to `number`.
pub fn seen(hours: &Hours, number: u64, settings: &Settings) -> Series {
    let until: Hours = hours
        .range(..=at(number))
        .map(|(at, calls)| (*at, calls.clone()))
        .collect();
    let now = at(number) + Duration::from_secs(3_599);
    assess(&DistributionSeries::default(), &until, settings, now)
}

/// The first hour from `from` on in which a signal has drifted.
pub fn first_drift(
    hours: &Hours,
    from: u64,
    signal: SignalName,
    settings: &Settings,
) -> Option<u64> {
    let last = hours.len() as u64;
    (from..last).find(|number| drifted(&seen(hours, *number, settings)).contains(&signal))
}

pub fn drifted(series: &Series) -> Vec<SignalName> {
    let signals = series.signals.iter();
    let drifted = signals.filter(|one| one.state == DriftState::Drifted);
    drifted.map(|one| one.signal).collect()
}

pub fn signal(series: &Series, signal: SignalName) -> &SignalDrift {
    let mut signals = series.signals.iter();
    let found = signals.find(|one| one.signal == signal && one.bucket.is_none());
    found.expect("a signal")
}

/// The quotation in docs/drift.md that begins with `begin`, on one line.
pub fn documented(begin: &str) -> String {
    let document = include_str!("../../../../docs/drift.md");
    let quotations = document.split("\n\n");
    let mut quotations = quotations.filter_map(|text| text.strip_prefix("> "));
    let found = quotations.find(|text| text.starts_with(begin));
    found.expect("a quotation").replace("\n> ", " ")
}
