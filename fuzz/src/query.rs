//! Requests to the admin API: for any path, parameters and cursor, the answer has a status of the API, and is JSON.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokengauge_admin::{CallSource, EventBus, ProcessServices, Services, router};
use tokengauge_config::Measure;
use tokengauge_meter::{Meter, RecentCalls};
use tokengauge_slo::Slos;
use tokengauge_store::ledger::{self, LedgerCall, Reader};
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_test_support::records::Records;
use tokio::runtime::Runtime;

thread_local! {
    static API: (Runtime, [Services; 2]) = (super::proxy::runtime(), [admin(None), admin(ledger())]);
}

pub fn run(input: &[u8]) {
    let [source, rest @ ..] = input else { return };
    let Ok(target) = str::from_utf8(rest) else {
        return;
    };
    let Ok(request) = Request::get(target).body(Empty::<Bytes>::new()) else {
        return;
    };
    // An event stream never ends.
    if request.uri().path().contains("/events") {
        return;
    }
    API.with(|(runtime, services)| {
        let admin = services[usize::from(*source) % 2].clone();
        runtime.block_on(async {
            let response = TowerToHyperService::new(router(admin)).call(request);
            let (head, body) = response.await.expect("infallible").into_parts();
            let body = body.collect().await.expect("whole").to_bytes();
            let known = [
                StatusCode::OK,
                StatusCode::BAD_REQUEST,
                StatusCode::NOT_FOUND,
                StatusCode::SERVICE_UNAVAILABLE,
            ];
            assert!(known.contains(&head.status), "{target}: {}", head.status);
            if target.starts_with("/api/") {
                let json = serde_json::from_slice::<serde_json::Value>(&body);
                assert!(json.is_ok(), "{target}: {body:?}");
            }
        });
    });
}

/// Two hundred calls of the last hour, in a separate file for this thread.
fn ledger() -> Option<Arc<Reader>> {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let name = format!("tokengauge-fuzz-{}-{number}.sqlite", std::process::id());
    let path = std::env::temp_dir().join(name);
    let from = SystemTime::now() - Duration::from_secs(3600);
    let records: Vec<_> = Records::new(from, 18_000.0).take(200).collect();
    let mut ledger = ledger::LedgerDatabase::open(&path).expect("a ledger");
    let kept = |record| LedgerCall::of_record(record, Some(1));
    let batch: Vec<_> = records.iter().filter_map(kept).collect();
    ledger.write(&batch).expect("written");
    Some(Reader::new(&path, Instant::now))
}

fn admin(ledger: Option<Arc<Reader>>) -> Services {
    let measure = Measure::default();
    let prometheus = Prometheus::new(&[], &measure);
    let recent = RecentCalls::new(50);
    let slos = Slos::new(&[], &measure, Instant::now(), SystemTime::now());
    let meter = Meter::new(measure, vec![prometheus.clone(), recent.clone()]);
    Services {
        live: Arc::new(ProcessServices::new(meter, slos)),
        call_source: CallSource::new(ledger, &recent, &Arc::default()),
        prometheus,
        about: Arc::default(),
        experiments: Arc::default(),
        readiness: Arc::default(),
        marks: Arc::default(),
        scores: Arc::default(),
        event_bus: EventBus::new(),
        clock: Instant::now,
        verdicts: Arc::default(),
        wall: SystemTime::now,
    }
}
