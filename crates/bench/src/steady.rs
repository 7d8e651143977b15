//! Decides whether a trial counts: no failed calls, enough calls, a client that keeps up, and a steady run.

use crate::load::Load;
use crate::metric::Part;
use crate::observed::{Call, Observed};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;
use tokengauge_stats::steady::{self, Beginning};
use tokengauge_stats::{StatsError, bootstrap};

/// The minimum mean number of calls in flight of a closed loop, as a share of its concurrency.
const IN_FLIGHT: f64 = 0.95;
/// The minimum share of the scheduled calls that an open loop must have begun.
const BEGUN: f64 = 0.95;
/// The allowed lag of the client as a share of the median time to first token, if no limit is set.
const LAG_SHARE: f64 = 0.05;
/// The minimum allowed lag of the client in seconds. The scheduler of a shared machine can delay by this much.
const LAG_ALWAYS: f64 = 0.01;
/// The share of the time for which the client may exceed the allowed lag. A client that is late for a longer time can
/// distort the whole p99.
const LATE_SHARE: f64 = 0.01;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criteria {
    /// The allowed change of TTFT and TPS over the run, as a share. Their intervals must lie within it.
    pub drift: f64,
    pub failed: f64,
    /// The allowed lag of the client in seconds; `None` allows a share of the TTFT.
    pub lag: Option<f64>,
    pub confidence: f64,
    /// The relative width at which the figures of a load need no further trials. If set, intervals are valid after
    /// every trial together.
    pub stop_within: Option<f64>,
}

impl Criteria {
    /// Returns the confidence of an interval over this number of trials. If the run may stop after any trial, the error
    /// 1 − confidence is spread over all of them: the k-th interval, over k + 1 trials, gets the share 1 ÷ k(k + 1)
    /// (Bonferroni).
    pub fn confidence_after(&self, trials: usize) -> f64 {
        let interval = trials.saturating_sub(1).max(1) as f64;
        match self.stop_within {
            None => self.confidence,
            Some(_) => 1.0 - (1.0 - self.confidence) / (interval * (interval + 1.0)),
        }
    }
}

impl Default for Criteria {
    fn default() -> Criteria {
        Criteria {
            drift: 0.05,
            failed: 0.0,
            lag: None,
            confidence: 0.95,
            stop_within: None,
        }
    }
}

/// Why there is no figure, in one word.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// Calls failed.
    FailedCalls,
    /// There are too few calls.
    TooFewCalls,
    /// The measurement has too few intervals.
    TooShort,
    /// The run was not steady.
    NotSteady,
    /// The client itself was late.
    ClientLag,
    /// The backend did not keep up with an open loop.
    Overloaded,
    /// The run was stopped.
    Interrupted,
}

/// Why figures are withheld.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Withheld {
    /// The reason in one word.
    pub reason: Reason,
    /// The part of the figures that is withheld; `null` if all figures are.
    #[serde(default)]
    pub part: Option<Part>,
    /// What happened, and what to do.
    pub message: String,
}

impl Withheld {
    fn new(reason: Reason, message: impl Display) -> Withheld {
        Withheld {
            reason,
            part: None,
            message: message.to_string(),
        }
    }
}

impl Display for Withheld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    pub from: f64,
    pub to: f64,
}

