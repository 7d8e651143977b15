//! Calls over time.

use super::Warehouse;
use super::figure::{Figure, Key, Kind, Level, Merge, measure, sketches};
use super::sql::{GENERATED, Span, conditions};
use crate::answer::point;
use crate::history::MAX_POINTS;
use crate::ledger::aggregates::Sums;
use crate::ledger::{MAX_STEP, QueryError};
use crate::query::{Filter, SeriesMetric, Timeseries};
use crate::sketch::histograms;
use std::time::Duration;

/// How long before a time calls may have begun that generated in it, in milliseconds.
const EARLIER: i64 = 3_600_000;
/// The steps of sums in seconds.
const GRAIN: i64 = Level::Fine.seconds();
/// The tokens of a call lie in at most this many steps after the first.
const MOST: i64 = 600;

impl Warehouse {
    /// Percentiles over time, in steps of whole seconds on multiples of `step` since 1970; of more than 1,000 the
    /// newest. The tokens of a call lie evenly over the time in which they were generated.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn timeseries(
        &self,
        filter: &Filter,
        metric: SeriesMetric,
        step: Duration,
    ) -> Result<Timeseries, QueryError> {
        let width = i64::try_from(step.as_secs()).unwrap_or(i64::MAX);
        if width == 0 || step > MAX_STEP {
            return Err(QueryError::step());
        }
        let mut found = Timeseries {
            step: width as u64,
            ..Timeseries::default()
        };
        let Some((from, to)) = self.steps(filter, width)? else {
            return Ok(found);
        };
        let count = usize::try_from((to - from) / width).unwrap_or(0);
        let mut sums = vec![Sums::default(); count];
        self.calls_by_step(filter, metric, (from, width), &mut sums)?;
        let tokens = self.tokens_by_step(filter, (from, to), width, count)?;
        let sketches = sums.iter().map(|sums| metric.sketch(sums));
        let (bounds, counts) = histograms(sketches);
        let points = sums.iter().zip(tokens).zip(counts).enumerate();
        found.points = points
            .map(|(at, ((sums, (streamed, spread)), counts))| {
                let rate = |tokens: f64| tokens / width as f64;
                let tokens = Some((rate(streamed + spread), rate(spread)));
                let begins = from + at as i64 * width;
                let mut point = point(begins, width, metric, sums, tokens);
                point.counts = counts;
                point
            })
            .collect();
        found.bounds = bounds;
        Ok(found)
    }

    /// The whole steps that cover the requested time, in seconds since 1970. Without a requested time, they run from
    /// the first call to the last call.
    fn steps(&self, filter: &Filter, width: i64) -> Result<Option<(i64, i64)>, QueryError> {
        let span = Span::of(filter);
        let since = match span.since {
            Some(since) => Some(since),
            None => self.first_ms()?,
        };
        let until = match span.until {
            Some(until) => Some(until),
            None => self.last_ms()?.map(|last| last + 1),
        };
        let (Some(since), Some(until)) = (since, until) else {
            return Ok(None);
        };
        let from = since.div_euclid(1_000).div_euclid(width) * width;
        let to = ((until + 999).div_euclid(1_000) + width - 1).div_euclid(width) * width;
        let from = from.max(to - (MAX_POINTS as i64).saturating_mul(width));
        Ok((to > from).then_some((from, to)))
    }

    /// Adds up the calls that began in each step.
    fn calls_by_step(
        &self,
        filter: &Filter,
        metric: SeriesMetric,
        (from, width): (i64, i64),
        sums: &mut [Sums],
    ) -> Result<(), QueryError> {
        let [tps, _, ttft] = sketches();
        let sketch = match metric {
            SeriesMetric::Tps => tps,
            SeriesMetric::Ttft => ttft,
        };
        let figures = [measure("calls"), measure("errors"), sketch];
        let span = Span {
            since: Some(from * 1_000),
            until: Some((from + width * sums.len() as i64) * 1_000),
        };
        let keys = [Key::start("begins", width)];
        let calls = self.summed(Kind::Calls, filter, span, &keys, &figures, [&[]; 2])?;
        let merged = figures.each_ref().map(Figure::merged).join(", ");
        let step = format!("intDiv(s.begins - {from}, {width})");
        let statement = format!("SELECT {step}, {merged} FROM {calls} GROUP BY s.begins");
        for row in self.rows(&statement)? {
            let step = row.whole(0).and_then(|step| usize::try_from(step).ok());
            let Some(sums) = step.and_then(|step| sums.get_mut(step)) else {
                continue;
            };
            (sums.calls, sums.errors) = (row.count(1) as i64, row.count(2) as i64);
            let sketch = match metric {
                SeriesMetric::Tps => &mut sums.tps,
                SeriesMetric::Ttft => &mut sums.ttft,
            };
            row.sketch(3, sketch);
        }
        Ok(())
    }

    /// The tokens that were generated in each step, by streams and by answers that arrived whole.
    fn tokens_by_step(
        &self,
        filter: &Filter,
        (from, to): (i64, i64),
        width: i64,
        count: usize,
    ) -> Result<Vec<(f64, f64)>, QueryError> {
        let mut tokens = vec![(0.0, 0.0); count];
        let statement = match width % GRAIN {
            0 => self.generated_by_step(filter, (from, to), width)?,
            _ => self.generated_by_call(filter, (from, to), width, count)?,
        };
        for row in self.rows(&statement)? {
            let step = row.whole(0).and_then(|step| usize::try_from(step).ok());
            if let Some(tokens) = step.and_then(|step| tokens.get_mut(step)) {
                *tokens = (row.number(1).unwrap_or(0.0), row.number(2).unwrap_or(0.0));
            }
        }
        Ok(tokens)
    }

    /// The statement for steps that sums can tell apart.
    fn generated_by_step(
        &self,
        filter: &Filter,
        (from, to): (i64, i64),
        width: i64,
    ) -> Result<String, QueryError> {
        let span = Span {
            since: Some(from * 1_000 - EARLIER),
            until: Some(to * 1_000),
        };
        let (keys, figures) = ([Key::start("begins", GRAIN)], [generated()]);
        let calls = self.summed(Kind::Calls, filter, span, &keys, &figures, [&[]; 2])?;
        Ok(format!(
            "SELECT intDiv(s.begins + intDiv(place, 2) * {GRAIN} - {from}, {width}) AS step, \
             sumIf(tokens, place % 2 = 0), sumIf(tokens, place % 2 = 1) \
             FROM (SELECT begins, generated FROM {calls}) AS s \
             ARRAY JOIN mapKeys(s.generated) AS place, mapValues(s.generated) AS tokens \
             WHERE s.begins + intDiv(place, 2) * {GRAIN} >= {from} GROUP BY step"
        ))
    }

    /// The statement for all steps.
    fn generated_by_call(
        &self,
        filter: &Filter,
        (from, to): (i64, i64),
        width: i64,
        count: usize,
    ) -> Result<String, QueryError> {
        let last = count as i64 - 1;
        // The part of the call's time that lies in the step; everything of a call that took no time.
        let share = format!(
            "if(ends > begins, greatest(least(toFloat64({from} + (step + 1) * {width}), ends) - \
             greatest(toFloat64({from} + step * {width}), begins), 0) / (ends - begins), 1)"
        );
        let fields = format!(
            "came_whole, generated_from AS begins, generated_to AS ends, arrayJoin(range(toUInt64(greatest(floor((begins - {from}) / {width}), 0)), \
             toUInt64(greatest(least(floor((ends - {from}) / {width}), {last}) + 1, 0)))) AS step, \
             {GENERATED} * ({share}) AS part"
        );
        let span = Span {
            since: Some(from * 1_000 - EARLIER),
            until: Some(to * 1_000),
        };
        let mut all = conditions(filter);
        all.push(format!("isNotNull({GENERATED})"));
        let parts = self.select(&fields, span, &all, "")?;
        Ok(format!(
            "SELECT step, sumIf(part, NOT came_whole), sumIf(part, came_whole) FROM ({parts}) GROUP BY step"
        ))
    }
}

/// The tokens that calls generated in each step of [`GRAIN`] seconds: the key is twice the number of steps since the one in which
/// the call began, plus one for a response that arrived whole.
pub(super) fn generated() -> Figure {
    let (first, last) = (
        format!("toUInt64(greatest(floor(generated_from / {GRAIN}), 0))"),
        format!("toUInt64(greatest(floor(generated_to / {GRAIN}), 0))"),
    );
    let steps = format!("range({first}, least({last}, {first} + {MOST}) + 1)");
    let share = format!(
        "if(generated_to > generated_from, greatest(least(toFloat64((step + 1) * {GRAIN}), generated_to) - \
         greatest(toFloat64(step * {GRAIN}), generated_from), 0) / (generated_to - generated_from), 1)"
    );
    let key = format!("toInt32((step - intDiv(started_ms, {GRAIN} * 1000)) * 2 + came_whole)");
    Figure::new(
        "generated",
        format!(
            "sumMapIf(mapFromArrays(arrayMap(step -> {key}, {steps}), \
             arrayMap(step -> assumeNotNull({GENERATED}) * ({share}), {steps})), isNotNull({GENERATED}))"
        ),
        Merge::Map,
    )
}
