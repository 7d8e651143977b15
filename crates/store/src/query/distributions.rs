//! Distributions of properties of calls, by model, route and workload.

use crate::figures::CallFigures;
use crate::sketch::Sketch;
use std::collections::BTreeMap;
use std::time::SystemTime;
use tokengauge_core::call::{OperationClass, Outcome};
use tokengauge_core::finish_class::FinishClass;

/// A property of a call. The ledger stores the indices in [`Signal::ALL`], so new signals must come
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    /// Input tokens, as reported, otherwise as counted.
    InputTokens,
    /// Output tokens, as reported, otherwise as counted.
    OutputTokens,
    /// Input tokens read from a cache, as reported.
    CachedInputTokens,
    /// Seconds to the first token, by class of prompt length.
    Ttft,
    /// Decode speed in tokens per second, by class of concurrency when the call began.
    Tps,
    /// Reported ÷ normalised output tokens of complete answers.
    TokenRatio,
    Outcome,
    FinishReason,
    Session,
}

impl Signal {
    pub const ALL: [Signal; 9] = [
        Signal::InputTokens,
        Signal::OutputTokens,
        Signal::CachedInputTokens,
        Signal::Ttft,
        Signal::Tps,
        Signal::TokenRatio,
        Signal::Outcome,
        Signal::FinishReason,
        Signal::Session,
    ];

    /// Units of the sums per unit of the signal.
    pub(crate) fn scale(self) -> f64 {
        match self {
            Signal::Ttft | Signal::TokenRatio => 1e6,
            Signal::Tps => 1e3,
            _ => 1.0,
        }
    }
}

/// The outcomes by their numbers in the ledger: new ones must come last.
pub(crate) const OUTCOMES: [Outcome; 9] = [
    Outcome::Complete,
    Outcome::ClientCancelled,
    Outcome::UpstreamReset,
    Outcome::ErrorEvent,
    Outcome::HttpError,
    Outcome::Timeout,
    Outcome::Rejected,
    Outcome::Unreachable,
    Outcome::Drained,
];
pub const UNKNOWN_BUCKET: usize = 15;

/// Number of classes that distinguish sessions.
pub const SESSION_CLASSES: u64 = 1_000;

/// Selects calls. A missing part matches everything; all given parts must match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DistributionSelector {
    /// The model that answered, otherwise the requested model.
    pub model: Option<String>,
    pub route: Option<String>,
    pub workload: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DistributionSeries {
    pub model: Option<String>,
    pub route: Option<String>,
    pub workload: Option<String>,
}

impl DistributionSelector {
    pub(crate) fn matches(&self, series: &DistributionSeries) -> bool {
        let same = |wanted: &Option<String>, found| wanted.is_none() || wanted == found;
        same(&self.model, &series.model)
            && same(&self.route, &series.route)
            && same(&self.workload, &series.workload)
    }
}

/// The distributions of calls of one or more series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distributions {
    cells: BTreeMap<(Signal, usize), Distribution>,
}

impl Distributions {
    /// The distribution of a signal in one bucket: an index of `PROMPT_LENGTHS` for
    /// [`Signal::Ttft`], an index of `CONCURRENCIES` for [`Signal::Tps`], [`UNKNOWN_BUCKET`] if
    /// that is unknown, or 0 for other signals.
    pub fn bucket(&self, signal: Signal, bucket: usize) -> Option<&Distribution> {
        self.cells.get(&(signal, bucket))
    }

    pub fn buckets(&self, signal: Signal) -> impl Iterator<Item = (usize, &Distribution)> {
        let cells = self.cells.range((signal, 0)..=(signal, usize::MAX));
        cells.map(|((_, bucket), cell)| (*bucket, cell))
    }

    pub fn all(&self, signal: Signal) -> Distribution {
        let mut all = Distribution::default();
        self.buckets(signal).for_each(|(_, cell)| all.merge(cell));
        all
    }

