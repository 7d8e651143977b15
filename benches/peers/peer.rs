//! The compared peers: no proxy, proxies, gateways. Each has one worker.

use crate::agents::{Agent, Call};
use crate::client::Connection;
use crate::configs::{STDERR, Site, With};
use crate::cores::Cores;
use crate::gateways;
use crate::process::Processes;
use crate::scenario::{AgentProtocol, BackendProtocol, Setup};
use crate::wire::StreamRequest;
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::fmt;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    Direct,
    Nginx,
    Haproxy,
    Envoy,
    Tokengauge,
    /// tokengauge with an experiment that splits the route, and a gate. Drift reads a ledger, which has its own scene
    /// in `--growth`.
    Compared,
    Kept,
    /// tokengauge with a ledger and a sink that sends every call to a ClickHouse that accepts all.
    Sent,
    Other,
    Litellm,
    Portkey,
}

/// Prefix of the paths that lead to the noisy agents' backend.
pub const NOISY_PATH: &str = "/noisy";
/// Environment variable with the path of another build of tokengauge, to compare with this one.
const OTHER: &str = "TOKENGAUGE_OTHER";
/// Environment variable with the path of the measured build of tokengauge, such as the image's. By default the
/// benchmark's own build is measured.
const PROGRAM: &str = "TOKENGAUGE_PROGRAM";

/// The measured build of tokengauge.
fn program() -> OsString {
    std::env::var_os(PROGRAM).unwrap_or_else(|| env!("CARGO_BIN_EXE_tokengauge").into())
}
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[derive(Clone, Debug)]
pub struct Backends {
    pub http1: SocketAddr,
    pub tls: SocketAddr,
    pub http2: SocketAddr,
    pub noisy: SocketAddr,
    /// The certificate that signed the TLS backend's, as PEM.
    pub authority: PathBuf,
}

impl Backends {
    pub fn of(&self, protocol: BackendProtocol) -> SocketAddr {
        match protocol {
            BackendProtocol::Http1 => self.http1,
            BackendProtocol::Tls => self.tls,
            BackendProtocol::Http2 => self.http2,
        }
    }
}

pub struct RunningPeer {
    peer: Peer,
    address: SocketAddr,
    /// Address for noisy agents, which differs from the others' only for `direct`.
    noisy: SocketAddr,
    protocol: AgentProtocol,
    headers: String,
    /// `None` for `direct`.
    processes: Option<Processes>,
    admin: Option<SocketAddr>,
    _folder: TempDir,
}

impl Peer {
    /// In the order of the tables.
    pub const ALL: [Peer; 11] = [
        Peer::Direct,
        Peer::Nginx,
        Peer::Haproxy,
        Peer::Envoy,
        Peer::Tokengauge,
        Peer::Compared,
        Peer::Kept,
        Peer::Sent,
        Peer::Other,
        Peer::Litellm,
        Peer::Portkey,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Peer::Direct => "direct",
            Peer::Nginx => "nginx",
            Peer::Haproxy => "haproxy",
            Peer::Envoy => "envoy",
            Peer::Tokengauge => "tokengauge",
            Peer::Compared => "with comparisons",
            Peer::Kept => "with a ledger",
            Peer::Sent => "with a sink",
            Peer::Other => "other build",
            Peer::Litellm => "litellm",
            Peer::Portkey => "portkey",
        }
    }

    /// Whether the peer parses and rewrites the dialect, and is therefore much slower.
    pub fn is_gateway(self) -> bool {
        matches!(self, Peer::Litellm | Peer::Portkey)
    }

    /// Whether the peer counts tokens and has a metric of their number.
    pub fn is_tokengauge(self) -> bool {
        self == Peer::Tokengauge || self == Peer::Other || self.is_this_build_with_more()
    }

    /// Whether the peer is tokengauge with an optional feature. Such a peer runs only if `--peers` names it.
    pub fn is_this_build_with_more(self) -> bool {
        matches!(self, Peer::Compared | Peer::Kept | Peer::Sent)
    }

    /// The peer that the figures of this peer are compared with.
    pub fn base(self) -> Peer {
        match self {
            Peer::Compared | Peer::Kept => Peer::Tokengauge,
            Peer::Sent => Peer::Kept,
            _ => Peer::Nginx,
        }
    }

    pub fn installer(self) -> &'static str {
        match self {
            Peer::Litellm | Peer::Portkey => "make bench-gateways",
            Peer::Envoy => "make bench-tools",
            Peer::Other => "TOKENGAUGE_OTHER=PROGRAM",
            _ => "make bench-tools",
        }
    }

    pub fn is_installed(self) -> bool {
        let folders = || {
            std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>()
        };
        match self {
            Peer::Direct | Peer::Tokengauge | Peer::Compared | Peer::Kept | Peer::Sent => true,
            Peer::Other => std::env::var_os(OTHER).is_some(),
            Peer::Envoy => gateways::envoy_program().exists(),
            Peer::Litellm => gateways::litellm_program().exists(),
            Peer::Portkey => gateways::portkey_program().exists(),
            // Debian installs nginx and haproxy in a folder of root's PATH.
            Peer::Nginx | Peer::Haproxy => folders()
                .iter()
                .map(|folder| folder.as_path())
                .chain([Path::new("/usr/sbin")])
                .any(|folder| folder.join(self.to_string()).exists()),
        }
    }

    /// Starts the peer in front of the backends on its own cores. The gateways support only one backend.
    pub fn start(
        self,
        backends: &Backends,
        setup: &Setup,
        cores: Cores,
    ) -> anyhow::Result<RunningPeer> {
        let folder = tempfile::tempdir()?;
        if self == Peer::Direct {
            return Ok(RunningPeer::without_proxy(backends, setup, folder));
        }
        let [address, admin] = free_addresses()?;
        let site = Site {
            folder: folder.path(),
            address,
            admin,
            backends,
            setup,
        };
        let mut processes = Processes::start(self.command(&site)?, cores.peer, cores.load)?;
        wait_for(address, &mut processes).with_context(|| {
            let said = std::fs::read_to_string(folder.path().join(STDERR)).unwrap_or_default();
            format!("{self} did not start; it said: {:?}", said.trim_end())
        })?;
        Ok(RunningPeer {
            peer: self,
            address,
            noisy: address,
            protocol: setup.agents,
            headers: match self {
                Peer::Portkey => gateways::portkey_headers(backends.http1),
                // The unit of the peer's experiment.
                Peer::Compared => "x-tokengauge-session: bench\r\n".to_owned(),
                _ => String::new(),
            },
            processes: Some(processes),
            admin: self.is_tokengauge().then_some(admin),
            _folder: folder,
        })
    }

    fn command(self, site: &Site<'_>) -> anyhow::Result<std::process::Command> {
        let backend = site.backends.http1;
        match self {
            Peer::Direct => bail!("no program"),
            Peer::Nginx => site.nginx(),
            Peer::Haproxy => site.haproxy(),
            Peer::Envoy => site.envoy(&gateways::envoy_program()),
            Peer::Tokengauge => site.tokengauge(program(), With::Nothing),
            Peer::Compared => site.tokengauge(program(), With::Comparisons),
            Peer::Kept => site.tokengauge(program(), With::Ledger),
            Peer::Sent => site.tokengauge(program(), With::Sink),
            Peer::Other => site.tokengauge(std::env::var_os(OTHER).context(OTHER)?, With::Nothing),
            Peer::Litellm => gateways::litellm(site.folder, site.address, backend),
            Peer::Portkey => Ok(gateways::portkey(site.address)),
        }
    }
}

