//! The throughput of upstreams by concurrency, from the times of calls.

use super::Warehouse;
use super::sql::{GENERATED, Span, has, value_of};
use crate::history::{CapacityBucket, capacity_since_change};
use crate::ledger::QueryError;
use crate::query::{CapacityRow, CapacitySums, Dimension, Filter, class_of_concurrency};
use std::collections::BTreeMap;

/// The longest time in seconds of which every second is read.
const READ: i64 = 6 * 3_600;
/// Calls that last longer count for this many seconds after their start.
const LONGEST: i64 = 3_600;

impl Warehouse {
    /// The throughput of each upstream by the number of concurrent generations of all processes. Only times and the upstream of
    /// the filter count. The tokens of a call lie evenly over the time in which they were generated. If the time is
    /// longer than six hours, every n-th second is read and stands for n seconds.
    ///
    /// # Errors
    /// As with every question: see [`QueryError`].
    pub fn capacity(&self, filter: &Filter) -> Result<Vec<CapacityRow>, QueryError> {
        let span = Span::of(filter);
        let first = match span.since {
            Some(since) => Some(since),
            None => self.first_ms()?,
        };
        let last = match span.until {
            Some(until) => Some(until),
            None => self.last_ms()?,
        };
        let (Some(first), Some(last)) = (first, last) else {
            return Ok(Vec::new());
        };
        let (first, last) = (first.div_euclid(1_000), last.div_euclid(1_000) + 1);
        let every = ((last - first) / READ).max(1);
        let within = |from: &str, to: &str| {
            format!(
                "greatest(least({to}, toFloat64(second + 1)) - greatest({from}, toFloat64(second)), 0)"
            )
        };
        let begins = "started_ms / 1000";
        let share = |from: &str, to: &str| {
            format!(
                "if({to} > {from}, {} / ({to} - {from}), 1)",
                within(from, to)
            )
        };
        let decode_from = "(started_ms / 1000 + assumeNotNull(ttft_seconds))";
        let decode_to = "(started_ms / 1000 + assumeNotNull(last_token_seconds))";
        let decodes =
            "isNotNull(decode_us) AND isNotNull(ttft_seconds) AND isNotNull(last_token_seconds)";
        let seconds = format!(
            "arrayJoin(arrayMap(place -> toInt64(place * {every}), range(\
             toUInt64(ceil(greatest({first}, intDiv(started_ms, 1000)) / {every})), \
             toUInt64(floor(least({last} - 1, toInt64(generated_to), intDiv(started_ms, 1000) + {LONGEST}) / {every}) + 1))))"
        );
        let upstream = value_of(Dimension::Upstream);
        let fields = format!(
            "{upstream} AS name, {seconds} AS second, {} * 1000 AS busy, ifNull({GENERATED}, 0) * ({}) AS generated, \
             if({decodes}, ifNull(decode_tokens, 0) * ({}), 0) AS decoded, \
             if({decodes}, {} * 1000, 0) AS decode_ms",
            within(begins, "generated_to"),
            share("generated_from", "generated_to"),
            share(decode_from, decode_to),
            within(decode_from, decode_to),
        );
        let mut conditions = vec!["generates".to_owned()];
        let wanted = filter.names.get(Dimension::Upstream);
        conditions.extend(wanted.map(|wanted| has(Dimension::Upstream, &upstream, wanted)));
        let span = Span {
            since: Some((first - LONGEST) * 1_000),
            until: Some(last * 1_000),
        };
        let parts = self.select(&fields, span, &conditions, "")?;
        let statement = format!(
            "SELECT name, intDiv(second, 3600) * 3600 AS hour, toInt64(greatest(round(millis / 1000), 1)) AS streams, \
             toInt64(round(sum(least(millis, 1000)))), toInt64(round(sum(tokens))), toInt64(round(sum(decoding))), \
             toInt64(round(sum(decode_millis))) FROM \
             (SELECT name, second, sum(busy) AS millis, sum(generated) AS tokens, sum(decoded) AS decoding, \
             sum(decode_ms) AS decode_millis FROM ({parts}) GROUP BY name, second) \
             WHERE millis > 0 GROUP BY name, hour, streams ORDER BY name, hour, streams"
        );
        let mut upstreams: BTreeMap<String, Vec<CapacityBucket>> = BTreeMap::new();
        for row in self.rows(&statement)? {
            let hours = upstreams
                .entry(row.text(0).unwrap_or_default())
                .or_default();
            let at = row.count(1);
            if hours.last().is_none_or(|hour| hour.at != at) {
                let sums = BTreeMap::new();
                hours.push(CapacityBucket { at, sums });
            }
            let all = |place| row.count(place) * every.unsigned_abs();
            let sums = CapacitySums {
                busy_millis: all(3),
                tokens: all(4),
                decoded: all(5),
                decode_millis: all(6),
            };
            if let Some(hour) = hours.last_mut() {
                let streams = u32::try_from(row.count(2)).unwrap_or(u32::MAX);
                let class = class_of_concurrency(streams);
                hour.sums.entry(class).or_default().merge(&sums);
            }
        }
        let rows = upstreams.iter();
        Ok(rows
            .map(|(name, hours)| capacity_since_change(name, hours))
            .collect())
    }
}
