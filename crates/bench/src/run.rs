//! Runs all loads in random order, or searches for the highest load that meets the objectives.

use crate::client::{CallName, Client};
use crate::clock::now;
use crate::endpoint::EndpointType;
use crate::error::BenchError;
use crate::gauge::{AgentCall, BothSides};
use crate::level::{LevelResult, LoadName};
use crate::load::{self, Load, Phases, Trace, TrialProgress, TrialSettings};
use crate::observed::{Observed, whole_intervals};
pub use crate::plan::{Levels, Plan, Range};
use crate::results::{Results, Settings};
use crate::search::Search;
use crate::steady::{Reason, judge};
use crate::trial::{Sample, TrialResult, figures};
use crate::workload::Prompts;
use rand::RngExt;
use rand::seq::SliceRandom;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::{CallRecord, Outcome};
use tokengauge_core::fingerprint::FingerprintBuilder;
use tokengauge_core::time::rfc3339_millis;
use tokengauge_meter::settings::Measure;
use tokengauge_meter::{Meter, RecentCalls};
use tokengauge_stats::{Generator, seeded};
use tokio::sync::watch;

/// The maximum time for a tokengauge proxy to finish its records of a trial.
const GAUGE_SETTLES: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub load: LoadName,
    pub trial: u32,
    pub number: usize,
    pub of: Option<usize>,
    pub trial_progress: TrialProgress,
    pub left: Option<Duration>,
}

pub type Watch<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// Runs a plan until its end or until `stop` becomes true, and returns everything that was measured.
///
/// # Errors
/// Returns an error if nothing could be measured.
pub async fn run(
    plan: Plan,
    stop: watch::Receiver<bool>,
    watch: Watch<'_>,
) -> Result<Results, BenchError> {
    let client = Arc::new(Client::new(plan.client.clone())?);
    let mut phases = plan.phases;
    phases.warm_up = whole_intervals(phases.warm_up, plan.interval);
    phases.burn_in = whole_intervals(phases.burn_in, plan.interval);
    let mut run = Run {
        random: seeded(plan.seed),
        started_at: rfc3339(SystemTime::now()),
        plan,
        client,
        phases,
        stop,
        watch,
        trials: Vec::new(),
        fingerprint: FingerprintBuilder::default(),
        begun: 0,
        all: None,
    };
    run.first_call().await?;
    match run.plan.levels.clone() {
        Levels::All(loads) => run.all(loads).await,
        Levels::Search(range) => run.search(range).await,
    }
    Ok(run.results())
}

struct Run<'a> {
    plan: Plan,
    client: Arc<Client>,
    phases: Phases,
    random: Generator,
    started_at: String,
    stop: watch::Receiver<bool>,
    watch: Watch<'a>,
    trials: Vec<Done>,
    fingerprint: FingerprintBuilder,
    begun: usize,
    all: Option<usize>,
}

struct Done {
    load: Load,
    result: TrialResult,
    calls: Vec<AgentCall>,
    records: Option<Result<Vec<CallRecord>, crate::gauge::NoRecords>>,
}

