//! Distributions of what calls are like, by model, route, workload and hour.

use super::Warehouse;
use super::sql::{Span, class_of, class_of_length_place, finished, text, value_of};
use crate::ledger::QueryError;
use crate::query::{
    Dimension, Distribution, DistributionSelector, DistributionSeries, Distributions, OUTCOMES,
    SESSION_CLASSES, Signal, UNKNOWN_BUCKET, hours,
};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_core::concurrency::LARGEST;
use tokengauge_core::finish_class::FinishClass;
use tokengauge_core::lengths::PROMPT_BOUNDS;

/// The class of an observation without a value, such as an outcome.
const NO_CLASS: i64 = -32_768;

/// The SQL of the values that a call adds: the signal's place, the bucket, the class of the value and the value in the
/// units of its sum.
fn observations() -> String {
    let mut all = Vec::new();
    let mut observe = |signal: Signal, condition: &str, bucket: &str, value: &str| {
        let value = format!("assumeNotNull({value})");
        all.push(format!(
            "if({condition}, [({}, toUInt8({bucket}), {}, toInt64(round({value} * {})))], [])",
            number(signal),
            class_of(&value),
            signal.scale()
        ));
    };
    for (signal, tokens) in [
        (Signal::InputTokens, "input_tokens"),
        (Signal::OutputTokens, "output_tokens"),
        (Signal::CachedInputTokens, "reported_cached_input_tokens"),
    ] {
        observe(signal, &format!("isNotNull({tokens})"), "0", tokens);
    }
    let prompt = class_of_length_place("input_tokens", &PROMPT_BOUNDS);
    observe(
        Signal::Ttft,
        "isNotNull(ttft_seconds) AND NOT ifNull(warm_up, 0)",
        &format!("ifNull({prompt}, {UNKNOWN_BUCKET})"),
        "ttft_seconds",
    );
    let streams = LARGEST.iter().enumerate();
    let streams: Vec<String> = streams
        .map(|(place, largest)| format!("concurrency <= {largest}, {place}"))
        .collect();
    observe(
        Signal::Tps,
        "isNotNull(output_tokens_per_second) AND NOT ifNull(warm_up, 0)",
        &format!(
            "multiIf(isNull(concurrency), {UNKNOWN_BUCKET}, {}, {})",
            streams.join(", "),
            LARGEST.len()
        ),
        "output_tokens_per_second",
    );
    observe(
        Signal::TokenRatio,
        "ifNull(operation_class = 'generation', 0) AND ifNull(outcome, 'complete') = 'complete' AND \
         ifNull(normalised_output_tokens > 0, 0) AND isNotNull(reported_output_tokens)",
        "0",
        "reported_output_tokens / normalised_output_tokens",
    );
    let mut happened = |signal: Signal, condition: &str, bucket: usize| {
        all.push(format!(
            "if({condition}, [({}, toUInt8({bucket}), toInt16({NO_CLASS}), toInt64(0))], [])",
            number(signal)
        ));
    };
    for (place, outcome) in OUTCOMES.into_iter().enumerate() {
        let is = format!("ifNull(outcome, 'complete') = {}", text(outcome.as_str()));
        happened(Signal::Outcome, &is, place);
    }
    for class in FinishClass::ALL {
        happened(Signal::FinishReason, &finished(class), class as usize);
    }
    // Any number that tells sessions apart does.
    all.push(format!(
        "[({}, toUInt8(0), toInt16(cityHash64(ifNull(session, toString(started_ms))) % {SESSION_CLASSES}), toInt64(0))]",
        number(Signal::Session)
    ));
    format!("arrayJoin(arrayConcat({}))", all.join(", "))
}

fn number(signal: Signal) -> String {
    format!("toUInt8({})", signal as usize)
}

