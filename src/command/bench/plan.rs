//! Converts the command line into a plan.

use super::{BenchCommandError, gauge, until};
use crate::Error;
use crate::cli::{BenchArgs, BenchArrival, BenchLoad, BenchRequest, When};
use crate::command::error::CommandError;
use crate::command::{export, warehouse};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_bench::BenchError;
use tokengauge_bench::client::ClientSettings;
use tokengauge_bench::endpoint::{RequestSettings, join};
use tokengauge_bench::load::{ArrivalPattern, Load, Phases};
use tokengauge_bench::run::{Levels, Plan, Range};
use tokengauge_bench::steady::Criteria;
use tokengauge_bench::workload::Workload;
use tokengauge_core::time::rfc3339_seconds;
use tokengauge_net::tls::ClientTls;
use tokengauge_process::SystemError;
use uuid::Uuid;

const MOST: f64 = 8192.0;

const SEARCHED: &str = "1..64";

const SINCE: Duration = Duration::from_secs(86_400);

/// Converts the command line into a plan.
///
/// # Errors
/// Returns an error if options contradict each other, or if a file or an environment variable cannot be used.
pub(super) fn plan(args: &BenchArgs) -> Result<Plan, Error> {
    let workload = workload(&args.request)?;
    let mut objectives = args.objectives.clone();
    objectives.extend(until::objectives(args)?);
    let levels = levels(&args.load, &workload, !args.until.is_empty())?;
    if !args.until.is_empty() && !matches!(levels, Levels::Search(_)) {
        return Err(BenchCommandError::UntilWithoutRange.into());
    }
    if matches!(levels, Levels::Search(_)) && objectives.is_empty() {
        return Err(BenchCommandError::RangeWithoutObjective.into());
    }
    let gauge = match &args.through {
        Some(address) => Some(gauge::ask(address, args)?),
        None => None,
    };
    let criteria = &args.criteria;
    let run = Uuid::new_v4();
    Ok(Plan {
        client: client(args)?,
        workload: Arc::new(workload),
        levels,
        trials: args.load.trials,
        phases: Phases {
            warm_up: args.load.warmup_duration,
            burn_in: args.load.burn_in_duration,
            measure: args.load.benchmark_duration,
            drain: args.load.grace_period,
        },
        interval: criteria.sample_interval,
        criteria: Criteria {
            drift: criteria.steady_within / 100.0,
            failed: criteria.max_failed / 100.0,
            lag: criteria.max_client_lag.map(|lag| lag.as_secs_f64()),
            stop_within: criteria.stop_within.map(|percent| percent / 100.0),
            ..Criteria::default()
        },
        objectives,
        usd_per_hour: args.usd_per_hour,
        // Limits the seed to integers that JSON numbers represent exactly.
        seed: args
            .load
            .random_seed
            .unwrap_or(u64::from(run.as_fields().0)),
        name: format!("bench-{}", run.simple()),
        measured_by: crate::command::measured_by::measured_by(),
        gauge,
    })
}

fn workload(request: &BenchRequest) -> Result<Workload, Error> {
    if let Some(path) = &request.input_file {
        return Ok(Workload::read(path).map_err(BenchCommandError::from)?);
    }
    let since = request.since.unwrap_or(When::Back(SINCE));
    let since = since.before(SystemTime::now());
    let ledger = request.from.as_deref();
    let Some(calls) = warehouse::stored(&request.warehouse, ledger)? else {
        return Ok(Workload::Synthetic {
            input: request.isl,
            output: request.osl,
        });
    };
    let folder =
        tempfile::tempdir().map_err(|error| SystemError::Task("make a temporary folder", error))?;
    let trace = folder.path().join("trace.jsonl");
    if export::trace(&calls, since, &trace)? == 0 {
        let origin = warehouse::origin(&request.warehouse, ledger);
        let since = rfc3339_seconds(since).to_string();
        return Err(BenchCommandError::NoGenerations { origin, since }.into());
    }
    Ok(Workload::read(&trace).map_err(BenchCommandError::from)?)
}

fn client(args: &BenchArgs) -> Result<ClientSettings, Error> {
    let request = &args.request;
    let base = args.url.clone().unwrap_or_default();
    let path = request.endpoint.clone();
    let path = path.unwrap_or_else(|| request.endpoint_type.path(&request.model));
    let url = join(&base, &path)
        .map_err(|error| CommandError::refused(format!("{base}{path}"), error))?;
    Ok(ClientSettings {
        endpoint: request.endpoint_type,
        url,
        request: RequestSettings {
            model: request.model.clone(),
            ignore_eos: request.ignore_eos,
            extra: request.extra_inputs.clone().unwrap_or_default(),
        },
        headers: headers(request)?,
        tls: ClientTls {
            ca: request.ca.clone(),
            identity: request.cert.clone().zip(request.key.clone()),
            server_name: None,
        },
        http2: request.http2,
        timeout: request.request_timeout,
        identify: args.through.is_some(),
    })
}

