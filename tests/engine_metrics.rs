//! Metrics of an upstream engine over real sockets: a scrape of the proxy shows the engine's values, and a restart
//! begins a warm-up.

use crate::admin_api::value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_config::{Config, Measure};
use tokengauge_telemetry::engine::Watcher;
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::text::Format;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::meter::Bench;
use tokengauge_test_support::upstream::Upstream;
use tokio::task::JoinHandle;

const UP: &str = "tokengauge_upstream_up";
const QUEUE: &str = "tokengauge_upstream_queue_depth";
const WARMING: &str = "tokengauge_upstream_warming";
const FAILURES: &str = "tokengauge_upstream_scrape_failures_total";

struct ScrapedEngine {
    engine: Upstream,
    bench: Bench,
    prometheus: Arc<Prometheus>,
    watching: JoinHandle<()>,
}

impl Drop for ScrapedEngine {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl ScrapedEngine {
    /// An upstream named `upstream`, whose metrics are read every 100 ms.
    async fn start() -> ScrapedEngine {
        let engine = Upstream::bind().await;
        let text = format!(
            "[[upstream]]\nname = \"upstream\"\nurl = \"http://127.0.0.1:9\"\nmetrics_url = \"http://{}\"\nmetrics_interval = \"100ms\"\n[[route]]\nname = \"route\"\nupstream = \"upstream\"\n",
            engine.address
        );
        let config = Config::parse(&text, "test").unwrap_or_else(|invalid| panic!("{invalid}"));
        let measure = Measure {
            warm_up_calls: 1,
            warm_up_for: Duration::ZERO,
            ..Measure::default()
        };
        let prometheus = Prometheus::new(&config.routes, &measure);
        let bench = Bench::new(measure, vec![Arc::clone(&prometheus) as _]);
        let watcher = Watcher::new(
            &config.scrapes[0],
            &prometheus,
            &bench.meter,
            Arc::new(|_| {}),
        );
        let watching = tokio::spawn(watcher.expect("no TLS").run());
        ScrapedEngine {
            engine,
            bench,
            prometheus,
            watching,
        }
    }

    async fn answer(&self, head: &str, body: &str) -> RawConnection {
        let mut scrape = self.engine.accept().await;
        let request = scrape.read_head().await;
        let request = request.to_lowercase();
        assert!(
            request.starts_with("get /metrics http/1.1\r\n"),
            "{request}"
        );
        assert!(request.contains("accept: text/plain"), "{request}");
        assert!(!request.contains("authorization"), "{request}");
        let length = body.len();
        scrape
            .write(format!(
                "HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}"
            ))
            .await;
        scrape
    }

    fn value(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let now = Instant::now();
        let figures = self.bench.meter.stats(now);
        let text = self.prometheus.render(now, &figures, Format::Classic);
        value(&text, name, labels)
    }

