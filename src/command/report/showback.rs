//! The monthly cost of teams and other payers, as CSV.

use std::collections::BTreeMap;
use std::time::SystemTime;
use tokengauge_core::call::CallRecord;
use tokengauge_store::csv;
use tokengauge_store::history::{Groups, TimedCall};
use tokengauge_store::query::{Dimension, GroupRow};

const MONTH: usize = 7;
const COLUMNS: [&str; 10] = [
    "month",
    "calls",
    "errors",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost_usd",
    "cost_share",
    "calls_without_price",
];

#[derive(Debug)]
pub(super) struct Showback {
    by: Vec<Dimension>,
    months: BTreeMap<String, Groups>,
    pub(super) calls: u64,
    pub(super) first: Option<SystemTime>,
}

impl Showback {
    pub(super) fn by(by: &[Dimension]) -> Showback {
        Showback {
            by: by.to_vec(),
            months: BTreeMap::new(),
            calls: 0,
            first: None,
        }
    }

    pub(super) fn add(&mut self, call: &CallRecord) {
        let past = TimedCall::of(call);
        let by = &self.by;
        let mut month = call.started_at.to_string();
        month.truncate(MONTH);
        let groups = self.months.entry(month);
        let groups = groups.or_insert_with(|| Groups::by(by));
        let names = groups.names(&past);
        groups.named(names).add_unmeasured(&past);
        self.calls += 1;
        self.first = Some(
            self.first
                .map_or(past.started, |first| first.min(past.started)),
        );
    }

    /// Returns a header line and a line for each group of each month, the most expensive first. With `spreadsheet`,
    /// texts are escaped so that they are not formulas.
    pub(super) fn csv(self, spreadsheet: bool) -> String {
        let names = self.by.iter().map(|by| by.name());
        let heads: Vec<&str> = names.chain(COLUMNS).collect();
        let mut text = heads.join(",") + csv::LINE_END;
        for (month, groups) in self.months {
            let mut rows = groups.rows();
            rows.sort_by(|one, other| {
                let cost = |row: &GroupRow| row.cost_usd.unwrap_or(0.0);
                cost(other).total_cmp(&cost(one))
            });
            let all = rows.iter().filter_map(|row| row.cost_usd).sum();
            for row in &rows {
                text += &line(row, &month, all, spreadsheet);
            }
        }
        text
    }
}

/// Formats a row. `all` is the cost of all calls of the month.
fn line(row: &GroupRow, month: &str, all: f64, spreadsheet: bool) -> String {
    let names = row.names.iter().map(|name| {
        let name = name.as_deref().unwrap_or_default();
        csv::text(name, spreadsheet)
    });
    let dollars = |usd: f64| format!("{usd:.9}");
    let share = row.cost_usd.filter(|_| all > 0.0);
    let share = share.map(|usd| format!("{:.6}", usd / all));
    let tokens = &row.tokens;
    let counts = [
        Some(row.calls),
        Some(row.errors),
        tokens.input,
        tokens.cached_input,
        tokens.output,
        tokens.reasoning,
    ];
    let count = |count: Option<u64>| count.map_or(String::new(), |count| count.to_string());
    let mut cells: Vec<String> = names.collect();
    cells.push(month.to_owned());
    cells.extend(counts.map(count));
    cells.push(row.cost_usd.map(dollars).unwrap_or_default());
    cells.push(share.unwrap_or_default());
    cells.push(row.unpriced_calls.to_string());
    cells.join(",") + csv::LINE_END
}
