//! The definition of one metric.

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Count,
    Seconds,
    Bytes,
    Tokens,
    TokensPerSecond,
    /// A ratio; 1 is equal.
    Ratio,
    Dollars,
}

impl Unit {
    /// The word for it at the end of a name; `None` where things are counted.
    fn word(self) -> Option<&'static str> {
        match self {
            Unit::Count => None,
            Unit::Seconds => Some("seconds"),
            Unit::Bytes => Some("bytes"),
            Unit::Tokens => Some("tokens"),
            Unit::TokensPerSecond => Some("tokens_per_second"),
            Unit::Ratio => Some("ratio"),
            Unit::Dollars => Some("usd"),
        }
    }
}

/// One metric, whatever its series hold.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Metric {
    /// Its name, prefix included.
    pub name: &'static str,
    pub kind: MetricKind,
    pub unit: Unit,
    pub labels: &'static [&'static str],
    /// Upper bounds of a histogram's buckets, ascending; empty for the others.
    pub buckets: &'static [f64],
    /// One sentence.
    pub help: &'static str,
}

impl Metric {
    /// The unit, where the name ends with it: only then may OpenMetrics say it.
    pub fn unit_in_name(&self) -> Option<&'static str> {
        let family = self.name.trim_end_matches("_total");
        let before = |word: &&str| family.strip_suffix(word).is_some_and(|b| b.ends_with('_'));
        self.unit.word().filter(before)
    }
}
