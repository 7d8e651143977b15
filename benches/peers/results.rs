//! What one run of a scenario found.

/// The shares of latencies that are shown.
pub const SHARES: [f64; 3] = [0.5, 0.99, 0.999];

/// Latencies at [`SHARES`], in microseconds.
pub type Percentiles = [f64; SHARES.len()];

#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// From a request to its first event.
    pub first_token: Option<Percentiles>,
    /// From the sending of an event to its arrival.
    pub chunk: Option<Percentiles>,
    /// Of reading `/metrics`.
    pub scrape: Option<Percentiles>,
    /// Bytes of the last of them.
    pub scrape_bytes: usize,
    /// Events, bytes of bodies and ended calls in the time in which `seconds` and `cpu_seconds`
    /// were taken.
    pub events: u64,
    pub bytes: u64,
    pub calls: u64,
    /// Events that were due in that time; 0 where they were not paced.
    pub asked: u64,
    pub seconds: f64,
    /// Processor time of the peer; none without one.
    pub cpu_seconds: Option<f64>,
    /// Kilobytes resident before the streams, and in the middle.
    pub idle_kb: f64,
    pub busy_kb: f64,
    /// Streams that were open in the middle.
    pub open: usize,
    /// Tokens that tokengauge says it counted, and chunks it skipped.
    pub counted: f64,
    pub lagged: f64,
    /// The share that a hypervisor took of a core in that time.
    pub stolen: f64,
    /// Runs that were made for it: those that lost more of a core were thrown away.
    pub tries: u32,
    /// Streams that failed, and why the first of them did.
    pub failed: u64,
    pub why: Option<String>,
}

/// The percentiles of latencies in nanoseconds; none where there are none.
pub fn percentiles(mut nanoseconds: Vec<u64>) -> Option<Percentiles> {
    nanoseconds.sort_unstable();
    let last = nanoseconds.len().checked_sub(1)?;
    Some(SHARES.map(|share| {
        let rank = (nanoseconds.len() as f64 * share) as usize;
        nanoseconds[rank.min(last)] as f64 / 1000.0
    }))
}

impl RunResult {
    /// The share of the due events that came; none where they were not paced.
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