impl Run<'_> {
    fn stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Makes one call before any load, so that a closed port, a wrong key or a wrong path is reported immediately.
    async fn first_call(&mut self) -> Result<(), BenchError> {
        let recent = RecentCalls::new(1);
        let meter = Meter::new(Measure::default(), vec![recent.clone()]);
        let prompts = Prompts::new(Arc::clone(&self.plan.workload), self.plan.seed);
        let prepared = self.client.prepare(prompts.next());
        let name = CallName {
            session: &self.plan.name,
            trace: self.random.random::<u128>() | 1,
        };
        let call = self.client.call(&meter, prepared, name, now());
        let failed = |reason: String| BenchError::FirstCall {
            url: self.url(),
            reason,
        };
        call.await.map_err(|failure| {
            failed(format!("{}; is the backend running there?", failure.reason))
        })?;
        let flushed =
            tokio::task::spawn_blocking(move || meter.flush(Duration::from_secs(5))).await;
        let Some(finished) = recent
            .newest(1)
            .first()
            .cloned()
            .filter(|_| flushed.is_ok())
        else {
            return Err(failed("the call was not measured in time".to_owned()));
        };
        first_call_failure(&finished.record).map_or(Ok(()), |reason| Err(failed(reason)))
    }

    fn url(&self) -> String {
        let url = self.client.url();
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let host = authority.rsplit('@').next().unwrap_or_default();
        format!(
            "{}://{host}{}",
            url.scheme_str().unwrap_or("http"),
            url.path()
        )
    }

    async fn all(&mut self, loads: Vec<Load>) {
        let trials = 1..=self.plan.trials;
        let mut order: Vec<_> = loads
            .iter()
            .flat_map(|load| trials.clone().map(move |trial| (load.clone(), trial)))
            .collect();
        order.shuffle(&mut self.random);
        self.all = Some(order.len());
        for (load, trial) in order {
            if self.stopped() {
                break;
            }
            if self.is_known(&load) {
                self.all = self.all.map(|all| all - 1);
                continue;
            }
            self.trial(load, trial).await;
        }
    }

    fn is_known(&self, load: &Load) -> bool {
        let within = self.plan.criteria.stop_within;
        within.is_some_and(|within| self.level(load).is_known_within(within))
    }

    async fn search(&mut self, range: Range) {
        let mut search = Search::new(range, self.plan.trials);
        while let Some((at, trial)) = search.next() {
            let load = range.load(at);
            self.trial(load.clone(), trial).await;
            if self.stopped() {
                return;
            }
            let (level, known) = (self.level(&load), self.is_known(&load));
            search.made(&level, known, &self.plan.objectives);
        }
    }

    async fn trial(&mut self, load: Load, trial: u32) {
        self.begun += 1;
        let seed = self.random.random::<u64>() | 1;
        let settings = TrialSettings {
            phases: self.phases,
            interval: self.plan.interval,
            seed,
        };
        let a_trial = self.phases.warm_up + self.phases.burn_in + self.phases.measure;
        let (number, of, name) = (self.begun, self.all, LoadName::of(&load));
        let watch = &mut *self.watch;
        let mut progress = |trial_progress: TrialProgress| {
            let after = of.map(|of| a_trial * (of - number) as u32);
            watch(Progress {
                load: name.clone(),
                trial,
                number,
                of,
                trial_progress,
                left: after.map(|after| after + trial_progress.left),
            });
        };
        let prompts = Prompts::new(Arc::clone(&self.plan.workload), seed);
        let started = SystemTime::now();
        let session = &self.plan.name;
        let stop = self.stop.clone();
        let trace = load::run(
            &self.client,
            &load,
            prompts,
            settings,
            session,
            stop,
            &mut progress,
        )
        .await;
        let (result, calls) = result(&trace, &load, trial, started, &self.plan);
        for call in trace.calls.iter().filter(|call| trace.counts(call)) {
            self.fingerprint.add(&call.record);
        }
        let records = match &self.plan.gauge {
            None => None,
            Some(ask) => {
                tokio::time::sleep(GAUGE_SETTLES).await;
                Some(ask(started).await)
            }
        };
        for record in records.iter().flatten().flatten() {
            self.fingerprint.add_engine(record);
        }
        self.trials.push(Done {
            load,
            result,
            calls,
            records,
        });
    }

    fn level(&self, load: &Load) -> LevelResult {
        let done = || self.trials.iter().filter(|done| done.load == *load);
        let mut results: Vec<_> = done()
            .filter(|done| {
                !done
                    .result
                    .withheld
                    .iter()
                    .any(|it| it.reason == Reason::Interrupted)
            })
            .map(|done| done.result.clone())
            .collect();
        if results.is_empty() {
            results = done().map(|done| done.result.clone()).collect();
        }
        results.sort_by_key(|result| result.trial);
        let (objectives, criteria) = (&self.plan.objectives, &self.plan.criteria);
        let price = self.plan.usd_per_hour;
        let mut level = LevelResult::of(LoadName::of(load), results, objectives, price, criteria);
        level.gauge = self.plan.gauge.as_ref().map(|_| {
            let calls: Vec<_> = done().flat_map(|done| done.calls.iter().copied()).collect();
            let records = done().filter_map(|done| done.records.clone());
            match records.collect::<Result<Vec<_>, _>>() {
                Ok(records) => BothSides::of(&calls, &records.concat()),
                Err(error) => BothSides::failed(calls.len(), &error),
            }
        });
        level
    }

    fn results(self) -> Results {
        let mut loads: Vec<Load> = Vec::new();
        for done in &self.trials {
            if !loads.contains(&done.load) {
                loads.push(done.load.clone());
            }
        }
        let levels = loads.iter().map(|load| self.level(load)).collect();
        let plan = &self.plan;
        let endpoint: EndpointType = plan.client.endpoint;
        let settings = Settings {
            url: self.url(),
            endpoint_type: endpoint.as_str().to_owned(),
            model: plan.client.request.model.clone(),
            workload: plan.workload.describe(),
            random_seed: plan.seed,
            trials: plan.trials,
            warm_up: self.phases.warm_up.as_secs_f64(),
            burn_in: self.phases.burn_in.as_secs_f64(),
            measure: self.phases.measure.as_secs_f64(),
            interval: plan.interval.as_secs_f64(),
            steady_within: plan.criteria.drift,
            confidence: plan.criteria.confidence,
            objectives: plan.objectives.iter().map(ToString::to_string).collect(),
        };
        let interrupted = self.stopped();
        Results {
            fingerprint: Some(self.fingerprint.build()),
            measured_by: Some(self.plan.measured_by.clone()),
            ..Results::of(settings, self.started_at, levels, interrupted)
        }
    }
}

