//! Prompt-cache misses by what caused them, over all sessions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tokengauge_core::prompt::PromptBreakCause;
use tokengauge_core::time::Timestamp;

/// Causes that are told apart. Further ones are counted with their cause, without the section.
pub(crate) const MAX_CAUSES: usize = 1_000;

/// The reason for which prompts missed the cache, and the agent that sent them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize)]
pub struct CacheBreakCause {
    /// The agent that made the calls.
    pub agent: Option<String>,
    /// Why the cache missed.
    pub cause: PromptBreakCause,
    /// The section of the prompt that changed, such as `system`, `tool search` or `message 3`.
    pub section: Option<String>,
    /// Identifies the kind of change, as in the records of the calls.
    pub change: Option<String>,
}

/// Calls whose prompts missed the cache for one reason.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct CacheBreaks {
    #[serde(flatten)]
    pub of: CacheBreakCause,
    /// Number of calls.
    pub calls: u64,
    /// Input tokens that missed the cache.
    pub tokens: u64,
    /// Cost of the misses that have a price, in US dollars. `null` without any.
    pub cost_usd: Option<f64>,
    /// When the first of these calls began.
    pub first_at: Timestamp,
    /// When the last of these calls began.
    pub last_at: Timestamp,
}

/// Sums up misses by their cause.
#[derive(Debug, Default)]
pub struct CacheBreakSums(BTreeMap<CacheBreakCause, CacheBreaks>);

impl CacheBreakSums {
    /// Adds misses.
    pub fn add(&mut self, mut more: CacheBreaks) {
        if self.0.len() >= MAX_CAUSES && !self.0.contains_key(&more.of) {
            (more.of.section, more.of.change) = (None, None);
        }
        let Some(known) = self.0.get_mut(&more.of) else {
            self.0.insert(more.of.clone(), more);
            return;
        };
        known.calls += more.calls;
        known.tokens = known.tokens.saturating_add(more.tokens);
        if let Some(cost) = more.cost_usd {
            *known.cost_usd.get_or_insert(0.0) += cost;
        }
        known.first_at = known.first_at.min(more.first_at);
        known.last_at = known.last_at.max(more.last_at);
    }

    /// The sums, those with the most tokens first.
    pub fn rows(self) -> Vec<CacheBreaks> {
        let mut rows: Vec<CacheBreaks> = self.0.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.tokens));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    fn missed(section: &str, tokens: u64, second: u64, cost_usd: Option<f64>) -> CacheBreaks {
        let at = Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(second));
        CacheBreaks {
            of: CacheBreakCause {
                agent: Some("coder".to_owned()),
                cause: PromptBreakCause::Changed,
                section: Some(section.to_owned()),
                change: None,
            },
            calls: 1,
            tokens,
            cost_usd,
            first_at: at,
            last_at: at,
        }
    }

    #[test]
    fn misses_of_one_cause_are_one_row() {
        let mut sums = CacheBreakSums::default();
        sums.add(missed("system", 10, 5, None));
        sums.add(missed("tool search", 25, 6, None));
        sums.add(missed("system", 20, 2, Some(0.5)));
        let rows = sums.rows();
        let found: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.of.section.as_deref(),
                    row.calls,
                    row.tokens,
                    row.cost_usd,
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                (Some("system"), 2, 30, Some(0.5)),
                (Some("tool search"), 1, 25, None)
            ]
        );
        let since = rows[0]
            .last_at
            .time()
            .duration_since(rows[0].first_at.time());
        assert_eq!(since.ok(), Some(Duration::from_secs(3)));
    }

    #[test]
    fn sections_beyond_the_bound_are_counted_without_their_name() {
        let mut sums = CacheBreakSums::default();
        for number in 0..MAX_CAUSES + 50 {
            sums.add(missed(&format!("message {number}"), 1, 1, None));
        }
        let rows = sums.rows();
        assert_eq!(rows.len(), MAX_CAUSES + 1);
        assert_eq!((rows[0].of.section.as_deref(), rows[0].calls), (None, 50));
    }
}
