//! Accepts connections, finds what is asked for, and lets the right script answer.

use super::profile::Profile;
use super::reply;
use super::route::{Shape, Target, route};
use super::socket::{Line, Socket};
use super::stream::{Body, Torn};
use super::truth::{Call, Ledger, Truth};
use super::visit::Visit;
use super::words::{Random, seed_of};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Bytes of a request body that are read.
const MOST_REQUEST: usize = 64 << 20;

/// A simulated backend. Cheap to share.
pub struct Simulator {
    profile: Profile,
    ledger: Arc<Ledger>,
    calls: AtomicU64,
}

impl Simulator {
    /// A simulator with this profile where a request sets nothing else.
    pub fn new(profile: Profile) -> Arc<Simulator> {
        Arc::new(Simulator {
            profile,
            ledger: Ledger::new(false),
            calls: AtomicU64::new(0),
        })
    }

    /// The same, printing one JSON line per call to standard output.
    pub fn printing(profile: Profile) -> Arc<Simulator> {
        Arc::new(Simulator {
            profile,
            ledger: Ledger::new(true),
            calls: AtomicU64::new(0),
        })
    }

    /// Calls that are over, newest first; the last 10,000 are kept.
    pub fn truths(&self) -> Vec<Arc<Truth>> {
        self.ledger.newest(usize::MAX)
    }

    /// Calls in flight.
    pub fn in_flight(&self) -> u64 {
        self.ledger.in_flight()
    }

    /// Serves HTTP/1.1 and HTTP/2 without TLS until `shutdown`, then drops what is
    /// still under way.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let mut connections = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(Arc::clone(&self).connection(stream));
                    }
                    // Out of descriptors, most likely: others will be given back.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) {
        // Without it a frame waits for the acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        let line = Arc::new(Line::default());
        let socket = Socket::new(stream, Arc::clone(&line));
        let service = service_fn(move |request| {
            let (simulator, line) = (Arc::clone(&self), Arc::clone(&line));
            async move { simulator.answer(request, line).await }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .preserve_header_case(true);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(10_000);
        // A client that leaves, or a fault that was asked for: the truth tells of both.
        let _ = builder
            .serve_connection_with_upgrades(TokioIo::new(socket), service)
            .await;
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        line: Arc<Line>,
    ) -> Result<Response<Body>, Torn> {
        let received = line.last_read();
        let target = route(request.method(), request.uri());
        let shape = target.as_ref().map(|target| target.shape);
        let Some(target) = target else {
            let status = StatusCode::NOT_FOUND;
            return Ok(reply::json(
                status,
                &reply::error_body(shape, status, "no such path here"),
            ));
        };
        if let Some(response) = self.about_itself(&target, request.uri().query()) {
            return Ok(response);
        }
        let profile = match self.profile_for(request.headers()) {
            Ok(profile) => profile,
            Err(reason) => {
                let status = StatusCode::BAD_REQUEST;
                return Ok(reply::json(
                    status,
                    &reply::error_body(shape, status, &reason),
                ));
            }
        };
        let mut visit = self.visit(&request, target, profile, line, received);
        let read = Limited::new(request.into_body(), MOST_REQUEST)
            .collect()
            .await;
        visit
            .request_read(read.ok().map(|body| body.to_bytes()))
            .await
    }

    /// What is asked of the simulator itself, not of a model.
    fn about_itself(&self, target: &Target, query: Option<&str>) -> Option<Response<Body>> {
        let limit = query
            .unwrap_or_default()
            .split('&')
            .find_map(|pair| pair.strip_prefix("limit="));
        let limit = limit.and_then(|limit| limit.parse().ok()).unwrap_or(100);
        match target.shape {
            Shape::Truth => {
                let truths = self.ledger.newest(limit);
                let truths: Vec<&Truth> = truths.iter().map(|truth| &**truth).collect();
                Some(reply::json(StatusCode::OK, &json!(truths)))
            }
            Shape::Home => {
                let text = format!(
                    "tokengauge's simulated backend. Per request: x-sim.\n\n{}\n",
                    super::HELP
                );
                Some(reply::bytes(
                    StatusCode::OK,
                    "text/plain; charset=utf-8",
                    text.into_bytes(),
                ))
            }
            _ => None,
        }
    }

    fn profile_for(&self, headers: &HeaderMap) -> Result<Profile, String> {
        let mut profile = self.profile.clone();
        for settings in headers.get_all("x-sim") {
            let settings = settings
                .to_str()
                .map_err(|_| "x-sim is not plain text".to_owned())?;
            profile = profile
                .with(settings)
                .map_err(|invalid| invalid.to_string())?;
        }
        Ok(profile)
    }

    fn visit(
        &self,
        request: &Request<Incoming>,
        target: Target,
        profile: Profile,
        line: Arc<Line>,
        received: Instant,
    ) -> Visit {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let header = |name: &str| request.headers().get(name).and_then(|v| v.to_str().ok());
        let id = header("x-sim-id").map_or_else(|| format!("sim-{}", number + 1), str::to_owned);
        let mut truth = Truth::begun(id.clone(), target.shape.dialect(), received);
        truth.session = header("x-tokengauge-session").map(str::to_owned);
        truth.concurrency = self.ledger.in_flight() + 1;
        let random = Random::new(profile.seed.unwrap_or_else(|| seed_of(&id)));
        Visit {
            http1: request.version() < Version::HTTP_2,
            call: Call::begin(Arc::clone(&self.ledger), truth),
            calls_before: number,
            id,
            target,
            profile,
            line,
            random,
        }
    }
}