impl RunningPeer {
    fn without_proxy(backends: &Backends, setup: &Setup, folder: TempDir) -> RunningPeer {
        RunningPeer {
            peer: Peer::Direct,
            address: match setup.agents {
                AgentProtocol::Http1 => backends.http1,
                AgentProtocol::Http2 => backends.http2,
            },
            noisy: backends.noisy,
            protocol: setup.agents,
            headers: String::new(),
            processes: None,
            admin: None,
            _folder: folder,
        }
    }

    pub async fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(self.address).await
    }

    /// Opens `number` agents. Over HTTP/2, `per_connection` of them share a connection.
    pub async fn agents(&self, number: usize, per_connection: usize) -> anyhow::Result<Vec<Agent>> {
        Agent::open(self.protocol, self.address, number, per_connection).await
    }

    /// The request for a response, with the header lines that this peer needs.
    pub fn call(&self, spec: StreamRequest) -> Call {
        Call::new(spec, &self.headers)
    }

    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    pub fn process_ids(&self) -> anyhow::Result<Vec<u32>> {
        let processes = self.processes.as_ref();
        processes.map_or(Ok(Vec::new()), Processes::ids)
    }

    pub fn peer(&self) -> Peer {
        self.peer
    }

    pub fn noisy(&self) -> SocketAddr {
        self.noisy
    }

    /// Resident memory in kilobytes; 0 for `direct`.
    pub fn resident_kb(&self) -> anyhow::Result<f64> {
        let processes = self.processes.as_ref();
        processes.map_or(Ok(0.0), Processes::resident_kb)
    }

    /// CPU time of the peer's threads in nanoseconds; 0 for `direct`.
    pub fn cpu_nanoseconds(&self) -> anyhow::Result<u64> {
        let processes = self.processes.as_ref();
        processes.map_or(Ok(0), Processes::cpu_nanoseconds)
    }

    /// The sum of a metric of tokengauge; `None` for other peers.
    pub async fn metric(&self, name: &str) -> anyhow::Result<Option<f64>> {
        let Some(admin) = self.admin else {
            return Ok(None);
        };
        let scrape = Connection::open(admin).await?.get("/metrics").await?;
        let samples = scrape.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '{']))
        });
        let values = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(Some(values.sum()))
    }
}

/// Returns two unused addresses. Both ports are held until both are known, so that they differ.
fn free_addresses() -> anyhow::Result<[SocketAddr; 2]> {
    let bind = || TcpListener::bind("127.0.0.1:0");
    let (one, other) = (bind()?, bind()?);
    Ok([one.local_addr()?, other.local_addr()?])
}

fn wait_for(address: SocketAddr, processes: &mut Processes) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(address).is_err() {
        if processes.ended() {
            bail!("the process ended at once");
        }
        if Instant::now() > deadline {
            bail!("the process accepts no connections at {address}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
