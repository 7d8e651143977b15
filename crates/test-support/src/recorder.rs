//! An observer that records its events.

use crate::eventually;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokengauge_core::observer::{
    CallObserver, CallPolicy, CallStart, Chunk, End, ErrorResponse, Failure, Filter, ObservedCall,
    Observer, Phase, Side, UpstreamTrace,
};

#[derive(Clone, Debug)]
pub enum ObserverEvent {
    Endpoint(String),
    Connected(Instant, bool),
    RequestChunk(Bytes),
    Sent(Instant),
    Head(Instant, StatusCode),
    Chunk(Chunk),
    Trailers(HeaderMap),
    Lagged(u64),
    Overhead(Phase, Duration),
    Ended(Instant, End),
    Tunnel(Side, Chunk),
    TunnelOver(Side),
}

/// Returns the body to send instead of the given one.
pub type Rewrite = fn(&[u8]) -> Option<Bytes>;

/// The behaviour of an observer in addition to recording.
#[derive(Clone, Default)]
pub struct RecorderBehaviour {
    pub panics: Option<fn(&ObserverEvent) -> bool>,
    /// The time that it takes for each chunk of a response.
    pub slow: Duration,
    pub rewrite: Option<Rewrite>,
    pub filter: Option<fn() -> Box<dyn Filter>>,
    /// The trace context to send upstream.
    pub trace: Option<UpstreamTrace>,
}

#[derive(Default)]
pub struct Recorder {
    calls: Mutex<Vec<Arc<RecordedCall>>>,
    behaviour: RecorderBehaviour,
}

pub struct RecordedCall {
    pub received: Instant,
    pub route: String,
    pub uri: String,
    seen: Mutex<Vec<ObserverEvent>>,
    behaviour: RecorderBehaviour,
}

impl Recorder {
    pub fn with(behaviour: RecorderBehaviour) -> Recorder {
        Recorder {
            calls: Mutex::default(),
            behaviour,
        }
    }

    pub fn calls(&self) -> Vec<Arc<RecordedCall>> {
        self.calls.lock().unwrap().clone()
    }

    /// Waits for the only call to end. Checks the properties that every call must have.
    pub async fn only_call(&self) -> Arc<RecordedCall> {
        self.ended_calls(1).await.remove(0)
    }

    /// Waits for `count` calls to end, and returns them.
    pub async fn ended_calls(&self, count: usize) -> Vec<Arc<RecordedCall>> {
        let over = |calls: &[Arc<RecordedCall>]| {
            calls.len() == count && calls.iter().all(|call| call.ended().is_some())
        };
        eventually("the calls end", || over(&self.calls())).await;
        let calls = self.calls();
        calls.iter().for_each(|call| call.check());
        calls
    }
}

impl Observer for Recorder {
    fn begin(&self, start: CallStart<'_>) -> Arc<dyn ObservedCall> {
        let call = Arc::new(RecordedCall {
            received: start.received,
            route: start.route.to_string(),
            uri: start.uri.to_string(),
            seen: Mutex::default(),
            behaviour: self.behaviour.clone(),
        });
        self.calls.lock().unwrap().push(Arc::clone(&call));
        call
    }
}

impl RecordedCall {
    pub fn seen(&self) -> Vec<ObserverEvent> {
        self.seen
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clone()
    }

    pub fn ended(&self) -> Option<End> {
        self.find(|seen| match seen {
            ObserverEvent::Ended(_, end) => Some(end.clone()),
            _ => None,
        })
    }

    pub fn find<T>(&self, pick: impl Fn(&ObserverEvent) -> Option<T>) -> Option<T> {
        self.seen().iter().find_map(pick)
    }

    pub fn all<T>(&self, pick: impl Fn(&ObserverEvent) -> Option<T>) -> Vec<T> {
        self.seen().iter().filter_map(pick).collect()
    }

    pub fn sent(&self) -> Option<Instant> {
        self.find(|seen| {
            if let ObserverEvent::Sent(at) = seen {
                Some(*at)
            } else {
                None
            }
        })
    }

    pub fn status(&self) -> Option<u16> {
        self.find(|seen| {
            if let ObserverEvent::Head(_, status) = seen {
                Some(status.as_u16())
            } else {
                None
            }
        })
    }

    pub fn reused(&self) -> Vec<bool> {
        self.all(|seen| {
            if let ObserverEvent::Connected(_, reused) = seen {
                Some(*reused)
            } else {
                None
            }
        })
    }

    pub fn endpoints(&self) -> Vec<String> {
        self.all(|seen| {
            if let ObserverEvent::Endpoint(endpoint) = seen {
                Some(endpoint.clone())
            } else {
                None
            }
        })
    }

    pub fn lagged(&self) -> u64 {
        self.all(|seen| {
            if let ObserverEvent::Lagged(chunks) = seen {
                Some(*chunks)
            } else {
                None
            }
        })
        .iter()
        .sum()
    }

    pub fn chunks(&self) -> Vec<Chunk> {
        self.all(|seen| {
            if let ObserverEvent::Chunk(chunk) = seen {
                Some(chunk.clone())
            } else {
                None
            }
        })
    }

