//! The search for the highest load that meets the objectives. It decides the load of the next trial.

use crate::level::LevelResult;
use crate::objective::{Objective, ObjectiveVerdict};
use crate::plan::Range;
use crate::steady::{Reason, Withheld};

/// The factor by which the number of trials of a load may exceed the plan, if the planned trials have too few calls for
/// a tail.
const EXTENDED: u32 = 3;

/// A search in progress.
///
/// The search first looks for a load that meets the objectives. After a load that is not shown to meet or to miss them,
/// it tries a higher load, which has more calls. Then it bisects the range above the load that meets the objectives. In
/// that range, a load that is not shown to meet the objectives counts as a miss.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    range: Range,
    planned: u32,
    at: Option<f64>,
    made: u32,
    wanted: u32,
    /// The highest load that is not known to miss the objectives.
    floor: f64,
    /// Whether the floor meets the objectives.
    anchored: bool,
    /// The lowest load above the floor that does not meet the objectives.
    ceiling: Option<f64>,
}

impl Search {
    pub(crate) fn new(range: Range, trials: u32) -> Search {
        let (lowest, _) = range.ends();
        Search {
            range,
            planned: trials,
            at: Some(lowest),
            made: 0,
            wanted: trials,
            floor: lowest,
            anchored: false,
            ceiling: None,
        }
    }

    /// Returns the load of the next trial and its number, starting at 1; `None` at the end.
    pub(crate) fn next(&self) -> Option<(f64, u32)> {
        self.at.map(|at| (at, self.made + 1))
    }

    /// Records a trial, after which the load has the result `level`. `known` says that the load needs no further
    /// trials.
    pub(crate) fn made(&mut self, level: &LevelResult, known: bool, objectives: &[Objective]) {
        let Some(at) = self.at else {
            return;
        };
        self.made += 1;
        let verdict = level.verdict();
        if self.made >= self.wanted && verdict == ObjectiveVerdict::NotShown {
            // The decision uses only the number of calls, not their speed, so intervals keep their confidence.
            let needed = level.trials_for_tails(objectives);
            let possible = needed.filter(|needed| *needed <= EXTENDED * self.planned);
            self.wanted = self.wanted.max(possible.unwrap_or_default());
        }
        if self.made < self.wanted && !known {
            return;
        }
        match (verdict, self.anchored) {
            (ObjectiveVerdict::Kept, _) => (self.floor, self.anchored) = (at, true),
            // A higher load would not help either.
            (ObjectiveVerdict::NotShown, false) if level.withheld.iter().any(is_of_client) => {
                self.at = None;
                return;
            }
            (ObjectiveVerdict::NotShown, false) => self.floor = at,
            (ObjectiveVerdict::Missed, _) | (ObjectiveVerdict::NotShown, true) => {
                self.ceiling = Some(at)
            }
        }
        let (_, highest) = self.range.ends();
        self.at = match self.ceiling {
            Some(ceiling) => self.range.middle(self.floor, ceiling),
            None if self.floor >= highest => None,
            None if self.anchored => Some(highest),
            None => Some((2.0 * self.floor).min(highest)),
        };
        (self.made, self.wanted) = (0, self.planned);
    }
}