    pub fn outcomes(&self) -> impl Iterator<Item = (Outcome, u64)> {
        let cells = self.buckets(Signal::Outcome);
        cells.filter_map(|(at, cell)| Some((*OUTCOMES.get(at)?, cell.calls)))
    }

    /// The classes of finish reasons with their frequency. A call with several choices may have
    /// several.
    pub fn finish_reasons(&self) -> impl Iterator<Item = (FinishClass, u64)> {
        let cells = self.buckets(Signal::FinishReason);
        cells.filter_map(|(at, cell)| Some((*FinishClass::ALL.get(at)?, cell.calls)))
    }

    pub fn calls(&self) -> u64 {
        self.outcomes().map(|(_, calls)| calls).sum()
    }

    /// The effective number of sessions (Kish): many sessions of which one has most calls say
    /// little more than one session. A call without a session counts as a session. Sessions are
    /// distinguished by `SESSION_CLASSES`, which is an upper bound of the number. If no call has
    /// a stored session, this is the number of calls. Calls of hours from before sessions were
    /// stored are assumed to be like the others.
    ///
    /// ```
    /// use tokengauge_store::query::Distributions;
    ///
    /// let mut hour = Distributions::default();
    /// for call in 0..20 {
    ///     hour.observe_session(if call < 10 { 1 } else { 2 });
    /// }
    /// assert_eq!(hour.sessions(), 2.0);
    /// ```
    pub fn sessions(&self) -> f64 {
        let cell = self.bucket(Signal::Session, 0);
        let classes = cell.into_iter().flat_map(Distribution::points);
        let squares: f64 = classes.map(|(_, calls)| (calls as f64).powi(2)).sum();
        let known = cell.map_or(0, Distribution::calls) as f64;
        let all = (self.calls() as f64).max(known);
        if squares > 0.0 {
            (known * all / squares).min(all)
        } else {
            all
        }
    }

    pub fn observe_session(&mut self, session: u64) {
        self.observe(
            Signal::Session,
            0,
            Some(Sketch::middle((session % SESSION_CLASSES) as i32)),
        );
    }

    /// Adds an observation. `value` is `None` for counts, such as outcomes.
    pub fn observe(&mut self, signal: Signal, bucket: usize, value: Option<f64>) {
        self.cell(signal, bucket).add((signal, bucket, value));
    }

    pub(crate) fn add(&mut self, call: &CallFigures) {
        observations(call, |observation| {
            let (signal, bucket, value) = observation;
            self.observe(signal, bucket, value);
        });
        self.observe_session(call.session);
    }

    pub(crate) fn cell(&mut self, signal: Signal, bucket: usize) -> &mut Distribution {
        self.cells.entry((signal, bucket)).or_default()
    }

    pub(crate) fn cells(&self) -> impl Iterator<Item = (Signal, usize, &Distribution)> {
        let cells = self.cells.iter();
        cells.map(|((signal, bucket), cell)| (*signal, *bucket, cell))
    }

    pub fn merge_signal(&mut self, other: &Distributions, signal: Signal, bucket: Option<usize>) {
        let cells = other.buckets(signal);
        for (at, cell) in cells.filter(|(at, _)| bucket.is_none_or(|bucket| bucket == *at)) {
            self.cell(signal, at).merge(cell);
        }
    }

    pub fn merge(&mut self, other: &Distributions) {
        for (signal, bucket, cell) in other.cells() {
            self.cell(signal, bucket).merge(cell);
        }
    }
}

/// The distribution of one signal. The mean is exact, quantiles are within 1 %.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    pub(crate) calls: u64,
    /// Sum of the values times [`Signal::scale`].
    pub(crate) total: i64,
    scale: f64,
    pub(crate) sketch: Sketch,
}

