//! Scores from outside, joined to calls when a question is asked, and their sums by unit.

use super::{Filter, UnitKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use tokengauge_core::call::CallRecord;
use tokengauge_core::dimension::Dimension;
use tokengauge_core::hash::FastMap;
use tokengauge_core::score::{Score, ScoreTarget, ScoreType};
use tokengauge_stats::ratio::{Arm, Unit};
use tokengauge_stats::{Interval, share};
use uuid::Uuid;

/// The most names that a summary has; those with most scores are kept.
pub const MAX_SUMMARIES: usize = 20;
const CONFIDENCE: f64 = 0.95;

/// A number of a score in a [`ScoreIndex`].
pub(crate) type ScoreId = u32;

/// Scores by what they are about.
#[derive(Clone, Debug, Default)]
pub struct ScoreIndex {
    scores: Vec<Score>,
    calls: FastMap<u128, Vec<ScoreId>>,
    responses: HashMap<String, Vec<ScoreId>>,
    traces: FastMap<u128, Vec<ScoreId>>,
    sessions: HashMap<String, Vec<ScoreId>>,
}

/// What identifies a call to those who score it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallIds<'a> {
    pub(crate) id: u128,
    pub(crate) response: Option<&'a str>,
    pub(crate) trace: Option<u128>,
}

impl FromIterator<Score> for ScoreIndex {
    fn from_iter<I: IntoIterator<Item = Score>>(scores: I) -> Self {
        let mut index = ScoreIndex::default();
        scores.into_iter().for_each(|score| index.add(score));
        index
    }
}

impl ScoreIndex {
    fn add(&mut self, score: Score) {
        let id = ScoreId::try_from(self.scores.len()).unwrap_or(ScoreId::MAX);
        let target = &score.target_id;
        match score.target {
            ScoreTarget::Call => {
                // A provider's id may also be a UUID.
                if let Some(call) = call_id(target) {
                    self.calls.entry(call).or_default().push(id);
                }
                self.responses.entry(target.clone()).or_default().push(id);
            }
            ScoreTarget::Session => self.sessions.entry(target.clone()).or_default().push(id),
            ScoreTarget::Trace => {
                if let Some(trace) = trace_id(target) {
                    self.traces.entry(trace).or_default().push(id);
                }
            }
        }
        self.scores.push(score);
    }

    /// The scores of records, each once.
    pub fn of_records<'a>(records: impl Iterator<Item = &'a CallRecord>) -> ScoreIndex {
        let mut seen = HashSet::new();
        let scores = records.flat_map(|record| &record.scores);
        let new = scores.filter(|score| seen.insert((score.target, &score.target_id, &score.name)));
        new.cloned().collect()
    }

    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// The scores of a session itself, without the scores of its calls.
    pub fn of_session(&self, session: &str) -> Vec<Score> {
        self.listed(self.sessions.get(session).into_iter().flatten().copied())
    }

    /// The scores of a call, of its session and of its trace.
    pub fn of_record(&self, record: &CallRecord) -> Vec<Score> {
        self.listed(self.ids_of_record(record))
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = (&str, &[ScoreId])> {
        let sessions = self.sessions.iter();
        sessions.map(|(name, ids)| (name.as_str(), ids.as_slice()))
    }

    pub(crate) fn ids_of_call(&self, call: CallIds<'_>) -> impl Iterator<Item = ScoreId> {
        let response = call.response.and_then(|id| self.responses.get(id));
        let trace = call.trace.and_then(|id| self.traces.get(&id));
        let found = [self.calls.get(&call.id), response, trace];
        found.into_iter().flatten().flatten().copied()
    }

    pub(crate) fn ids_of_record(&self, record: &CallRecord) -> impl Iterator<Item = ScoreId> {
        let call = CallIds {
            id: call_id(&record.id).unwrap_or_default(),
            response: record.response_id.as_deref(),
            trace: record.trace_id.as_deref().and_then(trace_id),
        };
        let session = record.session.as_deref();
        let session = session.and_then(|session| self.sessions.get(session));
        self.ids_of_call(call)
            .chain(session.into_iter().flatten().copied())
    }

    fn listed(&self, ids: impl Iterator<Item = ScoreId>) -> Vec<Score> {
        let ids: BTreeSet<ScoreId> = ids.collect();
        let mut scores: Vec<Score> = ids
            .iter()
            .map(|id| self.scores[*id as usize].clone())
            .collect();
        sort(&mut scores);
        scores
    }

    fn sums(&self, ids: &BTreeSet<ScoreId>) -> UnitScores {
        let mut sums = UnitScores::new();
        for score in ids.iter().map(|id| &self.scores[*id as usize]) {
            sums.entry(score.name.clone()).or_default().add(score);
        }
        sums
    }
}

