//! `tokengauge gate`: decides whether a rollout may continue.

mod emit;
mod prometheus;
mod write;

use tokengauge_core::time::rfc3339_millis;

use super::api_client::{self, Proxy};
use super::error::CommandError;
use super::json;
use crate::Error;
use crate::cli::{GateArgs, GateFormat};
use std::time::SystemTime;
use tokengauge_files::audit;
use tokengauge_gate::{Asked, Gate, GateVerdict, Plan, Report, evaluate_calls};
use tokengauge_process::{SystemError, output};
use tokengauge_store::stored_calls::StoredCalls;

pub(super) fn gate(args: &GateArgs) -> Result<(), Error> {
    if let (None, Some(path)) = (&args.warehouse.url, &args.ledger) {
        super::existing_reader(path)?;
    }
    let calls = super::warehouse::stored(&args.warehouse, args.ledger.as_deref())?;
    if let Some(manifest) = args.emit {
        let (gate, _) = configured_gate(args)?;
        return output::print(&emit::emit(manifest, &gate, args)?);
    }
    if let Some(address) = &args.prometheus {
        let (verdict, reason) = prometheus::ask(&args.name, address, &args.credentials)?;
        let word: &str = verdict.into();
        let name = output::printable(&args.name);
        output::print(&format!("gate {name}: {word}: {reason}\n"))?;
        return ended(verdict, format!("gate {}: {reason}", args.name));
    }
    if args.plan {
        let plan = match &calls {
            Some(calls) => plan_of_calls(calls, args)?,
            None => of_proxy::<Plan>(args, "/plan")?,
        };
        return output::print(&match args.format.chosen() {
            GateFormat::Json => json(&plan)?,
            GateFormat::Markdown => write::plan_markdown(&plan),
            _ => write::plan(&plan),
        });
    }
    let report = match &calls {
        Some(calls) => of_calls(calls, args)?,
        None => of_proxy::<Report>(args, "")?,
    };
    if let Some(file) = &args.audit {
        let line = tokengauge_admin::gate_audit_line(&report, "command");
        let written = line.and_then(|line| audit::append(file, &[line]));
        written.map_err(SystemError::write(file))?;
    }
    output::print(&match args.format.chosen() {
        GateFormat::Text => write::text(&report),
        GateFormat::Json => json(&report)?,
        GateFormat::Junit => write::junit(&report),
        GateFormat::Github => write::github(&report),
        GateFormat::Markdown => write::markdown(&report),
    })?;
    let said = format!("gate {}: {}", report.name, report.reason);
    ended(report.verdict, said)
}

fn ended(verdict: GateVerdict, said: String) -> Result<(), Error> {
    match verdict {
        GateVerdict::Pass => Ok(()),
        GateVerdict::Fail => Err(CommandError::GateFailed(said).into()),
        GateVerdict::Inconclusive => Err(Error::Undecided(said)),
    }
}

fn of_proxy<T: serde::de::DeserializeOwned>(args: &GateArgs, what: &str) -> Result<T, Error> {
    let proxy = Proxy::of(&args.admin)?;
    let since = args.since.map(|since| since.before(SystemTime::now()));
    let since = since.map(|since| format!("?since={}", rfc3339_millis(since)));
    let path = format!(
        "/api/v1/gates/{}{what}{}",
        api_client::encoded(&args.name),
        since.unwrap_or_default()
    );
    Ok(api_client::runtime()?.block_on(proxy.get(&path))?)
}

fn configured_gate(args: &GateArgs) -> Result<(Gate, String), Error> {
    let (config, origin) = super::load(&args.config)?;
    let name = &args.name;
    let gate = config.gates.into_iter().find(|gate| gate.name == *name);
    let unknown = || Error::Configuration(format!("{origin}: there is no [[gate]] named `{name}`"));
    Ok((gate.ok_or_else(unknown)?, config.digest))
}

fn of_calls(calls: &StoredCalls, args: &GateArgs) -> Result<Report, Error> {
    let (gate, digest) = configured_gate(args)?;
    let now = SystemTime::now();
    let since = args.since.map(|since| since.before(now));
    let asked = Asked {
        now,
        since,
        config_sha256: digest,
    };
    Ok(evaluate_calls(&gate, &asked, calls)?)
}

fn plan_of_calls(calls: &StoredCalls, args: &GateArgs) -> Result<Plan, Error> {
    let (gate, _) = configured_gate(args)?;
    Ok(tokengauge_gate::plan(&gate, SystemTime::now(), calls)?)
}