impl Distribution {
    pub(crate) fn of_sums(signal: Signal, calls: u64, total: i64) -> Distribution {
        Distribution {
            calls,
            total,
            scale: signal.scale(),
            sketch: Sketch::default(),
        }
    }

    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The mean; `None` without calls, and for counts.
    pub fn mean(&self) -> Option<f64> {
        let known = self.sketch.len() > 0;
        known.then(|| self.total as f64 / self.scale / self.calls as f64)
    }

    /// The `q` quantile by nearest rank; `None` without calls, and for counts.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        self.sketch.quantile(q)
    }

    /// A histogram: values with their frequency, ascending.
    pub fn points(&self) -> impl Iterator<Item = (f64, u64)> {
        self.sketch.points()
    }

    fn add(&mut self, (signal, _, value): Observation) {
        self.calls += 1;
        self.scale = signal.scale();
        let Some(value) = value else { return };
        self.total = self
            .total
            .saturating_add((value * self.scale).round() as i64);
        self.sketch.add(value);
    }

    pub fn merge(&mut self, other: &Distribution) {
        self.calls += other.calls;
        self.total = self.total.saturating_add(other.total);
        if other.calls > 0 {
            self.scale = other.scale;
        }
        self.sketch.merge(&other.sketch);
    }
}

pub(crate) type Observation = (Signal, usize, Option<f64>);

pub(crate) fn observations(call: &CallFigures, mut observe: impl FnMut(Observation)) {
    let plain = [
        (Signal::InputTokens, call.input),
        (Signal::OutputTokens, call.output),
        (Signal::CachedInputTokens, call.cached_input),
    ];
    for (signal, tokens) in plain {
        if let Some(tokens) = tokens {
            observe((signal, 0, Some(tokens as f64)));
        }
    }
    if let Some(us) = call.ttft() {
        let bucket = call.prompt_class().unwrap_or(UNKNOWN_BUCKET);
        observe((Signal::Ttft, bucket, Some(us as f64 / 1e6)));
    }
    if let Some(milli) = call.tps() {
        let bucket = call.concurrency_class().unwrap_or(UNKNOWN_BUCKET);
        observe((Signal::Tps, bucket, Some(milli as f64 / 1e3)));
    }
    if let Some(ratio) = call
        .token_ratio()
        .filter(|_| call.class == OperationClass::Generation)
    {
        observe((Signal::TokenRatio, 0, Some(ratio)));
    }
    if let Some(place) = OUTCOMES.iter().position(|known| *known == call.outcome) {
        observe((Signal::Outcome, place, None));
    }
    for class in FinishClass::ALL {
        if call.finish.contains(class) {
            observe((Signal::FinishReason, class as usize, None));
        }
    }
}

/// The whole hours of a time, in seconds since 1970: from the hour of its start to the hour of its
/// end.
pub(crate) fn hours(since: Option<SystemTime>, until: Option<SystemTime>) -> (i64, i64) {
    let seconds = |at: SystemTime| {
        let since = at
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        (since.as_secs(), since.subsec_nanos() > 0)
    };
    let since = since.map_or(0, |at| seconds(at).0 / HOUR * HOUR);
    let until = until.map_or(i64::MAX as u64, |at| {
        let (seconds, more) = seconds(at);
        (seconds + u64::from(more)).div_ceil(HOUR) * HOUR
    });
    (since as i64, until as i64)
}

const HOUR: u64 = 3_600;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn signals_are_at_their_places_and_outcomes_all_there() {
        for (place, signal) in Signal::ALL.into_iter().enumerate() {
            assert_eq!(signal as usize, place);
        }
        for (place, outcome) in OUTCOMES.into_iter().enumerate() {
            assert_eq!(outcome as usize, place);
        }
    }

    #[test]
    fn a_time_is_of_whole_hours() {
        let at = |ms| Some(SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
        assert_eq!(hours(at(3_600_000), at(7_200_000)), (3_600, 7_200));
        assert_eq!(hours(at(3_599_999), at(7_200_001)), (0, 10_800));
        assert_eq!(hours(None, None), (0, i64::MAX));
    }
}