/// Sorts scores as responses list them: by name, then by target.
pub(crate) fn sort(scores: &mut [Score]) {
    scores.sort_by(|one, other| (&one.name, one.target).cmp(&(&other.name, other.target)));
}

pub(crate) fn call_id(text: &str) -> Option<u128> {
    Uuid::parse_str(text).ok().map(|id| id.as_u128())
}

pub(crate) fn trace_id(text: &str) -> Option<u128> {
    u128::from_str_radix(text, 16).ok()
}

/// The scores of one unit, by name.
pub type UnitScores = BTreeMap<String, ScoreSum>;

/// The scores of one name for one unit. Each score counts once, however many calls it is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreSum {
    pub sum: f64,
    pub count: u64,
    /// Whether every value is 0 or 1.
    pub binary: bool,
    /// Whether every score is a boolean.
    pub boolean: bool,
}

impl Default for ScoreSum {
    fn default() -> Self {
        ScoreSum {
            sum: 0.0,
            count: 0,
            binary: true,
            boolean: true,
        }
    }
}

impl ScoreSum {
    pub fn add(&mut self, score: &Score) {
        self.sum += score.value;
        self.count += 1;
        self.binary &= score.value == 0.0 || score.value == 1.0;
        self.boolean &= score.data_type == ScoreType::Boolean;
    }

