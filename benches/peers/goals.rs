//! Performance goals of tokengauge, and stretch goals.

use crate::metrics::{
    CALLS_PER_SECOND, CHUNK_P50, CHUNK_P99, CPU_PER_CALL, CPU_PER_EVENT, EVENTS_PER_SECOND,
    FIRST_P50, FIRST_P99, IDLE_MB, KB_PER_STREAM, Metric, SCRAPE_P50,
};
use crate::peer::Peer;
use crate::scenario::{Scenario, Work};
use crate::statistics::Bound;

/// The divisor of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Against {
    /// The figure of another peer in this round.
    Peer(Peer),
    /// The figure of this peer in the scenario's baseline in this round.
    Baseline,
    Nothing,
}

#[derive(Clone, Copy)]
pub struct Goal {
    pub metric: &'static Metric,
    pub against: Against,
    pub bound: Bound,
    /// Whether the goal is a stretch goal.
    pub moonshot: bool,
}

use Against::{Baseline, Nothing};
use Bound::{AtLeast, AtMost};
const NGINX: Against = Against::Peer(Peer::Nginx);
const HAPROXY: Against = Against::Peer(Peer::Haproxy);

const fn goal(metric: &'static Metric, against: Against, bound: Bound) -> Goal {
    Goal {
        metric,
        against,
        bound,
        moonshot: false,
    }
}

const fn moonshot(metric: &'static Metric, against: Against, bound: Bound) -> Goal {
    Goal {
        moonshot: true,
        ..goal(metric, against, bound)
    }
}

static SHORT: [Goal; 8] = [
    goal(&CALLS_PER_SECOND, NGINX, AtLeast(0.6)),
    moonshot(&CALLS_PER_SECOND, NGINX, AtLeast(0.9)),
    goal(&CPU_PER_CALL, NGINX, AtMost(1.7)),
    moonshot(&CPU_PER_CALL, NGINX, AtMost(1.1)),
    FIRST_TOKEN[0],
    FIRST_TOKEN[1],
    FIRST_TOKEN[2],
    FIRST_TOKEN[3],
];
const FIRST_TOKEN: [Goal; 4] = [
    goal(&FIRST_P50, NGINX, AtMost(1.05)),
    moonshot(&FIRST_P50, NGINX, AtMost(0.95)),
    goal(&FIRST_P99, NGINX, AtMost(1.05)),
    moonshot(&FIRST_P99, NGINX, AtMost(0.95)),
];
static FIRST: [Goal; 4] = FIRST_TOKEN;
static PACED: [Goal; 10] = [
    goal(&CPU_PER_EVENT, NGINX, AtMost(1.05)),
    moonshot(&CPU_PER_EVENT, NGINX, AtMost(0.9)),
    goal(&CHUNK_P50, NGINX, AtMost(1.1)),
    moonshot(&CHUNK_P50, HAPROXY, AtMost(1.0)),
    goal(&CHUNK_P99, NGINX, AtMost(1.1)),
    moonshot(&CHUNK_P99, HAPROXY, AtMost(1.0)),
    goal(&KB_PER_STREAM, Nothing, AtMost(20.0)),
    moonshot(&KB_PER_STREAM, Nothing, AtMost(12.0)),
    goal(&IDLE_MB, Nothing, AtMost(16.0)),
    moonshot(&IDLE_MB, Nothing, AtMost(12.0)),
];
static FLAT_OUT_SINGLE: [Goal; 4] = [
    goal(&EVENTS_PER_SECOND, NGINX, AtLeast(1.0)),
    moonshot(&EVENTS_PER_SECOND, NGINX, AtLeast(1.2)),
    goal(&CHUNK_P99, NGINX, AtMost(1.1)),
    moonshot(&CHUNK_P99, HAPROXY, AtMost(1.0)),
];
static FLAT_OUT: [Goal; 2] = [
    goal(&EVENTS_PER_SECOND, NGINX, AtLeast(0.8)),
    moonshot(&EVENTS_PER_SECOND, NGINX, AtLeast(1.0)),
];
/// No measurement can show that scrapes cost nothing: two runs of one program differ by 5 %.
static SCRAPED: [Goal; 2] = [
    goal(&SCRAPE_P50, Nothing, AtMost(20.0)),
    goal(&CHUNK_P99, Baseline, AtMost(1.05)),
];
static NOISY: [Goal; 1] = [goal(&CHUNK_P99, Baseline, AtMost(1.2))];

/// The goals of a scenario. Scenarios whose calls are complete streams have no goal for memory, except those with long
/// calls.
pub fn goals(scenario: &Scenario) -> &'static [Goal] {
    match &scenario.work {
        Work::Short { .. } => &SHORT,
        Work::FirstToken { .. } => &FIRST,
        Work::Paced(_) => &PACED,
        Work::FlatOut { per_write: 1, .. } => &FLAT_OUT_SINGLE,
        Work::Recorded { per_write: 1, .. } => &FLAT_OUT_SINGLE[..2],
        Work::FlatOut { .. } | Work::Recorded { .. } => &FLAT_OUT,
        Work::Scraped(true) => &SCRAPED,
        Work::Scraped(false) => &[],
        Work::Noisy(_) if scenario.baseline().as_ref() == Some(scenario) => &[],
        Work::Noisy(_) => &NOISY,
    }
}

impl std::fmt::Display for Against {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Against::Peer(peer) => write!(f, " ÷ {peer}"),
            Against::Baseline => f.write_str(" ÷ alone"),
            Against::Nothing => Ok(()),
        }
    }
}
