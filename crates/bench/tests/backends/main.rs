//! Complete runs against the simulator, whose truth is known, and against backends that change during the measurement.
//!
//! The clock advances only while all tasks wait for it, so a busy machine does not change figures.

mod changing;
mod stopped;

use changing::{Behaviour, Changing};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_bench::Results;
use tokengauge_bench::client::ClientSettings;
use tokengauge_bench::endpoint::EndpointType;
use tokengauge_bench::load::{ArrivalPattern, Load, Phases};
use tokengauge_bench::metric::Metric;
use tokengauge_bench::run::{Levels, Plan, Range};
use tokengauge_bench::steady::{Criteria, Reason};
use tokengauge_bench::workload::Workload;
use tokengauge_net::tls::ClientTls;
use tokengauge_sim::{Ending, Profile, Simulator};
use tokio::net::TcpListener;
use tokio::sync::watch;

fn plan(address: SocketAddr, levels: Levels, interval: Duration) -> Plan {
    Plan {
        client: ClientSettings {
            endpoint: EndpointType::Chat,
            url: format!("http://{address}/v1/chat/completions")
                .parse()
                .expect("a URL"),
            request: Default::default(),
            headers: Default::default(),
            tls: ClientTls::default(),
            http2: false,
            timeout: Duration::from_secs(20),
            identify: false,
        },
        workload: Arc::new(Workload::Synthetic {
            input: "16".parse().expect("a length"),
            output: None,
        }),
        levels,
        trials: 1,
        phases: Phases {
            warm_up: Duration::from_millis(600),
            burn_in: Duration::ZERO,
            measure: interval * 50,
            drain: Duration::from_secs(10),
        },
        interval,
        criteria: Criteria::default(),
        objectives: Vec::new(),
        usd_per_hour: None,
        seed: 7,
        name: "test".to_owned(),
        measured_by: Default::default(),
        gauge: None,
    }
}

async fn simulator(behaviour: &str) -> (Arc<Simulator>, SocketAddr) {
    let profile: Profile = behaviour.parse().expect("settings");
    let simulator = Simulator::new(profile);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(simulator.clone().serve(listener, std::future::pending()));
    (simulator, address)
}

async fn run(plan: Plan) -> Results {
    let (_stop, stopped) = watch::channel(false);
    let results = tokengauge_bench::run(plan, stopped, &mut |_| {}).await;
    results.expect("results")
}

fn closed(streams: u32) -> Levels {
    Levels::All(vec![Load::Concurrency(streams)])
}

const TENTH: Duration = Duration::from_millis(100);

