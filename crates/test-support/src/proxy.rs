//! A listening proxy, created from a few settings.

use crate::connection::RawConnection;
use crate::recorder::{Recorder, RecorderBehaviour};
use crate::{TIMEOUT, eventually};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::observer::Observer;
use tokengauge_proxy::settings::{
    ClientTls, Endpoint, Limits, Listener, Matches, Protocol, Route, ServerTls, Settings, Timeouts,
    Upstream,
};
use tokengauge_proxy::{BoundListener, DrainSummary, Forwarder, Shutdown, serve};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The settings of a proxy with one route to one upstream.
pub struct Setup {
    pub prefix: &'static str,
    pub endpoints: Vec<SocketAddr>,
    pub scheme: http::uri::Scheme,
    pub base_path: &'static str,
    pub protocol: Protocol,
    pub tls: ClientTls,
    pub listener_tls: Option<ServerTls>,
    pub timeouts: Timeouts,
    pub max_idle: usize,
    pub idle_for: Duration,
    pub eject_for: Duration,
    pub max_connections: Option<usize>,
    pub max_pending: usize,
    pub resend_bytes: usize,
    pub inject_usage: bool,
    pub forwarded: bool,
    pub limits: Limits,
    pub drain_timeout: Duration,
    pub behaviour: RecorderBehaviour,
}

impl Setup {
    pub fn to(endpoint: SocketAddr) -> Setup {
        Setup {
            prefix: "",
            endpoints: vec![endpoint],
            scheme: http::uri::Scheme::HTTP,
            base_path: "",
            protocol: Protocol::Auto,
            tls: ClientTls::default(),
            listener_tls: None,
            timeouts: Timeouts {
                connect: Duration::from_secs(5),
                head: Duration::from_secs(5),
                idle: Duration::from_secs(5),
                send: Duration::from_secs(5),
            },
            max_idle: 8,
            idle_for: Duration::from_secs(30),
            eject_for: Duration::from_secs(5),
            max_connections: None,
            max_pending: 64,
            resend_bytes: 0,
            inject_usage: false,
            forwarded: false,
            limits: Limits::default(),
            drain_timeout: Duration::from_secs(1),
            behaviour: RecorderBehaviour::default(),
        }
    }

    pub fn http2(mut self) -> Setup {
        self.protocol = Protocol::Http2;
        self
    }

    pub fn listener_tls(mut self, tls: ServerTls) -> Setup {
        self.listener_tls = Some(tls);
        self
    }

    pub fn drain_timeout(mut self, drain_timeout: Duration) -> Setup {
        self.drain_timeout = drain_timeout;
        self
    }

    pub fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Setup {
        change(&mut self.limits);
        self
    }

    pub async fn start(self) -> Proxy {
        let recorder = Arc::new(Recorder::with(self.behaviour.clone()));
        self.start_with(recorder.clone(), recorder).await
    }

    /// Starts the proxy without a recorder, which would store everything.
    pub async fn start_unobserved(self, observer: Arc<dyn Observer>) -> Proxy {
        self.start_with(observer, Arc::default()).await
    }

    async fn start_with(mut self, observer: Arc<dyn Observer>, recorder: Arc<Recorder>) -> Proxy {
        let tls = self.listener_tls.take();
        let (limits, drain_timeout) = (self.limits, self.drain_timeout);
        let forwarder = Arc::new(Forwarder::new(self.forwarding(), observer).unwrap());
        let bound = BoundListener::bind(&Listener {
            address: ([127, 0, 0, 1], 0).into(),
            tls,
        })
        .unwrap();
        let address = bound.address();
        let shutdown = Shutdown::new();
        let (connections, ending) = (Arc::clone(&forwarder), shutdown.clone());
        let serving = tokio::spawn(async move {
            serve(vec![bound], connections, &limits, ending, drain_timeout).await
        });
        Proxy {
            address,
            recorder,
            forwarder,
            shutdown,
            serving: Some(serving),
        }
    }

    fn forwarding(self) -> Settings {
        let endpoints = self.endpoints.iter().map(|address| Endpoint {
            scheme: self.scheme.clone(),
            authority: address.to_string().parse().unwrap(),
            base_path: self.base_path.to_owned(),
        });
        let upstream = Upstream {
            protocol: self.protocol,
            tls: self.tls,
            timeouts: self.timeouts,
            max_idle: self.max_idle,
            idle_for: self.idle_for,
            eject_for: self.eject_for,
            max_connections: self.max_connections,
            max_pending: self.max_pending,
            resend_bytes: self.resend_bytes,
            ..Upstream::new("backend", endpoints.collect())
        };
        let route = Route {
            matches: Matches {
                path_prefix: self.prefix.to_owned(),
                ..Matches::default()
            },
            strip_prefix: true,
            inject_usage: self.inject_usage,
            add_forwarded: self.forwarded,
            ..Route::new("route", Arc::new(upstream))
        };
        Settings {
            routes: vec![Arc::new(route)],
            limits: self.limits,
            refusal: None,
        }
    }
}

pub struct Proxy {
    pub address: SocketAddr,
    pub recorder: Arc<Recorder>,
    pub forwarder: Arc<Forwarder>,
    pub shutdown: Shutdown,
    serving: Option<JoinHandle<DrainSummary>>,
}

impl Proxy {
    pub async fn agent(&self) -> RawConnection<TcpStream> {
        RawConnection::connect(self.address).await
    }

    pub async fn drained(mut self) -> DrainSummary {
        let serving = self.serving.take().expect("not waited for yet");
        timeout(TIMEOUT, serving)
            .await
            .expect("serving ends")
            .expect("no panic")
    }

    pub async fn has_connections(&self, count: usize) {
        eventually(&format!("{count} connections"), || {
            self.shutdown.connections() == count
        })
        .await;
    }

    pub async fn has_requests(&self, count: usize) {
        eventually(&format!("{count} requests"), || {
            self.shutdown.requests() == count
        })
        .await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shutdown.now();
    }
}
