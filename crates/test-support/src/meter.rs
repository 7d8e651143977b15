//! Calls with constructed instants, for tests of the meter.
use crate::TIMEOUT;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_accounting::Accounting;
use tokengauge_core::call::{CallRecord, Dialect};
use tokengauge_core::observer::{CallStart, Chunk, End, ObservedCall, Observer, Side};
use tokengauge_core::throughput::ThroughputTick;
use tokengauge_core::trace::Tracer;
use tokengauge_meter::settings::Measure;
use tokengauge_meter::{FinishedCall, Meter, RecentCalls, Subscriber};

/// A meter with the calls that it finished.
pub struct Bench {
    pub meter: Arc<Meter>,
    pub recent: Arc<RecentCalls>,
    pub start: Instant,
    pub route: Arc<str>,
    pub upstream: Arc<str>,
}

pub fn started_at() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

impl Default for Bench {
    fn default() -> Self {
        Bench::new(Measure::default(), Vec::new())
    }
}

impl Bench {
    pub fn new(measure: Measure, subscribers: Vec<Arc<dyn Subscriber>>) -> Bench {
        Bench::tracing(measure, subscribers, None)
    }

    pub fn tracing(
        measure: Measure,
        subscribers: Vec<Arc<dyn Subscriber>>,
        tracer: Option<Arc<Tracer>>,
    ) -> Bench {
        Bench::with(measure, Accounting::default(), subscribers, tracer)
    }

    pub fn with(
        measure: Measure,
        accounting: Accounting,
        mut subscribers: Vec<Arc<dyn Subscriber>>,
        tracer: Option<Arc<Tracer>>,
    ) -> Bench {
        let recent = RecentCalls::new(10_000);
        subscribers.push(Arc::clone(&recent) as Arc<dyn Subscriber>);
        Bench {
            meter: Meter::with(measure, accounting, subscribers, tracer),
            recent,
            start: Instant::now(),
            route: "route".into(),
            upstream: "upstream".into(),
        }
    }

    /// The instant `millis` after the start.
    pub fn at(&self, millis: u64) -> Instant {
        self.start + Duration::from_millis(millis)
    }

    /// The next step of the throughput, `millis` after the start.
    pub fn tick(&self, millis: u64) -> ThroughputTick {
        let wall = started_at() + Duration::from_millis(millis);
        self.meter.tick(self.at(millis), wall)
    }

    /// A call whose request head is read at the start.
    pub fn begin(&self, path: &str, headers: &[(&str, &str)]) -> Arc<dyn ObservedCall> {
        self.begin_with(path, headers, |start| start)
    }

    pub fn begin_with(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        change: impl for<'a> Fn(CallStart<'a>) -> CallStart<'a>,
    ) -> Arc<dyn ObservedCall> {
        self.meter.begin(change(CallStart {
            received: self.start,
            started_at: started_at(),
            method: &Method::POST,
            uri: &path.parse::<Uri>().expect("a path"),
            headers: &header_map(headers),
            peer: None,
            port: None,
            route: &self.route,
            upstream: &self.upstream,
            dialect: None,
            workload: None,
            inject_usage: false,
            variant: None,
        }))
    }

    /// A chat call that connected at 2 ms, was sent at 5 ms, and was answered at 50 ms.
    pub fn chat(&self) -> Arc<dyn ObservedCall> {
        let call = self.begin("/v1/chat/completions", &[]);
        self.send(&*call, br#"{"model":"asked","stream":true,"messages":[]}"#);
        self.answer(&*call, 200, "text/event-stream");
        call
    }

    pub fn send(&self, call: &dyn ObservedCall, body: &[u8]) {
        call.endpoint("127.0.0.1:9");
        call.connected(self.at(2), false);
        call.request_chunk(&Bytes::copy_from_slice(body));
        call.sent(self.at(5));
    }

    pub fn answer(&self, call: &dyn ObservedCall, status: u16, content_type: &str) {
        let status = StatusCode::from_u16(status).expect("a status");
        call.head(
            self.at(50),
            status,
            &header_map(&[("content-type", content_type)]),
        );
    }

    pub fn chunk(&self, call: &dyn ObservedCall, millis: u64, bytes: impl AsRef<[u8]>) {
        self.chunk_behind(call, Duration::ZERO, millis, bytes);
    }

    /// Sends a chunk after the agent was slow to read.
    pub fn chunk_behind(
        &self,
        call: &dyn ObservedCall,
        agent_blocked: Duration,
        millis: u64,
        bytes: impl AsRef<[u8]>,
    ) {
        call.response_chunk(Chunk {
            at: self.at(millis),
            bytes: Bytes::copy_from_slice(bytes.as_ref()),
            agent_blocked,
        });
    }

    pub fn tunnel(&self, call: &dyn ObservedCall, from: Side, millis: u64, bytes: Vec<u8>) {
        let (at, bytes) = (self.at(millis), Bytes::from(bytes));
        call.tunnel_chunk(from, Chunk::new(at, bytes));
    }

    pub fn end(&self, call: &dyn ObservedCall, millis: u64, end: End) -> CallRecord {
        call.ended(self.at(millis), end);
        self.newest()
    }

    pub fn newest(&self) -> CallRecord {
        self.finished_calls()
            .first()
            .expect("a finished call")
            .record
            .clone()
    }

    /// All finished calls so far, newest first.
    pub fn finished_calls(&self) -> Vec<Arc<FinishedCall>> {
        assert!(self.meter.flush(TIMEOUT), "the background is done in time");
        self.recent.newest(usize::MAX)
    }
}

pub fn header_map(headers: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
        map.append(name, HeaderValue::from_str(value).expect("a header value"));
    }
    map
}

/// One chat event with `delta` as JSON.
pub fn event(delta: &str) -> String {
    choice(0, delta)
}

pub fn choice(index: u32, delta: &str) -> String {
    format!(
        "data: {{\"id\":\"c1\",\"model\":\"m-1\",\"choices\":[{{\"index\":{index},\"delta\":{delta}}}]}}\n\n"
    )
}

/// One chat event with `words` words of visible text, each of which is one token.
pub fn words(words: usize) -> String {
    event(&format!("{{\"content\":\"{}\"}}", " word".repeat(words)))
}

pub fn thoughts(words: usize) -> String {
    event(&format!(
        "{{\"reasoning_content\":\"{}\"}}",
        " word".repeat(words)
    ))
}

/// The finish reason, and usage if `output` is given.
pub fn finish(output: Option<u64>) -> String {
    let usage = output.map_or("null".to_owned(), |output| {
        format!("{{\"prompt_tokens\":7,\"completion_tokens\":{output}}}")
    });
    format!(
        "data: {{\"model\":\"m-1\",\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}],\"usage\":{usage}}}\n\n"
    )
}

pub const DONE: &str = "data: [DONE]\n\n";

pub fn dialect(name: &str) -> Dialect {
    serde_json::from_value(name.into()).expect("a dialect")
}
