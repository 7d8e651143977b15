//! Prompt-cache misses by their cause.

use super::Warehouse;
use super::sql::{Span, conditions, value_of};
use crate::ledger::QueryError;
use crate::ledger::row::timestamp;
use crate::query::{CacheBreakCause, CacheBreakSums, CacheBreaks, Dimension, Filter, MAX_CAUSES};
use tokengauge_core::prompt::PromptBreakCause;

impl Warehouse {
    /// The prompt-cache misses of the calls that match, by their cause.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn cache_breaks(&self, filter: &Filter) -> Result<Vec<CacheBreaks>, QueryError> {
        let fields = format!(
            "{} AS of_agent, toString(cache_break_cause) AS cause, cache_break_section AS section, \
             cache_break_change AS kind, cache_break_tokens AS missed, cache_break_cost_usd AS usd, \
             toUnixTimestamp64Milli(toDateTime64(started_at, 3)) AS began",
            value_of(Dimension::Agent)
        );
        let mut conditions = conditions(filter);
        conditions.push("cache_break_cause IS NOT NULL".to_owned());
        let missed = self.select(&fields, Span::of(filter), &conditions, "")?;
        let rows = self.rows(&format!(
            "SELECT of_agent, cause, section, kind, count(), sum(missed), sum(usd), min(began), max(began) \
             FROM ({missed}) GROUP BY of_agent, cause, section, kind ORDER BY sum(missed) DESC LIMIT {MAX_CAUSES}"
        ))?;
        let mut sums = CacheBreakSums::default();
        for row in rows {
            let Some(cause) = row
                .text(1)
                .and_then(|cause| PromptBreakCause::named(&cause))
            else {
                continue;
            };
            sums.add(CacheBreaks {
                of: CacheBreakCause {
                    agent: row.text(0),
                    cause,
                    section: row.text(2),
                    change: row.text(3),
                },
                calls: row.count(4),
                tokens: row.count(5),
                cost_usd: row.number(6),
                first_at: timestamp(row.whole(7).unwrap_or(0)),
                last_at: timestamp(row.whole(8).unwrap_or(0)),
            });
        }
        Ok(sums.rows())
    }
}
