//! The cost of calls over time, by a dimension.

use super::Warehouse;
use super::rows::Row;
use super::sql::{Span, conditions, text, value_of};
use crate::ledger::QueryError;
use crate::query::{CostQuery, CostSeries, CostSums, Costs, TokenSums};
use std::collections::BTreeMap;

/// What is added up: see [`sums`].
const SUMS: &str = "count() AS calls, countIf(failed), sum(input_tokens) AS input_sum, \
    sum(reported_cached_input_tokens), sum(output_tokens) AS output_sum, sum(reasoning_tokens), \
    sum(cost_nano) AS cost_nano_sum, \
    countIf(isNull(cost_nano) AND (isNotNull(input_tokens) OR isNotNull(output_tokens)))";

fn sums(row: &Row, first: usize) -> CostSums {
    let known = |at| row.whole(first + at).map(|sum| sum.max(0) as u64);
    CostSums {
        calls: row.count(first),
        errors: row.count(first + 1),
        tokens: TokenSums {
            input: known(2),
            cached_input: known(3),
            output: known(4),
            reasoning: known(5),
        },
        cost_usd: row.whole(first + 6).map(|nano| nano as f64 / 1e9),
        unpriced_calls: row.count(first + 7),
    }
}

impl Warehouse {
    /// The cost of calls over time, in steps of whole seconds. Steps begin at multiples of the step since 1970.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn costs(&self, query: &CostQuery) -> Result<Costs, QueryError> {
        let step = query.step.as_secs().max(1);
        let (span, conditions) = (Span::of(&query.filter), conditions(&query.filter));
        let value = value_of(query.by);
        let fields = format!("{value} AS name, {SUMS}, count() OVER () AS names");
        let rest = format!(
            "GROUP BY name ORDER BY cost_nano_sum DESC NULLS LAST, \
             ifNull(input_sum, 0) + ifNull(output_sum, 0) DESC, calls DESC, name ASC NULLS FIRST LIMIT {}",
            query.most
        );
        let rows = self.rows(&self.select(&fields, span, &conditions, &rest)?)?;
        let shown: Vec<Option<String>> = rows.iter().map(|row| row.text(0)).collect();
        let names = rows.first().map_or(0, |row| row.count(9));
        let mut found = Costs {
            step,
            ..Costs::default()
        };
        if shown.is_empty() && query.most > 0 {
            return Ok(found);
        }
        let known = shown.iter().flatten().map(|name| text(name));
        let known: Vec<String> = known.collect();
        let known = format!("[{}]", known.join(", "));
        let without_name = u8::from(shown.contains(&None));
        // The place of a series among those that are shown, from 1 on; 0 for all others together.
        let series = format!(
            "if(isNull({value}), {without_name} * ({} + 1), indexOf(CAST({known}, 'Array(String)'), \
             ifNull(toString({value}), ''))) AS series",
            shown.len()
        );
        let fields = format!(
            "{series}, intDiv(intDiv(started_ms, 1000), {step}) * {step} AS begins, {SUMS}"
        );
        let statement = self.select(&fields, span, &conditions, "GROUP BY series, begins")?;
        let mut steps: BTreeMap<u64, BTreeMap<u64, CostSums>> = BTreeMap::new();
        for row in self.rows(&statement)? {
            let series = steps.entry(row.count(0)).or_default();
            series.insert(row.count(1), sums(&row, 2));
        }
        let mut place = 0;
        for name in &shown {
            let number = if name.is_some() {
                place += 1;
                place
            } else {
                shown.len() as u64 + 1
            };
            let steps = steps.remove(&number).unwrap_or_default();
            found.series.push(CostSeries::of(name.clone(), 1, steps));
        }
        let others = names.saturating_sub(shown.len() as u64);
        found.others = steps
            .remove(&0)
            .map(|steps| CostSeries::of(None, others.max(1), steps));
        Ok(found)
    }
}