/// Returns the steady part of a trial, and the figures that are withheld although the trial counts.
///
/// # Errors
/// Returns all reasons why the trial has no figures.
pub fn judge(
    observed: &Observed,
    load: &Load,
    criteria: &Criteria,
) -> Result<(Steady, Vec<Withheld>), Vec<Withheld>> {
    let mut reasons = Vec::new();
    if observed.interrupted {
        return Err(vec![Withheld::new(
            Reason::Interrupted,
            "the trial was stopped before its end",
        )]);
    }
    let to = observed.seconds;
    if observed.overloaded {
        let most = crate::load::MAX_IN_FLIGHT;
        let message =
            format!("{most} calls were in flight: the backend does not keep up with this rate");
        reasons.push(Withheld::new(Reason::Overloaded, message));
        return Err(reasons);
    }
    reasons.extend(failures(observed, criteria));
    reasons.extend(lag(observed, criteria));
    let complete = observed
        .between(0.0, to)
        .filter(|call| call.failed.is_none())
        .count();
    if complete < bootstrap::MIN_OBSERVATIONS {
        let needed = bootstrap::MIN_OBSERVATIONS;
        let seconds = (observed.seconds * needed as f64 / complete.max(1) as f64).ceil();
        let message = format!(
            "{complete} complete calls began during the measurement, but {needed} are needed: \
             measure for at least {seconds} s (--benchmark-duration)"
        );
        reasons.push(Withheld::new(Reason::TooFewCalls, message));
        return Err(reasons);
    }
    let from = match settled(observed) {
        Ok(from) => from,
        Err(reason) => {
            reasons.push(reason);
            return Err(reasons);
        }
    };
    let steady = Steady { from, to };
    reasons.extend(kept_load(observed, load, steady));
    reasons.extend(stalled(observed, load, steady));
    let unsteady = drifts(observed, steady, criteria);
    if reasons.is_empty() {
        unsteady.map(|parts| (steady, parts))
    } else {
        reasons.extend(unsteady.unwrap_or_else(|all| all));
        Err(reasons)
    }
}

fn failures(observed: &Observed, criteria: &Criteria) -> Option<Withheld> {
    let counted = observed.between(0.0, observed.seconds);
    let all = counted.clone().count();
    let mut kinds = BTreeMap::<&str, usize>::new();
    for kind in counted.filter_map(|call| call.failed.as_deref()) {
        *kinds.entry(kind).or_default() += 1;
    }
    let failed: usize = kinds.values().sum();
    if failed as f64 <= criteria.failed * all as f64 {
        return None;
    }
    let kinds: Vec<_> = kinds
        .iter()
        .map(|(kind, count)| format!("{kind}: {count}"))
        .collect();
    let message = format!("{failed} of {all} calls failed ({})", kinds.join(", "));
    Some(Withheld::new(Reason::FailedCalls, message))
}

fn lag(observed: &Observed, criteria: &Criteria) -> Option<Withheld> {
    let mut ttfts: Vec<_> = observed
        .between(0.0, observed.seconds)
        .filter_map(|call| call.ttft)
        .collect();
    ttfts.sort_by(f64::total_cmp);
    let median = ttfts.get(ttfts.len() / 2).copied().unwrap_or_default();
    let limit = criteria.lag.unwrap_or((median * LAG_SHARE).max(LAG_ALWAYS));
    let lag = observed.lag;
    let throttled = lag.throttled.time.as_secs_f64() / observed.seconds;
    let cause = if lag.p99 > limit {
        format!(
            "this client was at least {:.1} ms late for 1 % of the time",
            lag.p99 * 1e3
        )
    } else if throttled > LATE_SHARE && lag.throttled.pause() > limit {
        format!(
            "the CPU quota of the client's cgroup paused the client {} times, for {:.1} ms on average and {:.1} % of the time",
            lag.throttled.periods,
            lag.throttled.pause() * 1e3,
            throttled * 100.0
        )
    } else {
        return None;
    };
    let message = format!(
        "{cause}; at most {:.1} ms are allowed (--max-client-lag): run the benchmark on a machine with more free CPU and without a CPU limit",
        limit * 1e3
    );
    Some(Withheld::new(Reason::ClientLag, message))
}

fn settled(observed: &Observed) -> Result<f64, Withheld> {
    match steady::mser5(&observed.tokens) {
        Ok(Beginning::Ends { after }) => Ok(after as f64 * observed.interval),
        Ok(Beginning::NotInFirstHalf) => Err(Withheld::new(
            Reason::NotSteady,
            "throughput had not settled in the first half of the measurement (MSER-5): \
             warm up longer (--warmup-duration) or measure longer (--benchmark-duration)",
        )),
        Err(StatsError::TooFew { needed, got }) => {
            let message = format!(
                "the measurement has {got} intervals of throughput, but {needed} are needed: measure longer (--benchmark-duration)"
            );
            Err(Withheld::new(Reason::TooShort, message))
        }
        Err(error) => Err(Withheld::new(Reason::NotSteady, error)),
    }
}

