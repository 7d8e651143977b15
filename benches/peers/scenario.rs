//! A scenario: a kind of load, its protocols, and the number of workers.

use crate::neighbours::Neighbours;
use crate::peer::Peer;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentProtocol {
    #[default]
    Http1,
    /// Over cleartext, with prior knowledge.
    Http2,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendProtocol {
    #[default]
    Http1,
    /// HTTP/1.1 over TLS. Only tokengauge verifies the certificate.
    Tls,
    /// Over cleartext, with prior knowledge.
    Http2,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    pub agents: AgentProtocol,
    pub backend: BackendProtocol,
    pub workers: usize,
    pub connections: usize,
    /// Limit of tokengauge's distinct models, if it is not the default.
    pub max_models: Option<u32>,
    /// The file of tokengauge's ledger, if calls are stored.
    pub ledger: Option<PathBuf>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            agents: AgentProtocol::Http1,
            backend: BackendProtocol::Http1,
            workers: 1,
            connections: 16 * 1024,
            max_models: None,
            ledger: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub streams: usize,
    pub per_second: u32,
    /// Events of one call, after which the next begins on its connection; `None` for one call as long as the run.
    pub per_call: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Calls of one token by several agents, one after the other, as fast as possible, while other streams are open and
    /// silent.
    Short {
        agents: usize,
        silent: usize,
    },
    /// A fixed number of short calls, for the time to the first event.
    FirstToken {
        agents: usize,
        calls: usize,
    },
    Paced(Pace),
    /// Streams as fast as possible, with several events in each write of the backend.
    FlatOut {
        streams: usize,
        per_write: u32,
    },
    /// Recorded bodies as fast as possible, one after the other on each of 32 connections.
    Recorded {
        dialect: Option<String>,
        per_write: u32,
        /// Whether the longest run of similar events is repeated until there are 1,000 events.
        repeated: bool,
    },
    Noisy(Neighbours),
    /// 50 paced streams, with or without ten scrapes of `/metrics` per second.
    Scraped(bool),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub work: Work,
    pub setup: Setup,
    pub models: u32,
}

impl From<Work> for Scenario {
    fn from(work: Work) -> Scenario {
        Scenario {
            work,
            setup: Setup::default(),
            models: 1,
        }
    }
}

impl Scenario {
    pub fn is_for(&self, peer: Peer) -> bool {
        let Setup {
            agents, backend, ..
        } = self.setup;
        let default = agents == AgentProtocol::Http1 && backend == BackendProtocol::Http1;
        let Setup {
            max_models, ledger, ..
        } = &self.setup;
        let of_tokengauge =
            matches!(self.work, Work::Scraped(_)) || max_models.is_some() || ledger.is_some();
        match peer {
            peer if peer.is_tokengauge() => true,
            _ if of_tokengauge => false,
            // Gateways support one backend and one dialect.
            Peer::Litellm | Peer::Portkey => {
                let noisy = matches!(self.work, Work::Noisy(_) | Work::Recorded { .. });
                default && self.models == 1 && self.setup.workers == 1 && !noisy
            }
            // nginx 1.22 does not support HTTP/2 to a backend.
            Peer::Nginx => backend != BackendProtocol::Http2,
            // Without a proxy there is one hop.
            Peer::Direct => backend == BackendProtocol::Http1 && self.setup.workers == 1,
            _ => true,
        }
    }

    /// The scenario with which this peer's figures are compared.
    pub fn baseline(&self) -> Option<Scenario> {
        let work = match &self.work {
            Work::Noisy(_) => Work::Noisy(Neighbours::None),
            Work::Scraped(_) => Work::Scraped(false),
            _ => return None,
        };
        Some(Scenario {
            work,
            ..self.clone()
        })
    }

    pub fn title(&self) -> String {
        let mut title = self.work.title();
        match (self.setup.agents, self.setup.backend) {
            (AgentProtocol::Http1, BackendProtocol::Http1) => {}
            (AgentProtocol::Http1, BackendProtocol::Tls) => title += ", TLS to the backend",
            (AgentProtocol::Http1, BackendProtocol::Http2) => title += ", HTTP/2 to the backend",
            (AgentProtocol::Http2, BackendProtocol::Http1) => title += ", HTTP/2 from agents",
            (AgentProtocol::Http2, BackendProtocol::Tls) => {
                title += ", HTTP/2 from agents, TLS to the backend";
            }
            (AgentProtocol::Http2, BackendProtocol::Http2) => title += ", HTTP/2 on both sides",
        }
        if self.models > 1 {
            title += &format!(", {} models", self.models);
        }
        if let Some(name) = self.setup.ledger.as_ref().and_then(|path| path.file_stem()) {
            title += &format!(", a ledger of {} calls", name.to_string_lossy());
        }
        if self.setup.workers > 1 {
            title += &format!(", {} workers", self.setup.workers);
        }
        title
    }
}

impl Work {
    fn title(&self) -> String {
        match self {
            Work::Short { agents, silent: 0 } => format!("short calls, {agents} agents"),
            Work::Short { agents, silent } => {
                format!("short calls, {agents} agents, {silent} silent streams")
            }
            Work::FirstToken { agents, .. } => {
                format!("time to the first token, {agents} at once")
            }
            Work::Paced(pace) => pace.title(),
            Work::FlatOut { streams, per_write } => {
                format!("flat out, {streams} streams, {per_write} events a write")
            }
            Work::Recorded {
                dialect,
                per_write,
                repeated,
            } => {
                let dialect = dialect.as_deref().unwrap_or("all dialects");
                let repeated = if *repeated { ", runs of 1,000" } else { "" };
                format!("recorded bodies, {dialect}{repeated}, {per_write} events a write")
            }
            Work::Noisy(neighbours) => format!("neighbours: {}", neighbours.name()),
            Work::Scraped(false) => "50 streams, no scrapes".to_owned(),
            Work::Scraped(true) => "50 streams, /metrics read ten times a second".to_owned(),
        }
    }
}

impl Pace {
    fn title(&self) -> String {
        let Pace {
            streams,
            per_second,
            per_call,
        } = self;
        let call = match per_call {
            Some(events) => format!("calls of {events}"),
            None => "one call each".to_owned(),
        };
        format!("paced, {streams} streams of {per_second} events a second, {call}")
    }
}