/// Returns whether the client or the settings withhold the figures at every load.
fn is_of_client(withheld: &Withheld) -> bool {
    matches!(withheld.reason, Reason::ClientLag | Reason::TooShort)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::LoadName;
    use crate::load::Load;
    use crate::objective::ObjectiveResult;
    use crate::steady::Criteria;

    fn level(at: f64, verdict: ObjectiveVerdict) -> LevelResult {
        let load = LoadName::of(&Load::Concurrency(at as u32));
        LevelResult {
            objectives: vec![ObjectiveResult {
                objective: String::new(),
                verdict,
                value: None,
                bound: None,
                reason: None,
            }],
            ..LevelResult::of(
                load,
                vec![crate::level::tests::trial(1, Ok(1.0))],
                &[],
                None,
                &Criteria::default(),
            )
        }
    }

    fn tried(verdict: impl Fn(f64) -> ObjectiveVerdict) -> Vec<f64> {
        let mut search = Search::new(Range::Concurrency(1, 64), 1);
        let mut tried = Vec::new();
        while let Some((at, _)) = search.next() {
            tried.push(at);
            assert!(tried.len() < 20, "{tried:?}");
            search.made(&level(at, verdict(at)), false, &[]);
        }
        tried
    }

    #[test]
    fn the_range_is_halved() {
        for truth in [1.0, 7.0, 8.0, 63.0] {
            let tried = tried(|at| {
                if at <= truth {
                    ObjectiveVerdict::Kept
                } else {
                    ObjectiveVerdict::Missed
                }
            });
            assert_eq!(tried[..2], [1.0, 64.0]);
            assert!(
                tried.contains(&truth) && tried.contains(&(truth + 1.0)),
                "{tried:?}"
            );
            assert!(tried.len() <= 8, "{tried:?}");
        }
        assert_eq!(tried(|_| ObjectiveVerdict::Missed), [1.0]);
        assert_eq!(tried(|_| ObjectiveVerdict::Kept), [1.0, 64.0]);
    }

    #[test]
    fn it_goes_on_above_loads_that_show_nothing() {
        let few_below_4 = |at: f64| match at {
            ..4.0 => ObjectiveVerdict::NotShown,
            ..=8.0 => ObjectiveVerdict::Kept,
            _ => ObjectiveVerdict::Missed,
        };
        let found = tried(few_below_4);
        assert_eq!(found[..4], [1.0, 2.0, 4.0, 64.0]);
        assert!(found.contains(&8.0) && found.contains(&9.0), "{found:?}");
        // The first load with enough calls misses the objectives, but loads below it may meet them.
        let found = tried(|at| {
            if at < 3.0 {
                ObjectiveVerdict::NotShown
            } else {
                ObjectiveVerdict::Missed
            }
        });
        assert_eq!(found, [1.0, 2.0, 4.0, 3.0]);
        assert_eq!(
            tried(|_| ObjectiveVerdict::NotShown),
            [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
        );
    }

    #[test]
    fn a_late_client_ends_it() {
        let mut search = Search::new(Range::Concurrency(1, 64), 1);
        let trials = vec![crate::level::tests::trial(1, Err(Reason::ClientLag))];
        search.made(&crate::level::tests::level(trials), false, &[]);
        assert_eq!(search.next(), None);
    }

    #[test]
    fn a_client_that_is_late_at_the_highest_load_only_does_not_end_it() {
        let mut search = Search::new(Range::Concurrency(1, 64), 1);
        search.made(&level(1.0, ObjectiveVerdict::Kept), false, &[]);
        let trials = vec![crate::level::tests::trial(1, Err(Reason::ClientLag))];
        search.made(&crate::level::tests::level(trials), false, &[]);
        assert_eq!(search.next(), Some((32.0, 1)));
    }

    #[test]
    fn trials_are_added_while_they_can_give_a_tail_enough_calls() {
        let objectives: [Objective; 1] = ["ttft_p95<=1s".parse().expect("an objective")];
        let of = |trials: u32| {
            let trials = (1..=trials).map(|number| crate::level::tests::trial(number, Ok(1.0)));
            let load = LoadName::of(&Load::Concurrency(1));
            LevelResult::of(
                load,
                trials.collect(),
                &objectives,
                None,
                &Criteria::default(),
            )
        };
        let made = |planned: u32| {
            let mut search = Search::new(Range::Concurrency(1, 64), planned);
            while let Some((1.0, trial)) = search.next() {
                search.made(&of(trial), false, &objectives);
                assert!(trial < 10);
            }
            search.floor
        };
        // 50 of the 130 calls that are needed.
        let mut search = Search::new(Range::Concurrency(1, 64), 1);
        for trial in 1..=3 {
            assert_eq!(search.next(), Some((1.0, trial)));
            search.made(&of(trial), false, &objectives);
        }
        assert_eq!(search.next(), Some((64.0, 1)), "kept by 150 calls");
        assert_eq!(made(3), 1.0);
    }
}
