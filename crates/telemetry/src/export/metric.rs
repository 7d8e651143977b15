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
    /// A ratio, where 1 means equal.
    Ratio,
    Dollars,
}

impl Unit {
    /// The unit's suffix in a metric name; `None` for plain counts.
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

#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricKind,
    pub unit: Unit,
    pub labels: &'static [&'static str],
    /// Upper bounds of a histogram's buckets, ascending; empty for other kinds.
    pub buckets: &'static [f64],
    /// One or more sentences.
    pub help: &'static str,
}

impl Metric {
    /// The unit, if the name ends with it: only then OpenMetrics allows a unit.
    pub fn unit_in_name(&self) -> Option<&'static str> {
        let family = self.name.trim_end_matches("_total");
        let before = |word: &&str| family.strip_suffix(word).is_some_and(|b| b.ends_with('_'));
        self.unit.word().filter(before)
    }
}