    async fn becomes(&self, name: &str, labels: &[&str], wanted: Option<f64>) {
        let end = Instant::now() + TIMEOUT;
        while self.value(name, labels) != wanted {
            let is = self.value(name, labels);
            assert!(
                Instant::now() < end,
                "{name} {labels:?} is {is:?}, not {wanted:?}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Seconds and requests of the queue, then of prefill.
    fn spent(&self) -> [f64; 4] {
        let names = [
            "queue_seconds",
            "queue_requests",
            "prefill_seconds",
            "prefill_requests",
        ];
        names.map(|name| {
            let name = format!("tokengauge_upstream_{name}_total");
            let value = self.value(&name, &["upstream=\"upstream\""]);
            value.unwrap_or_else(|| panic!("no {name}"))
        })
    }

    fn call(&self) -> bool {
        let call = self.bench.chat();
        call.ended(
            self.bench.at(100),
            tokengauge_core::observer::End::ClientCancelled,
        );
        self.bench.newest().warm_up
    }
}

fn vllm(started: u32, waiting: u32, queue: (f64, u32)) -> String {
    format!(
        "process_start_time_seconds {started}.5\n\
         vllm:num_requests_running{{engine=\"0\",model_name=\"m\"}} 8.0\n\
         vllm:num_requests_waiting{{engine=\"0\",model_name=\"m\"}} {waiting}.0\n\
         vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"m\"}} 0.5\n\
         vllm:request_queue_time_seconds_sum{{engine=\"0\",model_name=\"m\"}} {}\n\
         vllm:request_queue_time_seconds_count{{engine=\"0\",model_name=\"m\"}} {}.0\n\
         vllm:request_prefill_time_seconds_sum{{engine=\"0\",model_name=\"m\"}} {}\n\
         vllm:request_prefill_time_seconds_count{{engine=\"0\",model_name=\"m\"}} {}.0\n",
        queue.0,
        queue.1,
        queue.0 / 4.0,
        queue.1
    )
}

#[tokio::test]
async fn a_scrape_shows_the_engines_figures_and_the_split_of_ttft() {
    let watched = ScrapedEngine::start().await;
    let own = ["upstream=\"upstream\""];
    assert_eq!(
        watched.value(UP, &own),
        Some(0.0),
        "it exists from the start"
    );
    assert_eq!(
        watched.value(QUEUE, &own),
        None,
        "and what is unknown does not"
    );
    watched.answer("200 OK", &vllm(7, 3, (1.0, 10))).await;
    watched.becomes(QUEUE, &own, Some(3.0)).await;
    assert_eq!(watched.value(UP, &own), Some(1.0));
    assert_eq!(
        watched.value("tokengauge_upstream_running", &own),
        Some(8.0)
    );
    assert_eq!(
        watched.value("tokengauge_upstream_kv_cache_ratio", &own),
        Some(0.5)
    );
    assert_eq!(watched.spent(), [0.0; 4], "what was before is not ours");
    watched.answer("200 OK", &vllm(7, 4, (3.0, 14))).await;
    watched.becomes(QUEUE, &own, Some(4.0)).await;
    assert_eq!(watched.spent(), [2.0, 4.0, 0.5, 4.0]);
    watched.answer("200 OK", &vllm(7, 5, (3.0, 14))).await;
    watched.becomes(QUEUE, &own, Some(5.0)).await;
    assert_eq!(watched.spent(), [2.0, 4.0, 0.5, 4.0], "nobody came");
    // A scraper that starts only now misses nothing. After a restart, the new counts are added.
    watched.answer("200 OK", &vllm(8, 6, (4.0, 15))).await;
    watched.becomes(QUEUE, &own, Some(6.0)).await;
    assert_eq!(watched.spent(), [6.0, 19.0, 1.5, 19.0]);
}

#[tokio::test]
async fn a_llama_cpp_whose_counters_fell_warms_up() {
    let watched = ScrapedEngine::start().await;
    assert!(watched.call() && !watched.call());
    let own = ["upstream=\"upstream\""];
    let llama = |tokens, waiting| {
        format!(
            "llamacpp:prompt_tokens_total {tokens}\nllamacpp:tokens_predicted_total {tokens}\n\
             llamacpp:requests_deferred {waiting}\n"
        )
    };
    watched.answer("200 OK", &llama(500, 1)).await;
    watched.answer("200 OK", &llama(900, 2)).await;
    watched.becomes(QUEUE, &own, Some(2.0)).await;
    assert!(!watched.call(), "it is the same process");
    watched.answer("200 OK", &llama(40, 3)).await;
    watched.becomes(WARMING, &own, Some(1.0)).await;
    assert!(watched.call() && !watched.call());
}

#[tokio::test]
async fn one_slow_reading_takes_nothing_away() {
    let watched = ScrapedEngine::start().await;
    let own = ["upstream=\"upstream\""];
    watched.answer("200 OK", &vllm(7, 3, (0.0, 0))).await;
    watched.becomes(QUEUE, &own, Some(3.0)).await;
    let silent = watched.engine.accept().await;
    watched
        .becomes(FAILURES, &["reason=\"timeout\""], Some(1.0))
        .await;
    assert_eq!(watched.value(UP, &own), Some(1.0));
    assert_eq!(watched.value(QUEUE, &own), Some(3.0));
    drop(silent);
}

#[tokio::test]
async fn a_restarted_engine_warms_up() {
    let watched = ScrapedEngine::start().await;
    let own = ["upstream=\"upstream\""];
    assert_eq!(watched.value(WARMING, &own), Some(1.0));
    assert!(watched.call() && !watched.call(), "only the first call");
    assert_eq!(watched.value(WARMING, &own), Some(0.0));
    watched.answer("200 OK", &vllm(7, 1, (0.0, 0))).await;
    watched.answer("200 OK", &vllm(7, 2, (0.0, 0))).await;
    watched.becomes(QUEUE, &own, Some(2.0)).await;
    assert!(!watched.call(), "it is the same process");
    watched.answer("200 OK", &vllm(8, 3, (0.0, 0))).await;
    watched.becomes(WARMING, &own, Some(1.0)).await;
    assert!(watched.call() && !watched.call());
}

#[tokio::test]
async fn failures_are_counted_by_reason_and_old_values_are_dropped() {
    let watched = ScrapedEngine::start().await;
    let own = ["upstream=\"upstream\""];
    for reason in [
        "unreachable",
        "timeout",
        "status",
        "too_large",
        "unreadable",
    ] {
        let reason = format!("reason=\"{reason}\"");
        assert_eq!(watched.value(FAILURES, &[own[0], &reason]), Some(0.0));
    }
    watched.answer("200 OK", &vllm(7, 3, (0.0, 0))).await;
    watched.becomes(UP, &own, Some(1.0)).await;
    for missed in 1..=3 {
        assert_eq!(watched.value(UP, &own), Some(1.0));
        watched.answer("404 Not Found", "no").await;
        watched
            .becomes(FAILURES, &["reason=\"status\""], Some(f64::from(missed)))
            .await;
    }
    watched.becomes(UP, &own, Some(0.0)).await;
    assert_eq!(
        (watched.value(UP, &own), watched.value(QUEUE, &own)),
        (Some(0.0), None)
    );
    drop(watched.answer("200 OK\r\nx: y", "").await);
    watched.becomes(UP, &own, Some(1.0)).await;
    assert_eq!(watched.value(QUEUE, &own), None, "nothing is known of it");
    let silent = watched.engine.accept().await;
    watched
        .becomes(FAILURES, &["reason=\"timeout\""], Some(1.0))
        .await;
    drop(silent);
    let mut endless = watched.engine.accept().await;
    endless.read_head().await;
    endless
        .write("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n")
        .await;
    watched
        .becomes(FAILURES, &["reason=\"too_large\""], Some(1.0))
        .await;
    let mut noise = watched.engine.accept().await;
    noise.write("SSH-2.0-none\r\n").await;
    watched
        .becomes(FAILURES, &["reason=\"unreadable\""], Some(1.0))
        .await;
}