    fn unit(self) -> Unit {
        Unit {
            numerator: self.sum,
            denominator: self.count as f64,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ScoreQuery {
    pub filter: Filter,
    /// The variant of the experiment, which a filter cannot select.
    pub variant: Option<String>,
    pub by: Vec<Dimension>,
    pub unit: UnitKind,
}

/// The scores of one unit in one group. A score counts in each group that has one of its calls.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredUnit {
    /// The group: the values of the query's dimensions.
    pub names: Vec<Option<String>>,
    /// The session, agent or user; `None` for a single call that names none.
    pub unit: Option<String>,
    pub scores: UnitScores,
}

/// Collects the scores of units. `G` is a group, `U` a unit.
pub(crate) struct ScoreTally<G, U> {
    units: BTreeMap<(G, U), BTreeSet<ScoreId>>,
}

impl<G: Ord, U: Ord> ScoreTally<G, U> {
    pub(crate) fn new() -> Self {
        ScoreTally {
            units: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, group: G, unit: U, ids: &[ScoreId]) {
        self.units.entry((group, unit)).or_default().extend(ids);
    }

    pub(crate) fn into_units(
        self,
        index: &ScoreIndex,
    ) -> impl Iterator<Item = ((G, U), UnitScores)> {
        let units = self.units.into_iter();
        units.map(|(unit, ids)| (unit, index.sums(&ids)))
    }
}

/// The scores of one name in a group of calls.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ScoreSummary {
    /// The name of the score.
    pub name: String,
    /// The type of the values: boolean if all scores are.
    pub data_type: ScoreType,
    /// The average of all scores. For booleans, the share that is true.
    pub average: f64,
    /// The lower bound of the average at 95 % confidence, clustered by session; `null` if it is unknown.
    pub lower: Option<f64>,
    /// The upper bound of the average.
    pub upper: Option<f64>,
    /// The number of scores.
    pub scores: u64,
    /// The number of sessions with a score. A call without a session counts as one.
    pub units: u64,
}

/// Summarises the scores of a group by name, the names with most scores first.
pub fn summaries<'a>(units: impl Iterator<Item = &'a UnitScores>) -> Vec<ScoreSummary> {
    let mut names: BTreeMap<&str, Vec<ScoreSum>> = BTreeMap::new();
    for (name, sum) in units.flatten() {
        names.entry(name).or_default().push(*sum);
    }
    let mut all: Vec<ScoreSummary> = names
        .into_iter()
        .filter_map(|(name, sums)| summary(name, &sums))
        .collect();
    all.sort_by_key(|summary| std::cmp::Reverse(summary.scores));
    all.truncate(MAX_SUMMARIES);
    all
}

fn summary(name: &str, sums: &[ScoreSum]) -> Option<ScoreSummary> {
    let count: u64 = sums.iter().map(|sum| sum.count).sum();
    let total: f64 = sums.iter().map(|sum| sum.sum).sum();
    let interval = interval(sums);
    let boolean = sums.iter().all(|sum| sum.boolean);
    (count > 0).then(|| ScoreSummary {
        name: name.to_owned(),
        data_type: if boolean {
            ScoreType::Boolean
        } else {
            ScoreType::Numeric
        },
        average: total / count as f64,
        lower: interval.map(|interval| interval.lower),
        upper: interval.map(|interval| interval.upper),
        scores: count,
        units: sums.len() as u64,
    })
}

/// The interval of an average for a single look. Shares of units with one score each have the exact interval of
/// Clopper and Pearson. All others have Student's t with the variance between units.
fn interval(sums: &[ScoreSum]) -> Option<Interval> {
    if sums.iter().all(|sum| sum.binary && sum.count == 1) {
        let with = sums.iter().filter(|sum| sum.sum > 0.0).count();
        return share::fixed_interval(with as u64, sums.len() as u64, CONFIDENCE).ok();
    }
    let arm: Arm = sums.iter().map(|sum| sum.unit()).collect();
    let found = arm.ratio().ok()?.interval(CONFIDENCE).ok()?;
    if !sums.iter().all(|sum| sum.binary) {
        return Some(found);
    }
    Some(Interval {
        lower: found.lower.max(0.0),
        upper: found.upper.min(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;
    use std::time::SystemTime;
    use tokengauge_stats::seeded;

    fn score(target: ScoreTarget, id: &str, name: &str, value: f64) -> Score {
        Score {
            name: name.to_owned(),
            value,
            data_type: ScoreType::Boolean,
            target,
            target_id: id.to_owned(),
            source: None,
            time: SystemTime::UNIX_EPOCH.into(),
        }
    }

    #[test]
    fn a_score_finds_its_call_by_either_id_and_counts_once() {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let call = |response| CallIds {
            id: call_id(id).expect("a UUID"),
            response,
            trace: Some(7),
        };
        let index: ScoreIndex = [
            score(ScoreTarget::Call, id, "a", 1.0),
            score(ScoreTarget::Call, "chatcmpl-1", "a", 0.0),
            score(ScoreTarget::Trace, &format!("{:032x}", 7), "a", 1.0),
            score(ScoreTarget::Session, "s", "a", 1.0),
        ]
        .into_iter()
        .collect();
        let ids: Vec<_> = index.ids_of_call(call(Some("chatcmpl-1"))).collect();
        assert_eq!(ids, [0, 1, 2]);
        assert_eq!(index.ids_of_call(call(None)).count(), 2);
        assert_eq!(index.of_session("s").len(), 1);
        // Two calls of a trace: the score of the trace counts once for their session.
        let mut tally = ScoreTally::new();
        tally.add((), "s", &[0, 2]);
        tally.add((), "s", &[1, 2]);
        let units: Vec<_> = tally.into_units(&index).collect();
        assert_eq!(units[0].1["a"].count, 3);
        assert_eq!(units[0].1["a"].sum, 2.0);
    }

    #[test]
    fn shares_have_exact_intervals_and_averages_those_of_students_t() {
        let one = |sum| ScoreSum {
            sum,
            count: 1,
            ..ScoreSum::default()
        };
        let sums: Vec<_> = (0..500)
            .map(|at| one(f64::from(u8::from(at < 25))))
            .collect();
        let found = summary("success", &sums).expect("a summary");
        assert_eq!((found.average, found.scores, found.units), (0.05, 500, 500));
        // scipy.stats.binomtest(25, 500).proportion_ci(0.95, "exact")
        assert!((found.lower.expect("known") - 0.0326).abs() < 1e-4);
        assert!((found.upper.expect("known") - 0.0729).abs() < 1e-4);
        let all = summary("success", &vec![one(1.0); 20]).expect("a summary");
        assert!(all.lower.expect("known") > 0.8 && all.upper == Some(1.0));
        let grades = [3.0, 4.0, 4.0, 5.0].map(|sum| ScoreSum {
            binary: false,
            boolean: false,
            ..one(sum)
        });
        let found = summary("grade", &grades).expect("a summary");
        assert_eq!((found.average, found.data_type), (4.0, ScoreType::Numeric));
        // scipy.stats.t.interval(0.95, 3, 4, sem([3, 4, 4, 5]))
        assert!(
            (found.lower.expect("known") - 2.7008).abs() < 1e-3,
            "{found:?}"
        );
        let single = summary("grade", &grades[..1]).expect("a summary");
        assert_eq!((single.average, single.lower), (3.0, None));
    }

    /// The interval of an average must cover the truth also if the scores of a session depend on each other.
    #[test]
    fn intervals_cover_the_truth_when_scores_of_a_session_are_alike() {
        let mut random = seeded(54);
        let (runs, mut covered) = (400, 0);
        for _ in 0..runs {
            let sums: Vec<ScoreSum> = (0..80)
                .map(|_| {
                    let count = 1 + (random.random::<f64>() * 8.0) as u64;
                    let good = random.random_bool(0.7);
                    ScoreSum {
                        sum: if good { count as f64 } else { 0.0 },
                        count,
                        ..ScoreSum::default()
                    }
                })
                .collect();
            let found = summary("a", &sums).expect("a summary");
            let inside = found.lower.zip(found.upper);
            covered += i32::from(inside.is_some_and(|(low, high)| (low..=high).contains(&0.7)));
        }
        let share = f64::from(covered) / f64::from(runs);
        assert!((0.91..0.99).contains(&share), "{share}");
    }
}
