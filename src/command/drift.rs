//! `tokengauge drift`, and the background evaluation of a running proxy.

mod page;

use tokengauge_core::time::Timestamp;

use super::api_client::{self, Proxy};
use super::error::CommandError;
use crate::Error;
use crate::cli::{DriftArgs, DriftFormat};
use page::Page;
use std::time::SystemTime;
use tokengauge_admin::Drifts;
use tokengauge_drift::{DriftState, Entry, Settings, evaluate};
use tokengauge_process::output;
use tokengauge_store::stored_calls::StoredCalls;

const DEFAULT_NAME: &str = "all";

pub(super) fn drift(args: &DriftArgs) -> Result<(), Error> {
    let stored = super::warehouse::stored(&args.warehouse, args.ledger.as_deref())?;
    let mut response = match &stored {
        Some(calls) => of_calls(args, calls)?,
        None => of_proxy(args)?,
    };
    if let Some(name) = &args.name {
        response.drifts.retain(|entry| entry.name == *name);
        if response.drifts.is_empty() {
            return Err(CommandError::UnknownDrift(name.clone()).into());
        }
    }
    output::print(&match args.format.chosen() {
        DriftFormat::Json => super::json(&response)?,
        format => Page::of(&response, format),
    })?;
    verdict(&response)
}

fn verdict(response: &Drifts) -> Result<(), Error> {
    let drifted = |entry: &&Entry| entry.state == DriftState::Drifted;
    let names: Vec<&str> = response
        .drifts
        .iter()
        .filter(drifted)
        .map(|entry| entry.name.as_str())
        .collect();
    if names.is_empty() {
        Ok(())
    } else {
        Err(Error::Found(format!("drifted: {}", names.join(", "))))
    }
}

fn of_calls(args: &DriftArgs, calls: &StoredCalls) -> Result<Drifts, Error> {
    let now = SystemTime::now();
    let at = args.at.map_or(now, |at| at.before(now));
    let (config, _) = super::load(&args.config)?;
    let mut settings = config.drifts;
    if settings.is_empty() {
        settings.push(Settings::new(DEFAULT_NAME));
    }
    let entries: Result<Vec<Entry>, _> = settings
        .iter()
        .filter(|one| args.name.as_deref().is_none_or(|name| *one.name == *name))
        .map(|one| evaluate(calls, one, at, &|| true))
        .collect::<Result<_, _>>();
    Ok(Drifts {
        evaluated_at: Some(Timestamp::seconds(at)),
        error: None,
        drifts: entries?,
    })
}

fn of_proxy(args: &DriftArgs) -> Result<Drifts, Error> {
    let proxy = Proxy::of(&args.admin)?;
    let response: Drifts = api_client::runtime()?.block_on(proxy.get("/api/v1/drift"))?;
    if let Some(error) = &response.error {
        return Err(CommandError::refused(proxy.address(), error.as_str()).into());
    }
    if response.evaluated_at.is_none() {
        return Err(CommandError::DriftNotEvaluated(proxy.address().to_owned()).into());
    }
    Ok(response)
}
