//! A proxy that listens, made from a few settings.

use super::recorder::{Manners, Recorder};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokengauge::config::{
    Admin, ClientTls, Config, Endpoint, Limits, Listener, Matches, Measure, Otlp, Protocol, Route,
    ServerTls, Timeouts, Upstream,
};
use tokengauge::cost::PriceList;
use tokengauge::observer::Observer;
use tokengauge::proxy::{Bound, Forwarder, Shutdown, serve};

/// One route to one upstream, to be changed as a test needs it.
pub struct Setup {
    pub prefix: &'static str,
    pub endpoints: Vec<SocketAddr>,
    pub scheme: http::uri::Scheme,
    pub base_path: &'static str,
    pub protocol: Protocol,
    pub tls: ClientTls,
    /// TLS towards agents.
    pub listener_tls: Option<ServerTls>,
    pub timeouts: Timeouts,
    pub max_idle: usize,
    pub idle_for: Duration,
    pub eject_for: Duration,
    pub max_connections: Option<usize>,
    pub max_pending: usize,
    pub inject_usage: bool,
    pub forwarded: bool,
    pub limits: Limits,
    pub manners: Manners,
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
            inject_usage: false,
            forwarded: false,
            limits: Limits::default(),
            manners: Manners::default(),
        }
    }

    pub fn http2(mut self) -> Setup {
        self.protocol = Protocol::Http2;
        self
    }

    pub async fn start(self) -> Proxy {
        let recorder = Arc::new(Recorder::with(self.manners.clone()));
        self.start_with(recorder.clone(), recorder).await
    }

    /// Without a recorder, which would keep everything.
    pub async fn start_unobserved(self, observer: Arc<dyn Observer>) -> Proxy {
        self.start_with(observer, Arc::default()).await
    }

    async fn start_with(mut self, observer: Arc<dyn Observer>, recorder: Arc<Recorder>) -> Proxy {
        let tls = self.listener_tls.take();
        let config = self.config();
        let (limits, drain_timeout) = (config.limits, config.drain_timeout);
        let forwarder = Arc::new(Forwarder::new(config.forwarding(), observer).unwrap());
        let bound = Bound::bind(&Listener {
            address: ([127, 0, 0, 1], 0).into(),
            tls,
        })
        .unwrap();
        let address = bound.address();
        let shutdown = Shutdown::new();
        let (serving, ending) = (Arc::clone(&forwarder), shutdown.clone());
        tokio::spawn(
            async move { serve(vec![bound], serving, &limits, ending, drain_timeout).await },
        );
        Proxy {
            address,
            recorder,
            forwarder,
            shutdown,
        }
    }

    fn config(self) -> Config {
        let endpoints = self.endpoints.iter().map(|address| Endpoint {
            scheme: self.scheme.clone(),
            authority: address.to_string().parse().unwrap(),
            base_path: self.base_path.to_owned(),
        });
        let upstream = Upstream {
            name: Arc::from("backend"),
            endpoints: endpoints.collect(),
            protocol: self.protocol,
            tls: self.tls,
            timeouts: self.timeouts,
            max_idle: self.max_idle,
            idle_for: self.idle_for,
            eject_for: self.eject_for,
            max_connections: self.max_connections,
            max_pending: self.max_pending,
        };
        let route = Route {
            name: Arc::from("route"),
            matches: Matches {
                path_prefix: self.prefix.to_owned(),
                ..Matches::default()
            },
            strip_prefix: true,
            upstream: Arc::new(upstream),
            dialect: None,
            workload: None,
            inject_usage: self.inject_usage,
            add_via: false,
            add_forwarded: self.forwarded,
            upgrades: vec!["websocket".to_owned()],
        };
        Config {
            listeners: vec![],
            admin: Admin::default(),
            routes: vec![Arc::new(route)],
            scrapes: Vec::new(),
            limits: self.limits,
            measure: Measure::default(),
            otlp: Otlp::default(),
            drain_timeout: Duration::from_secs(1),
            slos: Vec::new(),
            receivers: Vec::new(),
            budgets: Vec::new(),
            prices: PriceList::default(),
            quotas: Vec::new(),
            state_dir: None,
            ledger: None,
            refusal: None,
            origin: String::new(),
            digest: String::new(),
        }
    }
}

pub struct Proxy {
    pub address: SocketAddr,
    pub recorder: Arc<Recorder>,
    pub forwarder: Arc<Forwarder>,
    pub shutdown: Shutdown,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shutdown.now();
    }
}
