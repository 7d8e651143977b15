//! Accepts connections, routes requests, and answers them with the script of the dialect.

use super::dialects;
use super::prefix_cache::PrefixCache;
use super::profile::{HELP, InvalidSetting, Profile};
use super::realtime::Session;
use super::response;
use super::route::{Shape, Target, decoded, route};
use super::sim_call::{SimCall, now};
use super::socket::{ConnectionState, Socket};
use super::stream::{Body, BodyAborted};
use super::text_gen::{Random, seed_of};
use super::truth::{Call, Truth, TruthLog, Witness};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::RwLock;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tungstenite::handshake::derive_accept_key;

const MOST_REQUEST: usize = 64 << 20;

/// A simulated backend, which is cheap to share.
pub struct Simulator {
    setup: Setup,
    ledger: Arc<TruthLog>,
    calls: AtomicU64,
    cache: Arc<PrefixCache>,
    /// Settings that override the settings of requests.
    fault: RwLock<String>,
}

struct Arrival {
    connection: Arc<ConnectionState>,
    received: Instant,
}

#[derive(Debug, thiserror::Error)]
enum InvalidProfile {
    #[error("the header x-sim is not plain text")]
    NotText(#[from] header::ToStrError),
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
}

#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The default behaviour, which requests can override.
    pub profile: Profile,
    /// A folder of recorded bodies, `<name>/response.body` and `<name>/meta.json`. `x-sim-body:
    /// <name>` serves one of them.
    pub bodies: Option<PathBuf>,
    /// Whether to print one JSON line per call to standard output.
    pub print: bool,
    /// Receives every byte and every truth, if set.
    pub witness: Option<Witness>,
}

impl Simulator {
    pub fn new(profile: Profile) -> Arc<Simulator> {
        Simulator::with(Setup {
            profile,
            ..Setup::default()
        })
    }

    pub fn with(setup: Setup) -> Arc<Simulator> {
        let ledger = TruthLog::new(setup.print, setup.witness.clone());
        Arc::new(Simulator {
            setup,
            ledger,
            calls: AtomicU64::new(0),
            cache: Arc::default(),
            fault: RwLock::default(),
        })
    }

    /// From now on these settings override the settings of requests. An empty text removes them.
    ///
    /// # Errors
    /// Returns an error if the text is not a list of settings.
    pub fn set_fault(&self, settings: &str) -> Result<(), InvalidSetting> {
        self.setup.profile.with(settings)?;
        settings.clone_into(&mut self.fault.write());
        Ok(())
    }

    /// Finished calls, newest first. The last 10,000 are kept.
    pub fn truths(&self) -> Vec<Arc<Truth>> {
        self.ledger.newest(usize::MAX)
    }

    pub fn in_flight(&self) -> u64 {
        self.ledger.in_flight()
    }

