//! The cost of calls over time, by a dimension.

use super::Warehouse;
use super::figure::{Figure, Key, Kind, measure};
use super::rows::Row;
use super::sql::{Span, text};
use crate::ledger::QueryError;
use crate::query::{CostQuery, CostSeries, CostSums, Costs, TokenSums};
use std::collections::BTreeMap;

/// What is added up, in the order of [`sums`].
const SUMS: [&str; 8] = [
    "calls",
    "errors",
    "input_sum",
    "cached_input_sum",
    "output_sum",
    "reasoning_sum",
    "cost_nano_sum",
    "unpriced",
];

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
        let figures = SUMS.map(measure);
        let merged = figures.each_ref().map(Figure::merged).join(", ");
        let from = |keys: &[Key]| {
            let span = Span::of(&query.filter);
            self.summed(Kind::Calls, &query.filter, span, keys, &figures, [&[]; 2])
        };
        let name = || Key::by("name".to_owned(), query.by);
        let rows = self.rows(&format!(
            "SELECT s.name, {merged}, count() OVER () AS names FROM {} GROUP BY s.name \
             ORDER BY all_cost_nano_sum DESC NULLS LAST, \
             ifNull(all_input_sum, 0) + ifNull(all_output_sum, 0) DESC, all_calls DESC, s.name ASC NULLS FIRST LIMIT {}",
            from(&[name()])?,
            query.most
        ))?;
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
            "if(isNull(s.name), {without_name} * ({} + 1), indexOf(CAST({known}, 'Array(String)'), \
             ifNull(toString(s.name), ''))) AS series",
            shown.len()
        );
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        let statement = format!(
            "SELECT {series}, s.begins, {merged} FROM {} GROUP BY series, s.begins",
            from(&[name(), Key::start("begins", step)])?
        );
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
