//! `tokengauge slo incident`: saves an incident as one HTML file.

use super::api_client::{self, Proxy};
use super::error::CommandError;
use crate::Error;
use crate::cli::{COMMIT, IncidentArgs, When};
use std::path::Path;
use std::time::{Duration, SystemTime};
use tokengauge_admin::capsule_of_ledger;
use tokengauge_core::time::rfc3339_seconds;
use tokengauge_html::capsule::{Configuration, Span};

const SPAN: Duration = Duration::from_secs(3600);

pub(super) fn incident(args: &IncidentArgs) -> Result<(), Error> {
    let now = SystemTime::now();
    let page = match &args.ledger {
        Some(ledger) => of_ledger(args, ledger, now)?,
        None => of_proxy(args, now)?,
    };
    super::write(args.output.as_deref(), &page)
}

fn of_proxy(args: &IncidentArgs, now: SystemTime) -> Result<String, Error> {
    let proxy = Proxy::of(&args.admin)?;
    let mut query = form_urlencoded::Serializer::new(String::new());
    if let Some(slo) = &args.slo {
        query.append_pair("slo", slo);
    }
    for (name, when) in [("since", args.since), ("until", args.until)] {
        if let Some(when) = when {
            let at = rfc3339_seconds(when.before(now));
            query.append_pair(name, &at.to_string());
        }
    }
    let path = format!("/api/v1/capsule?{}", query.finish());
    let runtime = api_client::runtime()?;
    let page = runtime.block_on(proxy.text(path.trim_end_matches('?')))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

fn of_ledger(args: &IncidentArgs, ledger: &Path, now: SystemTime) -> Result<String, Error> {
    let at = |when: Option<When>| when.map(|when| when.before(now));
    let until = at(args.until).unwrap_or(now);
    let since = at(args.since).or_else(|| until.checked_sub(SPAN));
    let since = since.unwrap_or(SystemTime::UNIX_EPOCH);
    super::in_order(Some(since), Some(until))?;
    let reader = super::reader(ledger);
    let made = capsule_of_ledger(reader, Span { since, until }, now);
    let mut capsule = made.map_err(|problem| CommandError::Capsule(problem.to_string()))?;
    if args.config.config.is_some() {
        let (config, origin) = super::load(&args.config)?;
        capsule.configuration = Some(Configuration {
            text: config.redacted,
            digest: config.digest,
            origin,
            last_change: None,
        });
    }
    Ok(capsule.html(COMMIT))
}
