//! Results of one run of a scenario.

/// Percentiles of latencies in the tables, as shares.
pub const SHARES: [f64; 3] = [0.5, 0.99, 0.999];

/// Latencies at [`SHARES`], in microseconds.
pub type Percentiles = [f64; SHARES.len()];

#[derive(Clone, Debug, Default)]
pub struct RunResult {
    pub first_token: Option<Percentiles>,
    pub chunk: Option<Percentiles>,
    pub scrape: Option<Percentiles>,
    pub scrape_bytes: usize,
    pub events: u64,
    pub bytes: u64,
    pub calls: u64,
    /// Number of due events in the measured time; 0 for streams without a pace.
    pub asked: u64,
    pub seconds: f64,
    /// CPU time of the peer; `None` without a peer.
    pub cpu_seconds: Option<f64>,
    /// Kilobytes resident before the streams.
    pub idle_kb: f64,
    pub busy_kb: f64,
    pub open: usize,
    /// Tokens that tokengauge's metrics count.
    pub counted: f64,
    pub lagged: f64,
    pub stolen: f64,
    /// Number of attempts. Attempts that lost more of a core to other virtual machines than this one were discarded.
    pub tries: u32,
    pub failed: u64,
    pub why: Option<String>,
}

/// The percentiles of latencies in nanoseconds; `None` without latencies.
pub fn percentiles(mut nanoseconds: Vec<u64>) -> Option<Percentiles> {
    nanoseconds.sort_unstable();
    let last = nanoseconds.len().checked_sub(1)?;
    Some(SHARES.map(|share| {
        let rank = (nanoseconds.len() as f64 * share) as usize;
        nanoseconds[rank.min(last)] as f64 / 1000.0
    }))
}

impl RunResult {
    /// The share of due events that arrived; `None` for streams without a pace.
    pub fn delivered(&self) -> Option<f64> {
        (self.asked > 0).then(|| self.events as f64 / self.asked as f64)
    }

    /// The share of a core that the peer used.
    pub fn busy(&self) -> Option<f64> {
        Some(self.cpu_seconds? / self.seconds)
    }

    pub fn fail(&mut self, error: &anyhow::Error) {
        self.failed += 1;
        self.why.get_or_insert_with(|| format!("{error:#}"));
    }
}