    /// Serves HTTP/1.1 and HTTP/2 without TLS until `shutdown`, then drops the calls in flight.
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
                    // Probably no file descriptor is available, and another connection will close
                    // soon.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream) {
        // Otherwise a chunk waits for the acknowledgement of the previous one.
        let _ = stream.set_nodelay(true);
        let connection = Arc::new(ConnectionState::default());
        let socket = Socket::new(stream, Arc::clone(&connection));
        let service = {
            let connection = Arc::clone(&connection);
            service_fn(move |request| {
                let (simulator, connection) = (Arc::clone(&self), Arc::clone(&connection));
                async move { simulator.respond(request, connection).await }
            })
        };
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .preserve_header_case(true);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(10_000);
        // The client left or a requested fault happened. The truth records both.
        let _ = builder
            .serve_connection_with_upgrades(TokioIo::new(socket), service)
            .await;
        // A session continues after the upgrade. Dropping it here ends it with the server.
        let mut sessions = connection.take_sessions();
        while sessions.join_next().await.is_some() {}
    }

    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: Arc<ConnectionState>,
    ) -> Result<Response<Body>, BodyAborted> {
        let received = connection.last_read();
        let recording = header(request.headers(), "x-sim-body").map(str::to_owned);
        let target = match route(request.method(), request.uri()) {
            Some(target) => target,
            // A recording is served for any path.
            None if recording.is_some() => Target {
                shape: Shape::Home,
                model: None,
                stream: None,
            },
            None => {
                return Ok(refuse(
                    None,
                    StatusCode::NOT_FOUND,
                    "the simulator does not serve this path",
                ));
            }
        };
        if recording.is_none()
            && let Some(response) = self.about_itself(&target, request.uri().query())
        {
            return Ok(response);
        }
        let profile = match self.profile_for(request.headers()) {
            Ok(profile) => profile,
            Err(error) => {
                let reason = error.to_string();
                return Ok(refuse(Some(target.shape), StatusCode::BAD_REQUEST, &reason));
            }
        };
        if target.shape == Shape::Realtime {
            return Ok(self.upgrade(request, profile, connection));
        }
        let arrival = Arrival {
            connection,
            received,
        };
        let mut sim_call = self.begin_call(&request, target, profile, arrival);
        sim_call.recording = recording;
        let read = Limited::new(request.into_body(), MOST_REQUEST)
            .collect()
            .await;
        sim_call
            .request_read(read.ok().map(|body| body.to_bytes()))
            .await
    }

    fn about_itself(&self, target: &Target, query: Option<&str>) -> Option<Response<Body>> {
        let value = match target.shape {
            Shape::Truth => {
                let limit = parameter(query, "limit").and_then(|limit| limit.parse().ok());
                let truths = self.ledger.newest(limit.unwrap_or(100));
                json!(truths.iter().map(|truth| &**truth).collect::<Vec<&Truth>>())
            }
            Shape::Models => dialects::models::list(now()),
            Shape::OllamaTags => dialects::models::tags(),
            Shape::Health => json!({"status": "ok"}),
            Shape::OllamaVersion => json!({"version": "0.12.0"}),
            Shape::Home => {
                let text = format!(
                    "This is tokengauge's simulated backend. The request header x-sim takes these settings.\n\n{HELP}\n"
                );
                let plain = "text/plain; charset=utf-8";
                return Some(response::bytes(StatusCode::OK, plain, text.into_bytes()));
            }
            _ => return None,
        };
        Some(response::json(StatusCode::OK, &value))
    }

    fn profile_for(&self, headers: &HeaderMap) -> Result<Profile, InvalidProfile> {
        let mut profile = self.setup.profile.clone();
        for settings in headers.get_all("x-sim") {
            profile = profile.with(settings.to_str()?)?;
        }
        Ok(profile.with(&self.fault.read())?)
    }

    fn next_call(&self, headers: &HeaderMap) -> (u64, String) {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let id = header(headers, "x-sim-id");
        (
            number,
            id.map_or_else(|| format!("sim-{}", number + 1), str::to_owned),
        )
    }

    fn begin_call(
        &self,
        request: &Request<Incoming>,
        target: Target,
        profile: Profile,
        arrival: Arrival,
    ) -> SimCall {
        let Arrival {
            connection,
            received,
        } = arrival;
        let (calls_before, id) = self.next_call(request.headers());
        let mut truth = Truth::begun(id.clone(), target.shape.dialect(), received);
        truth.session = header(request.headers(), "x-tokengauge-session").map(str::to_owned);
        truth.concurrency = self.ledger.in_flight() + 1;
        let random = Random::new(profile.seed.unwrap_or_else(|| seed_of(&id)));
        SimCall {
            http1: request.version() < Version::HTTP_2,
            call: Call::begin(Arc::clone(&self.ledger), truth),
            calls_before,
            id,
            target,
            profile,
            connection,
            random,
            cache: Arc::clone(&self.cache),
            recording: None,
            bodies: self.setup.bodies.clone(),
        }
    }

    fn upgrade(
        &self,
        mut request: Request<Incoming>,
        profile: Profile,
        connection: Arc<ConnectionState>,
    ) -> Response<Body> {
        let (calls_before, id) = self.next_call(request.headers());
        let key = request.headers().get(header::SEC_WEBSOCKET_KEY);
        let Some(accept) = key.map(|key| derive_accept_key(key.as_bytes())) else {
            let status = StatusCode::UPGRADE_REQUIRED;
            return refuse(
                Some(Shape::Realtime),
                status,
                "this path needs a WebSocket upgrade",
            );
        };
        let model = parameter(request.uri().query(), "model").map(decoded);
        let session = Session {
            session: header(request.headers(), "x-tokengauge-session").map(str::to_owned),
            model: model.unwrap_or_else(|| "simulated".into()),
            ledger: Arc::clone(&self.ledger),
            random: Random::new(profile.seed.unwrap_or_else(|| seed_of(&id))),
            connection: Arc::clone(&connection),
            id: id.clone(),
            profile,
            calls_before,
            turns: 0,
            audio: true,
            input_tokens: 0,
            tool_name: None,
        };
        let mut response = Response::new(Body::plain(""));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        let offered = request.headers().get(header::SEC_WEBSOCKET_PROTOCOL);
        if offered.is_some_and(|names| names.to_str().is_ok_and(|names| names.contains("realtime")))
        {
            let realtime = HeaderValue::from_static("realtime");
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, realtime);
        }
        for (name, value) in [("sec-websocket-accept", accept), ("x-sim-id", id)] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        let upgrade = hyper::upgrade::on(&mut request);
        connection.spawn_session(async move {
            if let Ok(upgraded) = upgrade.await {
                session.serve(TokioIo::new(upgraded)).await;
            }
        });
        response
    }
}

fn refuse(shape: Option<Shape>, status: StatusCode, reason: &str) -> Response<Body> {
    response::json(status, &response::error_body(shape, status, reason))
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    let pairs = query
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value)
        .next()
}