fn kept_load(observed: &Observed, load: &Load, steady: Steady) -> Option<Withheld> {
    let message = match load {
        Load::Concurrency(streams) => {
            let mean = observed.mean_in_flight(steady.from, steady.to);
            if mean >= IN_FLIGHT * f64::from(*streams) {
                return None;
            }
            format!("{mean:.1} calls were in flight on average, not {streams}")
        }
        Load::RequestRate(rate, _) => {
            let expected = rate * observed.seconds;
            // A Poisson process often has √n fewer calls by chance, but hardly ever 3 √n fewer.
            let least = BEGUN * expected - 3.0 * expected.sqrt();
            if observed.begun as f64 >= least {
                return None;
            }
            format!("{} calls began instead of {expected:.0}", observed.begun)
        }
        Load::Schedule(_) | Load::Sessions(_) => return None,
    };
    Some(Withheld::new(Reason::NotSteady, message))
}

/// Returns a reason if half of the streams stalled at once, unless most calls stall anyway.
fn stalled(observed: &Observed, load: &Load, steady: Steady) -> Option<Withheld> {
    let counted = observed.between(0.0, steady.to);
    let (all, with_stall) = (
        counted.clone().count(),
        counted
            .clone()
            .filter(|call| !call.stalls.is_empty())
            .count(),
    );
    if 2 * with_stall > all {
        return None;
    }
    let target = match load {
        Load::Concurrency(streams) => f64::from(*streams),
        _ => observed.mean_in_flight(steady.from, steady.to),
    };
    let stalls = || counted.clone().flat_map(|call| call.stalls.iter().copied());
    let together = |moment: f64| {
        stalls()
            .filter(|(ended, gap)| (ended - gap..=*ended).contains(&moment))
            .count()
    };
    let (ended, gap) = stalls().find(|(ended, gap)| {
        *ended - gap < steady.to
            && 2 * together(ended - gap / 2.0) >= (target.ceil() as usize).max(1)
    })?;
    let message = format!(
        "at least half of the streams stalled for {gap:.1} s, {:.1} s after the measurement began",
        ended - gap
    );
    Some(Withheld::new(Reason::NotSteady, message))
}