    pub fn response(&self) -> Vec<u8> {
        self.chunks()
            .iter()
            .flat_map(|chunk| chunk.bytes.to_vec())
            .collect()
    }

    pub fn request(&self) -> Vec<u8> {
        self.all(|seen| {
            if let ObserverEvent::RequestChunk(bytes) = seen {
                Some(bytes.to_vec())
            } else {
                None
            }
        })
        .concat()
    }

    pub fn tunnel(&self, side: Side) -> Vec<u8> {
        let pieces = self.all(|seen| match seen {
            ObserverEvent::Tunnel(from, chunk) if *from == side => Some(chunk.bytes.to_vec()),
            _ => None,
        });
        pieces.concat()
    }

    /// The sides of a tunnel, in the order in which they ended.
    pub fn tunnel_ends(&self) -> Vec<Side> {
        self.all(|seen| match seen {
            ObserverEvent::TunnelOver(from) => Some(*from),
            _ => None,
        })
    }

    /// Checks the properties that every call must have: its end is its last event, and its instants
    /// are in order.
    fn check(&self) {
        let seen = self.seen();
        let ends = seen
            .iter()
            .filter(|seen| matches!(seen, ObserverEvent::Ended(..)))
            .count();
        assert_eq!(ends, 1, "ends once: {seen:?}");
        assert!(
            matches!(seen.last(), Some(ObserverEvent::Ended(..))),
            "ends last: {seen:?}"
        );
        let mut last = self.received;
        for at in seen.iter().filter_map(response_instant) {
            assert!(at >= last, "instants in order: {seen:?}");
            last = at;
        }
        if let Some(sent) = self.sent() {
            let connected = self.all(|seen| {
                if let ObserverEvent::Connected(at, _) = seen {
                    Some(*at)
                } else {
                    None
                }
            });
            assert!(
                connected.first().is_none_or(|connected| sent >= *connected),
                "sent after connected: {seen:?}"
            );
        }
    }

    fn record(&self, seen: ObserverEvent) {
        let panics = self.behaviour.panics.is_some_and(|panics| panics(&seen));
        self.seen.lock().unwrap().push(seen);
        assert!(!panics, "as the test wants it");
    }
}

/// The instants that are in order regardless of the upload.
fn response_instant(seen: &ObserverEvent) -> Option<Instant> {
    match seen {
        ObserverEvent::Connected(at, _)
        | ObserverEvent::Head(at, _)
        | ObserverEvent::Ended(at, _) => Some(*at),
        ObserverEvent::Chunk(chunk) => Some(chunk.at),
        _ => None,
    }
}

impl CallObserver for RecordedCall {
    fn endpoint(&self, endpoint: &str) {
        self.record(ObserverEvent::Endpoint(endpoint.to_owned()));
    }

    fn connected(&self, at: Instant, reused: bool) {
        self.record(ObserverEvent::Connected(at, reused));
    }

    fn request_chunk(&self, bytes: &Bytes) {
        self.record(ObserverEvent::RequestChunk(bytes.clone()));
    }

    fn sent(&self, at: Instant) {
        self.record(ObserverEvent::Sent(at));
    }

    fn head(&self, at: Instant, status: StatusCode, _: &HeaderMap) {
        self.record(ObserverEvent::Head(at, status));
    }

    fn response_chunk(&self, chunk: Chunk) {
        std::thread::sleep(self.behaviour.slow);
        self.record(ObserverEvent::Chunk(chunk));
    }

    fn trailers(&self, trailers: &HeaderMap) {
        self.record(ObserverEvent::Trailers(trailers.clone()));
    }

    fn lagged(&self, chunks: u64, _: u64) {
        self.record(ObserverEvent::Lagged(chunks));
    }

    fn overhead(&self, phase: Phase, cost: Duration) {
        self.record(ObserverEvent::Overhead(phase, cost));
    }

    fn ended(&self, at: Instant, end: End) {
        self.record(ObserverEvent::Ended(at, end));
    }

    fn tunnel_chunk(&self, from: Side, chunk: Chunk) {
        self.record(ObserverEvent::Tunnel(from, chunk));
    }

    fn tunnel_over(&self, from: Side) {
        self.record(ObserverEvent::TunnelOver(from));
    }
}

impl CallPolicy for RecordedCall {
    fn error_response(&self, failure: &Failure) -> ErrorResponse {
        let body = format!("{{\"error\":{:?}}}", failure.message);
        ErrorResponse {
            content_type: "application/json",
            body: Bytes::from(body),
        }
    }

    fn may_rewrite_request(&self, _: &Method, _: &HeaderMap) -> bool {
        self.behaviour.rewrite.is_some()
    }

    fn rewrite_request(&self, body: &[u8]) -> Option<Bytes> {
        self.behaviour.rewrite.and_then(|rewrite| rewrite(body))
    }

    fn upstream_trace(&self) -> Option<UpstreamTrace> {
        self.behaviour.trace.clone()
    }

    fn response_filter(&self, _: &HeaderMap) -> Option<Box<dyn Filter>> {
        self.behaviour.filter.map(|filter| filter())
    }
}