impl Warehouse {
    /// The distributions by model, route and workload of calls that began in whole hours: from the one that `since` is in to
    /// the one that `until` is in.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn distributions(
        &self,
        selector: &DistributionSelector,
        since: Option<SystemTime>,
        until: Option<SystemTime>,
    ) -> Result<BTreeMap<DistributionSeries, Distributions>, QueryError> {
        let mut found: BTreeMap<DistributionSeries, Distributions> = BTreeMap::new();
        self.visit(selector, (since, until), "0", |series, _, cell| {
            cell.add_to(found.entry(series).or_default());
        })?;
        Ok(found)
    }

    /// The distributions of each hour of one series, by its beginning.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn hours_of_series(
        &self,
        series: &DistributionSeries,
        since: Option<SystemTime>,
        until: Option<SystemTime>,
    ) -> Result<BTreeMap<SystemTime, Distributions>, QueryError> {
        let selector = DistributionSelector {
            model: series.model.clone(),
            route: series.route.clone(),
            workload: series.workload.clone(),
        };
        // An absent name selects all, so that it takes this one series out of several.
        self.hours(&selector, (since, until), |found| found == series)
    }

    /// The distributions of each hour for all matching series together, by the beginning of the hour.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn hourly_distributions(
        &self,
        selector: &DistributionSelector,
        since: Option<SystemTime>,
        until: Option<SystemTime>,
    ) -> Result<BTreeMap<SystemTime, Distributions>, QueryError> {
        self.hours(selector, (since, until), |_| true)
    }

    fn hours(
        &self,
        selector: &DistributionSelector,
        time: (Option<SystemTime>, Option<SystemTime>),
        counts: impl Fn(&DistributionSeries) -> bool,
    ) -> Result<BTreeMap<SystemTime, Distributions>, QueryError> {
        let mut found: BTreeMap<SystemTime, Distributions> = BTreeMap::new();
        let hour = "intDiv(started_ms, 3600000) * 3600";
        self.visit(selector, time, hour, |series, hour, cell| {
            if counts(&series) {
                let hour = SystemTime::UNIX_EPOCH + Duration::from_secs(hour);
                cell.add_to(found.entry(hour).or_default());
            }
        })?;
        Ok(found)
    }

    fn visit(
        &self,
        selector: &DistributionSelector,
        (since, until): (Option<SystemTime>, Option<SystemTime>),
        hour: &str,
        mut each: impl FnMut(DistributionSeries, u64, Cell),
    ) -> Result<(), QueryError> {
        let (from, to) = hours(since, until);
        let span = Span {
            since: (from > 0).then(|| from.saturating_mul(1_000)),
            until: (to < i64::MAX / 1_000).then(|| to.saturating_mul(1_000)),
        };
        let model = value_of(Dimension::Model);
        let mut all = vec!["operation_class IN ('generation', 'embedding')".to_owned()];
        for (column, wanted) in [
            (model.as_str(), &selector.model),
            ("route", &selector.route),
            ("workload", &selector.workload),
        ] {
            all.extend(
                wanted
                    .iter()
                    .map(|name| format!("{column} = {}", text(name))),
            );
        }
        let fields = format!(
            "{model} AS model_name, route, workload, {hour} AS hour, {} AS seen",
            observations()
        );
        let calls = self.select(&fields, span, &all, "")?;
        let statement = format!(
            "SELECT model_name, route, workload, hour, seen.1 AS signal, seen.2 AS bucket, seen.3 AS class, \
             count(), sum(seen.4) FROM ({calls}) GROUP BY model_name, route, workload, hour, signal, bucket, class"
        );
        for row in self.rows(&statement)? {
            let series = DistributionSeries {
                model: row.text(0),
                route: row.text(1),
                workload: row.text(2),
            };
            let signal = row.whole(4).and_then(|place| usize::try_from(place).ok());
            let Some(signal) = signal.and_then(|place| Signal::ALL.get(place).copied()) else {
                continue;
            };
            let class = row.whole(6).filter(|class| *class != NO_CLASS);
            let cell = Cell {
                signal,
                bucket: row.count(5) as usize,
                class: class.and_then(|class| i32::try_from(class).ok()),
                calls: row.count(7),
                total: row.whole(8).unwrap_or(0),
            };
            each(series, row.count(3), cell);
        }
        Ok(())
    }
}

/// The observations of one class.
struct Cell {
    signal: Signal,
    bucket: usize,
    class: Option<i32>,
    calls: u64,
    total: i64,
}

impl Cell {
    fn add_to(&self, distributions: &mut Distributions) {
        let mut cell = Distribution::of_sums(self.signal, self.calls, self.total);
        if let Some(class) = self.class {
            cell.sketch.count(class, self.calls);
        }
        distributions.cell(self.signal, self.bucket).merge(&cell);
    }
}