fn result(
    trace: &Trace,
    load: &Load,
    trial: u32,
    started: SystemTime,
    plan: &Plan,
) -> (TrialResult, Vec<AgentCall>) {
    let observed = Observed::of(trace);
    let (steady, withheld) = match judge(&observed, load, &plan.criteria) {
        Ok((steady, parts)) => (Some(steady), parts),
        Err(all) => (None, all),
    };
    let from = steady.map_or(0.0, |steady| steady.from);
    let counted = || observed.between(from, observed.seconds);
    let mut without_tps = BTreeMap::<String, usize>::new();
    for reason in counted().filter_map(|call| call.no_tps) {
        *without_tps.entry(reason.as_str().to_owned()).or_default() += 1;
    }
    let interval = trace.interval.as_secs_f64();
    let result = TrialResult {
        trial,
        started_at: rfc3339(started),
        measured_after: (trace.measure_from - trace.began).as_secs_f64(),
        measured: observed.seconds,
        steady_after: steady.map(|steady| steady.from),
        calls: counted().count(),
        failed: observed
            .between(0.0, observed.seconds)
            .filter(|call| call.failed.is_some())
            .count(),
        in_flight: observed.mean_in_flight(from, observed.seconds),
        client_lag: observed.lag.p95,
        client_lag_p99: observed.lag.p99,
        client_throttled: observed.lag.throttled.time.as_secs_f64(),
        without_tps,
        figures: steady.map(|steady| {
            let mut figures = figures(&observed, steady, &plan.criteria, plan.seed);
            figures.retain(|metric, _| !withheld.iter().any(|it| it.part == metric.part()));
            figures
        }),
        withheld,
        interval,
        timeline: trace
            .tokens
            .iter()
            .map(|tokens| *tokens as f64 / interval)
            .collect(),
        sample: steady.map_or_else(Sample::default, |steady| Sample::of(&observed, steady)),
    };
    let calls = counted()
        .filter(|call| call.failed.is_none())
        .map(|call| AgentCall {
            trace: call.trace,
            ttft: call.ttft,
            tps: call.tps(),
            latency: call.latency(),
            output: call.output,
        });
    (result, calls.collect())
}

fn first_call_failure(record: &CallRecord) -> Option<String> {
    let status = record.status.unwrap_or_default();
    if record.outcome != Outcome::Complete {
        let advice = match status {
            401 | 403 => "; name the environment variable with the key in --api-key-env",
            404 => "; check --endpoint-type, --endpoint and --model",
            400 | 422 => {
                ": the backend refused the request; check --endpoint-type, --model and --extra-inputs"
            }
            429 => ": the backend limits calls",
            _ => "",
        };
        let kind = record.error_type.as_deref().unwrap_or_default();
        let outcome = record.outcome.as_str();
        return Some(format!("status {status}, {outcome} {kind}{advice}"));
    }
    if record.streamed == Some(false) {
        return Some("the response was not streamed, so it has no time to first token".to_owned());
    }
    if record.tokens.normalised.output.unwrap_or_default() == 0 {
        return Some(
            "the response contained no readable text; check the dialect in --endpoint-type"
                .to_owned(),
        );
    }
    None
}

fn rfc3339(at: SystemTime) -> String {
    rfc3339_millis(at).to_string()
}
