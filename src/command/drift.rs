//! `tokengauge drift`, and the background evaluation of a running proxy.

mod page;

use tokengauge_core::time::Timestamp;

use super::api_client::{self, Proxy};
use super::error::CommandError;
use crate::Error;
use crate::cli::{DriftArgs, DriftFormat};
use page::Page;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tokengauge_admin::Drifts;
use tokengauge_drift::{DriftState, Entry, Settings, evaluate};
use tokengauge_process::output;

const DEFAULT_NAME: &str = "all";
/// The default age of calls from a warehouse: the default reference and window, plus the time for seasonality.
const STORE_READS: Duration = Duration::from_secs(36 * 86_400);

pub(super) fn drift(args: &DriftArgs) -> Result<(), Error> {
    let mut args = args.clone();
    let _copy = super::warehouse::read(
        &args.warehouse,
        Some(SystemTime::now() - STORE_READS),
        &mut args.ledger,
    )?;
    let args = &args;
    let mut response = match &args.ledger {
        Some(path) => of_ledger(args, path)?,
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

fn of_ledger(args: &DriftArgs, path: &Path) -> Result<Drifts, Error> {
    let now = SystemTime::now();
    let at = args.at.map_or(now, |at| at.before(now));
    let (config, _) = super::load(&args.config)?;
    let mut settings = config.drifts;
    if settings.is_empty() {
        settings.push(Settings::new(DEFAULT_NAME));
    }
    let reader = super::reader(path);
    let entries: Result<Vec<Entry>, _> = settings
        .iter()
        .filter(|one| args.name.as_deref().is_none_or(|name| *one.name == *name))
        .map(|one| evaluate(&reader, one, at, &|| true))
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
