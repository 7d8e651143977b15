//! Scores from outside by group, and what a successful session takes.

use super::estimates::{CONFIDENCE, Estimate};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::time::SystemTime;
use tokengauge_core::call::{CallRecord, OperationClass};
use tokengauge_core::score::{Score, ScoreTarget};
use tokengauge_stats::clustered::MIN_UNITS;
use tokengauge_stats::ratio::{Arm, Unit};
use tokengauge_store::history::{TimedCall, tokens};
use tokengauge_store::query::{ScoreSummary, UnitScores, summaries};

type Names = Vec<Option<String>>;

/// The scores of the calls of a report. Each score counts once for each session and group that it is about.
#[derive(Default)]
pub(super) struct Scores {
    numbers: HashMap<(ScoreTarget, String, String), usize>,
    scores: Vec<Score>,
    groups: HashMap<Names, HashMap<u32, Session>>,
}

/// The calls of one session in one group.
struct Session {
    scores: BTreeSet<usize>,
    cost: f64,
    is_priced: bool,
    tokens: f64,
    began: SystemTime,
    ended: SystemTime,
}

/// The scores of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct GroupScores {
    pub(super) scores: Vec<ScoreSummary>,
    pub(super) per_success: Option<PerSuccess>,
}

/// What all scored sessions took, divided by the number of those that succeeded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PerSuccess {
    pub(super) score: String,
    pub(super) scored_sessions: u64,
    pub(super) successful_sessions: u64,
    pub(super) cost_usd: Option<Estimate>,
    pub(super) seconds: Option<Estimate>,
    pub(super) tokens: Option<Estimate>,
}

impl Scores {
    pub(super) fn add(&mut self, past: &TimedCall<'_>, names: &Names, unit: u32) {
        let call = past.record;
        let numbers: Vec<usize> = call.scores.iter().map(|score| self.number(score)).collect();
        if !self.groups.contains_key(names) {
            self.groups.insert(names.clone(), HashMap::new());
        }
        let Some(group) = self.groups.get_mut(names) else {
            return;
        };
        let session = group.entry(unit).or_insert_with(|| Session::new(past));
        session.scores.extend(numbers);
        session.add(past, call);
    }

    fn number(&mut self, score: &Score) -> usize {
        let key = (score.target, score.target_id.clone(), score.name.clone());
        let next = self.scores.len();
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.scores.push(score.clone());
        }
        number
    }

    pub(super) fn of(&self, names: &[Option<String>], success: &str) -> GroupScores {
        let Some(group) = self.groups.get(names).filter(|_| !self.scores.is_empty()) else {
            return GroupScores::default();
        };
        let units: Vec<UnitScores> = group.values().map(|session| self.sums(session)).collect();
        GroupScores {
            scores: summaries(units.iter()),
            per_success: self.per_success(group.values(), success),
        }
    }

    fn sums(&self, session: &Session) -> UnitScores {
        let mut sums = UnitScores::new();
        for score in session.scores.iter().map(|number| &self.scores[*number]) {
            sums.entry(score.name.clone()).or_default().add(score);
        }
        sums
    }

    /// `None` if no session has the score.
    fn per_success<'a>(
        &self,
        sessions: impl Iterator<Item = &'a Session>,
        success: &str,
    ) -> Option<PerSuccess> {
        let scored =
            sessions.filter_map(|session| Some((session, self.succeeded(session, success)?)));
        let scored: Vec<(&Session, bool)> = scored.collect();
        let is_priced = scored.iter().all(|(session, _)| session.is_priced);
        let per = |amount: fn(&Session) -> f64| {
            let units = scored.iter().map(|(session, succeeded)| Unit {
                numerator: amount(session),
                denominator: f64::from(u8::from(*succeeded)),
            });
            estimate(units, scored.len())
        };
        (!scored.is_empty()).then(|| PerSuccess {
            score: success.to_owned(),
            scored_sessions: scored.len() as u64,
            successful_sessions: scored.iter().filter(|(_, succeeded)| *succeeded).count() as u64,
            cost_usd: per(|session| session.cost).filter(|_| is_priced),
            seconds: per(Session::seconds),
            tokens: per(|session| session.tokens),
        })
    }

    /// Whether a session succeeded: by its own score, otherwise if all scores of its calls and traces are true. `None`
    /// without a score.
    fn succeeded(&self, session: &Session, success: &str) -> Option<bool> {
        let scores = session.scores.iter().map(|number| &self.scores[*number]);
        let scores: Vec<&Score> = scores.filter(|score| score.name == success).collect();
        let own = scores
            .iter()
            .find(|score| score.target == ScoreTarget::Session);
        let good = |score: &Score| score.value >= 1.0;
        match own {
            Some(own) => Some(good(own)),
            None => (!scores.is_empty()).then(|| scores.iter().all(|score| good(score))),
        }
    }
}

impl Session {
    fn new(past: &TimedCall<'_>) -> Session {
        Session {
            scores: BTreeSet::new(),
            cost: 0.0,
            is_priced: true,
            tokens: 0.0,
            began: past.started,
            ended: past.ended,
        }
    }

    fn add(&mut self, past: &TimedCall<'_>, call: &CallRecord) {
        let is_free = past.failed() || call.operation_class != OperationClass::Generation;
        self.is_priced &= call.cost_usd.is_some() || is_free;
        self.cost += call.cost_usd.unwrap_or(0.0);
        let tokens = tokens(call);
        self.tokens += (tokens.input.unwrap_or(0) + tokens.output.unwrap_or(0)) as f64;
        self.began = self.began.min(past.started);
        self.ended = self.ended.max(past.ended);
    }

    fn seconds(&self) -> f64 {
        let took = self.ended.duration_since(self.began);
        took.unwrap_or_default().as_secs_f64()
    }
}

/// The ratio of the sums with Student's t interval; `None` if no session succeeded.
fn estimate(units: impl Iterator<Item = Unit>, sessions: usize) -> Option<Estimate> {
    let mut arm: Arm = units.collect();
    let interval = arm
        .ratio()
        .ok()
        .filter(|_| sessions >= MIN_UNITS)
        .and_then(|ratio| ratio.interval(CONFIDENCE).ok());
    if sessions == 1 {
        // A single session has a value, but no variance.
        arm.merge(&arm.clone());
    }
    let value = arm.ratio().ok()?.value;
    Some(Estimate {
        value,
        lower: interval.map(|interval| interval.lower.max(0.0)),
        upper: interval.map(|interval| interval.upper),
        calls: sessions as u64,
        sessions: sessions as u64,
    })
}