/// Returns the figures that are not shown to change little over the run. Latency and throughput are steady if TTFT and
/// TPS are steady and the load was kept, or if the latency itself is steady.
///
/// # Errors
/// Returns the reasons if no figure is shown to change little.
fn drifts(
    observed: &Observed,
    steady: Steady,
    criteria: &Criteria,
) -> Result<Vec<Withheld>, Vec<Withheld>> {
    let complete = observed
        .between(steady.from, steady.to)
        .filter(|call| call.failed.is_none());
    let series = |of: fn(&Call) -> Option<f64>| complete.clone().filter_map(of).collect::<Vec<_>>();
    let drift = |part: Part, name: &str, series: &[f64]| {
        let limit = criteria.drift;
        let message = match steady::slope(series, criteria.confidence) {
            Ok(slope) if slope.is_within(limit) => return None,
            Ok(slope) => {
                let (lower, upper) = (slope.interval.lower * 100.0, slope.interval.upper * 100.0);
                format!(
                    "{name} changed by {lower:+.1} to {upper:+.1} % over the run ({} calls), which is not shown to be \
                     within ±{:.0} %: measure longer (--benchmark-duration)",
                    series.len(),
                    limit * 100.0
                )
            }
            Err(error) => format!("cannot determine whether {name} is steady: {error}"),
        };
        Some(Withheld {
            part: Some(part),
            ..Withheld::new(Reason::NotSteady, message)
        })
    };
    let (ttft, tps) = (series(|call| call.ttft), series(Call::tps));
    // A figure that no call has cannot drift.
    let known = [(Part::Ttft, "TTFT", &ttft), (Part::Tps, "TPS", &tps)]
        .into_iter()
        .filter(|(_, _, series)| !series.is_empty());
    let unsteady: Vec<_> = known
        .clone()
        .filter_map(|(part, name, series)| drift(part, name, series))
        .collect();
    if unsteady.is_empty() {
        return Ok(unsteady);
    }
    let latency = series(|call| Some(call.latency()));
    let latency = drift(Part::Latency, "latency", &latency);
    let all = latency.is_some() && unsteady.len() == known.count();
    let found = unsteady.into_iter().chain(latency);
    if all {
        Err(found.map(|it| Withheld { part: None, ..it }).collect())
    } else {
        Ok(found.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;
    use std::time::Duration;
    use tokengauge_stats::seeded;

    /// Eight streams with one call per second each, for a minute: TTFT 0.2 s and 50 tokens/s, multiplied by functions
    /// of the time.
    fn observed(ttft: impl Fn(f64) -> f64, tps: impl Fn(f64) -> f64) -> Observed {
        let mut random = seeded(5);
        let mut noise = |size: f64| 1.0 + size * (random.random::<f64>() - 0.5);
        let calls = (0..640).map(|number| {
            let begun = f64::from(number) / 8.0 - 10.0;
            Call {
                begun,
                ended: begun + 1.0,
                ttft: Some(0.2 * ttft(begun) * noise(0.1)),
                decode: Some((40, 0.8 / tps(begun) / noise(0.1))),
                ..Call::default()
            }
        });
        let calls: Vec<_> = calls.collect();
        let tokens = (0..60).map(|second| 320.0 * tps(f64::from(second)) * noise(0.1));
        Observed {
            seconds: 60.0,
            interval: 1.0,
            tokens: tokens.collect(),
            begun: 480,
            calls,
            ..Observed::default()
        }
    }

    fn reasons(observed: &Observed, load: &Load) -> Vec<Withheld> {
        let found = judge(observed, load, &Criteria::default());
        found.map_or_else(|all| all, |(_, parts)| parts)
    }

    const CLOSED: Load = Load::Concurrency(8);

    #[test]
    fn an_even_run_is_steady() {
        let even = observed(|_| 1.0, |_| 1.0);
        assert_eq!(reasons(&even, &CLOSED), []);
        assert_eq!(
            reasons(&even, &Load::RequestRate(8.0, Default::default())),
            []
        );
    }

    #[test]
    fn a_ramp_of_a_tenth_is_found() {
        for (ttft, tps, named) in [(0.1, 0.0, "TTFT"), (0.0, -0.1, "TPS")] {
            let ramp = |size: f64| move |at: f64| 1.0 + size * at / 60.0;
            let found = reasons(&observed(ramp(ttft), ramp(tps)), &CLOSED);
            assert!(
                found.iter().all(|found| found.reason == Reason::NotSteady),
                "{found:?}"
            );
            assert!(
                found.iter().any(|found| found.message.starts_with(named)),
                "{found:?}"
            );
        }
    }

    #[test]
    fn one_unsteady_figure_does_not_withhold_the_others() {
        let ramp = |at: f64| 1.0 + 0.1 * at / 60.0;
        let (_, parts) = judge(&observed(ramp, |_| 1.0), &CLOSED, &Criteria::default())
            .expect("TPS and latency are steady");
        let parts: Vec<_> = parts.iter().map(|withheld| withheld.part).collect();
        assert_eq!(parts, [Some(Part::Ttft)]);
        let mut all = observed(ramp, ramp);
        all.tokens.fill(320.0);
        for call in &mut all.calls {
            call.ended = call.begun + ramp(call.begun);
        }
        let found = judge(&all, &CLOSED, &Criteria::default()).expect_err("none is steady");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|withheld| withheld.part.is_none()));
    }

    #[test]
    fn a_slow_beginning_is_left_out_and_a_long_one_is_not_steady() {
        let slow_until = |end: f64| move |at: f64| if at < end { 0.4 } else { 1.0 };
        let short = observed(|_| 1.0, slow_until(14.0));
        let found = judge(&short, &CLOSED, &Criteria::default());
        let (steady, _) = found.expect("steady after it");
        assert!((14.0..=20.0).contains(&steady.from), "{steady:?}");
        let long = reasons(&observed(|_| 1.0, slow_until(33.0)), &CLOSED);
        assert!(
            long.iter().any(|found| found.reason == Reason::NotSteady),
            "{long:?}"
        );
    }

    #[test]
    fn a_stall_of_all_streams_is_found_and_one_of_each_call_is_normal() {
        let mut run = observed(|_| 1.0, |_| 1.0);
        let at_40 = |call: &&mut Call| call.began_within(39.0, 40.0);
        for call in run.calls.iter_mut().filter(at_40) {
            call.stalls = vec![(42.0, 2.0)];
        }
        let found = reasons(&run, &CLOSED);
        assert!(
            found
                .iter()
                .any(|found| found.message.contains("40.0 s after")),
            "{found:?}"
        );
        for call in &mut run.calls {
            call.stalls = vec![(call.ended, 1.2)];
        }
        assert_eq!(reasons(&run, &CLOSED), []);
    }

    #[test]
    fn fewer_calls_under_way_than_meant_are_found() {
        let found = reasons(&observed(|_| 1.0, |_| 1.0), &Load::Concurrency(9));
        assert!(
            found[0].message.contains("8.0 calls were in flight"),
            "{found:?}"
        );
        let found = reasons(
            &observed(|_| 1.0, |_| 1.0),
            &Load::RequestRate(11.0, Default::default()),
        );
        assert!(
            found[0].message.contains("480 calls began instead of 660"),
            "{found:?}"
        );
    }

    #[test]
    fn failed_calls_too_few_and_a_lagging_client_are_said() {
        let mut failing = observed(|_| 1.0, |_| 1.0);
        failing.calls[300].failed = Some("http_error 429".to_owned());
        let found = reasons(&failing, &CLOSED);
        assert_eq!(
            found[0].message,
            "1 of 480 calls failed (http_error 429: 1)"
        );
        let mut lagging = observed(|_| 1.0, |_| 1.0);
        lagging.lag.p99 = 0.0121;
        let found = reasons(&lagging, &CLOSED);
        assert_eq!(found[0].reason, Reason::ClientLag);
        assert!(
            found[0].message.contains("at least 12.1 ms late"),
            "{found:?}"
        );
        let mut throttled = observed(|_| 1.0, |_| 1.0);
        for (pauses, milliseconds, late) in [(20, 1_000, true), (20, 150, false), (5, 500, false)] {
            // Pauses in 60 s: of 50 ms; of 7.5 ms, which is allowed; and for less than a hundredth of the time.
            throttled.lag.throttled = crate::quota::Throttled {
                periods: pauses,
                time: Duration::from_millis(milliseconds),
            };
            let found = reasons(&throttled, &CLOSED);
            let quota = |it: &Withheld| {
                it.reason == Reason::ClientLag && it.message.contains("paused the client 20 times")
            };
            assert_eq!(found.iter().any(quota), late, "{found:?}");
        }
        let mut few = observed(|_| 1.0, |_| 1.0);
        few.calls.truncate(90);
        assert_eq!(reasons(&few, &CLOSED)[0].reason, Reason::TooFewCalls);
        let mut short = observed(|_| 1.0, |_| 1.0);
        short.tokens.truncate(49);
        let found = reasons(&short, &CLOSED);
        assert_eq!(found[0].reason, Reason::TooShort);
        assert!(found[0].message.contains("49 intervals"), "{found:?}");
    }
}
