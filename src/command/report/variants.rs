//! The variants of the experiments in a report, compared by session.

use std::collections::BTreeMap;
use std::time::SystemTime;
use tokengauge_experiments::{Experiment, Observed, Report, Rules, judge};
use tokengauge_store::history::{TimedCall, UnitTally};
use tokengauge_store::query::{UnitKind, UnitQuery};

#[derive(Default)]
pub(super) struct Variants(BTreeMap<String, UnitTally>);

impl Variants {
    pub(super) fn add(&mut self, past: &TimedCall<'_>) {
        let Some(experiment) = &past.record.experiment else {
            return;
        };
        if let Some(tally) = self.0.get_mut(experiment) {
            return tally.add(past);
        }
        let mut tally = UnitTally::new(UnitQuery {
            experiment: experiment.clone(),
            ..UnitQuery::default()
        });
        tally.add(past);
        self.0.insert(experiment.clone(), tally);
    }

    pub(super) fn reports(&self, made: SystemTime) -> Vec<Report> {
        let reports = self.0.iter().map(|(name, tally)| {
            let experiment = Experiment {
                name: name.clone(),
                arms: Vec::new(),
                unit: UnitKind::Session,
                rules: Rules::default(),
            };
            let observed = Observed::of(&tally.units(), experiment.unit, &experiment.rules);
            judge(&experiment, &observed, made)
        });
        reports.collect()
    }
}
