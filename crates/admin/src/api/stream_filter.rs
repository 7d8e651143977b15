//! The filter of calls in flight.

use super::problem::Problem;
use super::query_params::QueryParams;
use tokengauge_core::throughput::RateFilter;
use tokengauge_meter::StreamNow;

/// The dimensions by which tokens per second are also counted.
const OF_RATES: [&str; 4] = ["model", "workload", "route", "upstream"];

/// Reads a stream's value of a dimension.
type Part = fn(&StreamNow) -> Option<&str>;

const PARTS: [(&str, Part); 12] = [
    ("model", |stream| stream.model.as_deref()),
    ("workload", |stream| stream.workload.as_deref()),
    ("route", |stream| Some(&stream.route)),
    ("upstream", |stream| Some(&stream.upstream)),
    ("agent", |stream| stream.agent.as_deref()),
    ("session", |stream| stream.session.as_deref()),
    ("cluster", |stream| stream.pod.as_ref()?.cluster.as_deref()),
    ("namespace", |stream| {
        stream.pod.as_ref()?.namespace.as_deref()
    }),
    ("pod", |stream| stream.pod.as_ref()?.name.as_deref()),
    ("team", |stream| stream.team.as_deref()),
    ("cost_center", |stream| stream.cost_center.as_deref()),
    ("tenant", |stream| stream.tenant.as_deref()),
];

pub(super) const STREAM_NAMES: [&str; PARTS.len()] = {
    let mut names = [""; PARTS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = PARTS[at].0;
        at += 1;
    }
    names
};

/// The values that a stream must have to be selected.
#[derive(Default)]
pub struct StreamFilter(Vec<(&'static str, String, Part)>);

impl StreamFilter {
    pub(super) fn of(asked: &QueryParams) -> Result<StreamFilter, Problem> {
        let mut wanted = Vec::new();
        for (name, part) in PARTS {
            if let Some(value) = asked.name(name)? {
                wanted.push((name, value, part));
            }
        }
        Ok(StreamFilter(wanted))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, stream: &StreamNow) -> bool {
        let mut wanted = self.0.iter();
        wanted.all(|(_, value, part)| part(stream) == Some(value))
    }

    /// The filter of tokens by second. `None` if tokens are not counted by these dimensions.
    pub(crate) fn rates(&self) -> Option<RateFilter> {
        let of = |name: &str| {
            let mut wanted = self.0.iter();
            let found = wanted.find(|(known, ..)| *known == name);
            found.map(|(_, value, _)| value.clone())
        };
        let counted = self.0.iter().all(|(name, ..)| OF_RATES.contains(name));
        counted.then(|| RateFilter {
            model: of("model"),
            workload: of("workload"),
            route: of("route"),
            upstream: of("upstream"),
        })
    }
}