/// The figures match the simulator, measured at its end of the connection. A timer fires up to a millisecond late.
#[tokio::test(start_paused = true)]
async fn closed_loop_figures_are_the_simulators() {
    let (simulator, address) = simulator("ttft=150ms,gap=8ms,tokens=60").await;
    let results = run(plan(address, closed(4), TENTH)).await;
    let level = &results.levels[0];
    assert_eq!(level.withheld, []);
    let truths = simulator.truths();
    let complete = truths
        .iter()
        .filter(|truth| truth.outcome == Ending::Complete);
    let (mut ttft, mut tokens, mut seconds, mut calls) = (0.0, 0.0, 0.0, 0.0);
    for truth in complete {
        ttft += truth.seconds.ttft.expect("a first token");
        tokens += 59.0;
        let (first, last) = (truth.instants.first_token, truth.instants.last_token);
        seconds += (last.expect("a last token") - first.expect("a first token")).as_secs_f64();
        calls += 1.0;
    }
    let value = |metric| level.value(metric).expect("known");
    let (ttft, tps) = (ttft / calls, tokens / seconds);
    let off = value(Metric::TtftMean) - ttft;
    assert!(off.abs() < 0.0015, "{} {ttft}", value(Metric::TtftMean));
    assert!(
        (value(Metric::TpsMean) / tps - 1.0).abs() < 0.01,
        "{} {tps}",
        value(Metric::TpsMean)
    );
    assert_eq!(value(Metric::OutputTokens), 60.0);
    // Four streams with 60 tokens each in the time of a call.
    let throughput = 4.0 * 60.0 / value(Metric::LatencyMean);
    assert!(
        (value(Metric::OutputThroughput) / throughput - 1.0).abs() < 0.03,
        "{throughput}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_open_loop_has_its_rate_and_is_timed_from_the_intended_start() {
    let (_simulator, address) = simulator("ttft=60ms,gap=2ms,tokens=40").await;
    let levels = Levels::All(vec![Load::RequestRate(20.0, ArrivalPattern::Constant)]);
    let results = run(plan(address, levels, TENTH)).await;
    let level = &results.levels[0];
    assert_eq!(level.withheld, []);
    let rate = level.value(Metric::RequestThroughput).expect("known");
    assert!((rate / 20.0 - 1.0).abs() < 0.05, "{rate}");
    // By Little's law, the number of calls in flight equals the number that begin within a latency.
    let latency = level.value(Metric::LatencyMean).expect("known");
    assert!(
        (level.trials[0].in_flight / (20.0 * latency) - 1.0).abs() < 0.05,
        "{latency}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_knee_is_found_within_a_step() {
    let (_simulator, address) = simulator("ttft=20ms,gap=12ms,tokens=40,knee=4").await;
    let levels = [2, 4, 8].map(Load::Concurrency).to_vec();
    let mut wanted = plan(address, Levels::All(levels), TENTH);
    // One trial of five seconds may be too short, because MSER-5 may discard a part of it.
    wanted.trials = 2;
    let results = run(wanted).await;
    assert_eq!(results.without_figures().count(), 0, "{results:#?}");
    let knee = results.knee.expect("a knee");
    assert_eq!(knee.concurrency, 4);
}

#[tokio::test(start_paused = true)]
async fn the_highest_load_that_keeps_an_objective_is_found() {
    let (_simulator, address) = simulator("ttft=20ms,gap=8ms,tokens=40,knee=4").await;
    let search = Levels::Search(Range::Concurrency(4, 12));
    let mut wanted = plan(address, search, TENTH / 2);
    wanted.objectives = vec!["tps_mean>=60".parse().expect("an objective")];
    wanted.usd_per_hour = Some(3.6);
    let results = run(wanted).await;
    let highest = results.highest.expect("some load keeps it");
    // A single stream has 125 tokens/s, slightly less at the knee, and 60 tokens/s with twice the concurrency.
    let load = highest.load.concurrency.expect("a closed loop");
    assert!((6..=8).contains(&load), "{load}");
    assert_eq!(
        highest.missed_at.and_then(|load| load.concurrency),
        Some(load + 1)
    );
    let (price, tps) = (
        highest.usd_per_million_output.hardware_usd,
        highest.output_throughput,
    );
    assert!((price.expect("a price") * tps.expect("a throughput") - 1000.0).abs() < 1e-6);
}

#[tokio::test(start_paused = true)]
async fn a_search_does_not_end_at_a_load_with_too_few_calls() {
    let (_simulator, address) = simulator("ttft=20ms,gap=8ms,tokens=40,knee=4").await;
    let mut wanted = plan(
        address,
        Levels::Search(Range::Concurrency(1, 12)),
        TENTH / 2,
    );
    wanted.trials = 3;
    wanted.objectives = ["ttft_p90<=1s", "tps_mean>=60"]
        .map(|text| text.parse().expect("an objective"))
        .to_vec();
    let results = run(wanted).await;
    let highest = results.highest.as_ref().expect("some load keeps them");
    let load = highest.load.concurrency.expect("a closed loop");
    assert!((6..=8).contains(&load), "{load}");
    let lowest = &results.levels[0];
    assert_eq!(lowest.load.concurrency, Some(1));
    let reason = lowest.objectives[0].reason.as_deref().unwrap_or_default();
    assert!(
        reason.contains(" of the 64 needed calls; measure for ") && reason.contains("3 trials"),
        "{reason}"
    );
    let text = tokengauge_bench::text::table(&results);
    assert!(
        text.contains("concurrency 1: ttft_p90<=1000ms is not shown to be met: "),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cold_start_is_left_out() {
    let (_simulator, address) = simulator("ttft=100ms,gap=2ms,tokens=200,cold_start=900ms@9").await;
    let mut wanted = plan(address, closed(8), TENTH);
    wanted.phases.warm_up = Duration::ZERO;
    let results = run(wanted).await;
    let level = &results.levels[0];
    assert_eq!(level.withheld, []);
    assert!(
        level.trials[0].steady_after >= Some(0.5),
        "{:?}",
        level.trials[0].steady_after
    );
    let ttft = level.value(Metric::TtftMean).expect("known");
    assert!((0.1..0.12).contains(&ttft), "{ttft}");
}

async fn reasons(behaviour: Behaviour, drift: f64) -> Vec<(Reason, String)> {
    let backend = Changing::start(behaviour).await;
    let mut wanted = plan(backend.address, closed(8), TENTH);
    wanted.criteria.drift = drift;
    let results = run(wanted).await;
    let level = &results.levels[0];
    assert!(level.figures.is_empty() || level.withheld.is_empty());
    let withheld = level.withheld.iter().chain(&level.partly_withheld);
    withheld.map(|it| (it.reason, it.message.clone())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_ramp_is_not_steady() {
    let ramp = Behaviour {
        ttft: |at| 0.06 + 0.012 * at,
        ..Behaviour::default()
    };
    let found = reasons(ramp, 0.05).await;
    let ttft = |(reason, message): &(Reason, String)| {
        *reason == Reason::NotSteady && message.contains("TTFT changed by +")
    };
    assert!(found.iter().any(ttft), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stall_is_not_steady() {
    let stall = Behaviour {
        stands_still: |at| (4.0..5.3).contains(&at),
        ..Behaviour::default()
    };
    let found = reasons(stall, 2.0).await;
    let stalled = |(reason, message): &(Reason, String)| {
        *reason == Reason::NotSteady
            && (message.contains("of the streams stalled for") || message.contains("MSER-5"))
    };
    assert!(found.iter().any(stalled), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_withholds_all_figures() {
    let failing = Behaviour {
        fails: |call| call == 40,
        ..Behaviour::default()
    };
    let found = reasons(failing, 2.0).await;
    let failed = |(reason, message): &(Reason, String)| {
        *reason == Reason::FailedCalls
            && message.contains("1 of ")
            && message.contains("upstream_reset")
    };
    assert!(found.iter().any(failed), "{found:?}");
}