fn headers(request: &BenchRequest) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    if let Some(name) = &request.api_key_env {
        let key = std::env::var(name).unwrap_or_default();
        let (header, prefix) = request.endpoint_type.key_header();
        let value = HeaderValue::from_str(&format!("{prefix}{}", key.trim()));
        let Some(mut value) = value.ok().filter(|_| !key.trim().is_empty()) else {
            let reason = format!("the environment variable {name} does not contain a key");
            return Err(CommandError::refused("--api-key-env", reason).into());
        };
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    for text in &request.headers {
        let parts = text.split_once(':').and_then(|(name, value)| {
            let name = HeaderName::try_from(name.trim()).ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        });
        let Some((name, value)) = parts else {
            // The value may be a key, so the message contains only the name.
            let name = text.split(':').next().unwrap_or_default();
            return Err(BenchCommandError::from(BenchError::Header(name.to_owned())).into());
        };
        headers.append(name, value);
    }
    Ok(headers)
}

fn levels(load: &BenchLoad, workload: &Workload, searches: bool) -> Result<Levels, CommandError> {
    let pattern = match load.arrival_pattern {
        BenchArrival::Poisson => ArrivalPattern::Poisson,
        BenchArrival::Constant => ArrivalPattern::Constant,
    };
    if load.multi_turn {
        let sessions = workload.sessions();
        let reason = "the first call of a session has no timestamp";
        let sessions = sessions.ok_or_else(|| CommandError::refused("--multi-turn", reason))?;
        return Ok(Levels::All(vec![Load::Sessions(sessions.into())]));
    }
    if load.fixed_schedule {
        let starts = workload.schedule();
        let reason = "not every line of the file has a timestamp";
        let starts = starts.ok_or_else(|| CommandError::refused("--fixed-schedule", reason))?;
        return Ok(Levels::All(vec![Load::Schedule(starts.into())]));
    }
    if let Some(text) = &load.request_rate {
        return match numbers(text, "--request-rate")? {
            Numbers::Range(from, to) => {
                let step = load.search_step.unwrap_or((to - from) / 50.0);
                Ok(Levels::Search(Range::RequestRate(from, to, step, pattern)))
            }
            Numbers::List(rates) => {
                let rates = rates
                    .into_iter()
                    .map(|rate| Load::RequestRate(rate, pattern));
                Ok(Levels::All(rates.collect()))
            }
        };
    }
    let text = load.concurrency.as_deref();
    let text = text.unwrap_or(if searches { SEARCHED } else { "1" });
    let whole = |number: f64| {
        if number.fract() == 0.0 {
            Ok(number as u32)
        } else {
            let reason = format!("{number} is not a whole number");
            Err(CommandError::refused("--concurrency", reason))
        }
    };
    match numbers(text, "--concurrency")? {
        Numbers::Range(from, to) => {
            Ok(Levels::Search(Range::Concurrency(whole(from)?, whole(to)?)))
        }
        Numbers::List(all) => {
            let loads = all
                .into_iter()
                .map(|number| whole(number).map(Load::Concurrency));
            Ok(Levels::All(loads.collect::<Result<_, _>>()?))
        }
    }
}

enum Numbers {
    List(Vec<f64>),
    Range(f64, f64),
}

/// Parses `1,2,4` or `1..64`.
fn numbers(text: &str, option: &str) -> Result<Numbers, CommandError> {
    let number = |text: &str| {
        text.trim()
            .parse()
            .ok()
            .filter(|number| *number > 0.0 && *number <= MOST)
    };
    let found = match text.split_once("..") {
        Some((from, to)) => {
            let ends = number(from).zip(number(to)).filter(|(from, to)| from < to);
            ends.map(|(from, to)| Numbers::Range(from, to))
        }
        None => text
            .split(',')
            .map(number)
            .collect::<Option<Vec<f64>>>()
            .map(Numbers::List),
    };
    found.ok_or_else(|| {
        let reason = format!(
            "`{text}` is not a load such as 8, a list such as 1,2,4,8 or a range such as 1..64; \
             loads must be above 0 and at most {MOST}"
        );
        CommandError::refused(option, reason)
    })
}
