//! Converts objectives of a configuration or a running proxy into objectives of a benchmark.

use crate::Error;
use crate::cli::{AdminArgs, BenchArgs};
use crate::command::api_client::{self, Proxy};
use crate::command::error::CommandError;
use serde::Deserialize;
use tokengauge_bench::metric::{Metric, TailMetric, TailOf};
use tokengauge_bench::objective::{Objective, ObjectiveMetric};

#[derive(Debug, Deserialize)]
struct Slo {
    name: String,
    indicator: String,
    threshold: Option<f64>,
    /// The required share of good events.
    objective: f64,
    /// `request`, `token`, or the length of a slice.
    event: String,
}

#[derive(Debug, Deserialize)]
struct Slos {
    slos: Vec<Slo>,
}

/// Returns the objectives that the command line names.
///
/// # Errors
/// Returns an error if an objective does not exist or if benchmarks do not measure its indicator.
pub(super) fn objectives(args: &BenchArgs) -> Result<Vec<Objective>, Error> {
    if args.until.is_empty() {
        return Ok(Vec::new());
    }
    let (slos, origin) = match &args.through {
        Some(address) => (of_proxy(address, args)?, address.clone()),
        None => of_configuration(args)?,
    };
    let found = args.until.iter().map(|name| {
        let refused = |reason| CommandError::refused(format!("--until slo={name}"), reason);
        let found = slos.iter().find(|slo| slo.name == *name);
        let Some(slo) = found else {
            let names: Vec<_> = slos.iter().map(|slo| slo.name.as_str()).collect();
            let names = if names.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has {}", names.join(", "))
            };
            let reason = format!("{origin} has no objective with this name; {names}");
            return Err(refused(reason));
        };
        objective(slo).map_err(refused)
    });
    Ok(found.collect::<Result<_, _>>()?)
}

fn of_proxy(address: &str, args: &BenchArgs) -> Result<Vec<Slo>, Error> {
    let proxy = Proxy::of(&AdminArgs {
        admin: address.to_owned(),
        token_file: args.token_file.clone(),
        token: args.token.clone(),
    })?;
    let response: Slos = api_client::runtime()?.block_on(proxy.get("/api/v1/slos"))?;
    Ok(response.slos)
}

fn of_configuration(args: &BenchArgs) -> Result<(Vec<Slo>, String), Error> {
    let (config, origin) = crate::command::load(&args.config)?;
    let slos = config.slos.iter().map(|slo| {
        let judgement = &slo.judgement;
        let by_call =
            judgement.weight == tokengauge_slo::Weight::Request && judgement.slice.is_none();
        Slo {
            name: slo.name.to_string(),
            indicator: judgement.sli.as_str().to_owned(),
            threshold: judgement.sli.threshold(),
            objective: slo.objective,
            event: if by_call { "request" } else { "other" }.to_owned(),
        }
    });
    Ok((slos.collect(), origin))
}

/// Returns the equivalent objective of a benchmark, such as `ttft_p95<=500ms` for 95 % of calls within 500 ms.
fn objective(slo: &Slo) -> Result<Objective, String> {
    let at = |of, at_most| {
        let limit = slo.threshold.unwrap_or_default();
        Objective { of, at_most, limit }
    };
    let of = match slo.indicator.as_str() {
        "throughput" => {
            return Ok(at(ObjectiveMetric::Figure(Metric::OutputThroughput), false));
        }
        "ttft" => TailOf::Ttft,
        "output_tps" => TailOf::Tps,
        "duration" => TailOf::Latency,
        "availability" => {
            return Err(
                "benchmarks do not measure availability; limit failed calls with --max-failed"
                    .to_owned(),
            );
        }
        other => {
            return Err(format!(
                "benchmarks cannot measure `{other}`, only ttft, output_tps, duration and throughput"
            ));
        }
    };
    if slo.event != "request" {
        return Err(
            "the objective counts tokens or slices of time, but benchmarks count calls".to_owned(),
        );
    }
    let percent = slo.objective * 100.0;
    let whole = percent.round();
    if !(51.0..=99.0).contains(&whole) || (percent - whole).abs() > 1e-6 {
        return Err(format!(
            "the objective requires {percent} % of calls, but benchmarks need a whole percentage from 51 to 99"
        ));
    }
    let tail = TailMetric {
        of,
        percent: whole as u8,
    };
    Ok(at(ObjectiveMetric::Tail(tail), of != TailOf::Tps))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slo(indicator: &str, threshold: f64, objective: f64, event: &str) -> Slo {
        Slo {
            name: "n".to_owned(),
            indicator: indicator.to_owned(),
            threshold: Some(threshold),
            objective,
            event: event.to_owned(),
        }
    }

    #[test]
    fn an_objective_means_the_same_in_a_benchmark() {
        let text = |slo: &Slo| objective(slo).map(|objective| objective.to_string());
        for (indicator, threshold, share, wanted) in [
            ("ttft", 0.5, 0.95, "ttft_p95<=500ms"),
            ("output_tps", 20.0, 0.9, "tps_p10>=20"),
            ("duration", 8.0, 0.99, "latency_p99<=8000ms"),
        ] {
            let found = text(&slo(indicator, threshold, share, "request"));
            assert_eq!(found.as_deref(), Ok(wanted));
        }
        let throughput = text(&slo("throughput", 1000.0, 0.999, "1m"));
        assert_eq!(throughput.as_deref(), Ok("output_throughput>=1000"));
        for (indicator, share, event, wanted) in [
            ("ttft", 0.999, "request", "a whole percentage"),
            ("ttft", 0.95, "token", "benchmarks count calls"),
            ("stalls", 0.95, "request", "cannot measure `stalls`"),
            ("availability", 0.95, "request", "--max-failed"),
        ] {
            let error = text(&slo(indicator, 1.0, share, event)).expect_err("none");
            assert!(error.contains(wanted), "{error}");
        }
    }
}
