//! `tokengauge experiment`: compares the variants of an experiment.

mod table;

pub(super) use table::{markdown, table};

use super::api_client::{self, Proxy};
use super::error::CommandError;
use crate::Error;
use crate::cli::{ExperimentArgs, ExperimentFormat, ExperimentUnit};
use std::time::SystemTime;
use tokengauge_experiments::{Experiment, Observed, Report, Rules, judge, score_query};
use tokengauge_process::output;
use tokengauge_store::query::{Threshold, UnitKind, UnitQuery};
use tokengauge_store::stored_calls::StoredCalls;

pub(super) fn experiment(args: &ExperimentArgs) -> Result<(), Error> {
    if let (None, Some(path)) = (&args.warehouse.url, &args.ledger) {
        super::existing_reader(path)?;
    }
    let report = match super::warehouse::stored(&args.warehouse, args.ledger.as_deref())? {
        Some(calls) => of_calls(&calls, args)?,
        None => of_proxy(args)?,
    };
    if report.arms.iter().all(|arm| arm.units == 0) {
        return Err(CommandError::NoUnits(args.name.clone()).into());
    }
    let text = match args.format.chosen() {
        ExperimentFormat::Text => table::table(&report),
        ExperimentFormat::Markdown => table::markdown(&report),
        ExperimentFormat::Json => super::json(&report)?,
    };
    output::print(&text)
}

fn of_proxy(args: &ExperimentArgs) -> Result<Report, Error> {
    let proxy = Proxy::of(&args.admin)?;
    let path = format!("/api/v1/experiments/{}", api_client::encoded(&args.name));
    Ok(api_client::runtime()?.block_on(proxy.get(&path))?)
}

fn of_calls(calls: &StoredCalls, args: &ExperimentArgs) -> Result<Report, Error> {
    let experiment = configured(args)?;
    let query = UnitQuery {
        experiment: experiment.name.clone(),
        unit: experiment.unit,
        ..UnitQuery::default()
    };
    let found = calls.experiment_units(&query)?;
    let mut observed = Observed::of(&found, experiment.unit, &experiment.rules);
    if !experiment.rules.scores.is_empty() {
        let query = score_query(&experiment.name, experiment.unit);
        observed = observed.with_scores(calls.scored_units(&query)?);
    }
    Ok(judge(&experiment, &observed, SystemTime::now()))
}

/// Returns the configured experiment, or one with default rules if it is not configured. Options of the command line override the configuration.
fn configured(args: &ExperimentArgs) -> Result<Experiment, Error> {
    let (config, _) = super::load(&args.config)?;
    let mut configured = config.experiments.into_iter();
    let found = configured.find(|experiment| experiment.name == args.name);
    let mut experiment = found.unwrap_or_else(|| Experiment {
        name: args.name.clone(),
        arms: Vec::new(),
        unit: UnitKind::Session,
        rules: Rules::default(),
    });
    match args.unit {
        Some(ExperimentUnit::Session) => experiment.unit = UnitKind::Session,
        Some(ExperimentUnit::Agent) => experiment.unit = UnitKind::Agent,
        Some(ExperimentUnit::User) => experiment.unit = UnitKind::User,
        None => {}
    }
    let rules = &mut experiment.rules;
    let ttft = args.ttft_above.map(|span| span.as_secs_f64());
    rules.ttft_above = ttft.map(Threshold::near).or(rules.ttft_above);
    rules.tps_below = args.tps_below.map(Threshold::near).or(rules.tps_below);
    rules.min_units = args.min_units.unwrap_or(rules.min_units);
    Ok(experiment)
}
