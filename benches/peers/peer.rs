//! What is compared: no proxy, proxies, gateways. One worker each.

use crate::client::Connection;
use crate::gateways;
use crate::process::{Cores, Processes};
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::fmt;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Something between the client and the backend, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    Direct,
    Nginx,
    Haproxy,
    Tokengauge,
    Other,
    Litellm,
    Portkey,
}

/// The prefix of the paths of greedy agents, which have a backend of their own.
pub const GREEDY: &str = "/greedy";
/// The environment variable with the path of another build of tokengauge to compare with.
const OTHER: &str = "TOKENGAUGE_OTHER";

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Peer::Direct => "direct",
            Peer::Nginx => "nginx",
            Peer::Haproxy => "haproxy",
            Peer::Tokengauge => "tokengauge",
            Peer::Other => "other build",
            Peer::Litellm => "litellm",
            Peer::Portkey => "portkey",
        })
    }
}

/// The addresses of the backends: for the streams that are measured, and for greedy agents.
#[derive(Clone, Copy, Debug)]
pub struct Backends {
    pub backend: SocketAddr,
    pub greedy: SocketAddr,
}

/// A peer that accepts connections.
pub struct RunningPeer {
    address: SocketAddr,
    /// Where greedy agents connect: the same, but for `direct`.
    greedy: SocketAddr,
    /// Header lines that its requests need.
    headers: String,
    /// None for `direct`.
    processes: Option<Processes>,
    admin: Option<SocketAddr>,
    _folder: TempDir,
}

impl Peer {
    /// In the order of the tables.
    pub const ALL: [Peer; 7] = [
        Peer::Direct,
        Peer::Nginx,
        Peer::Haproxy,
        Peer::Tokengauge,
        Peer::Other,
        Peer::Litellm,
        Peer::Portkey,
    ];

    /// Whether it reads the dialect and rewrites it, and so is slower by far.
    pub fn is_gateway(self) -> bool {
        matches!(self, Peer::Litellm | Peer::Portkey)
    }

    /// What installs it.
    pub fn installer(self) -> &'static str {
        match self {
            Peer::Litellm | Peer::Portkey => "make bench-gateways",
            Peer::Other => "TOKENGAUGE_OTHER=PROGRAM",
            _ => "make bench-tools",
        }
    }

    /// Whether it is there to be started.
    pub fn is_installed(self) -> bool {
        let folders = || {
            std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>()
        };
        match self {
            Peer::Direct | Peer::Tokengauge => true,
            Peer::Other => std::env::var_os(OTHER).is_some(),
            Peer::Litellm => gateways::litellm_program().exists(),
            Peer::Portkey => gateways::portkey_program().exists(),
            // Debian puts both where only root's PATH looks.
            Peer::Nginx | Peer::Haproxy => folders()
                .iter()
                .map(|folder| folder.as_path())
                .chain([Path::new("/usr/sbin")])
                .any(|folder| folder.join(self.to_string()).exists()),
        }
    }

    /// Starts it in front of the backends, with a core to itself. The gateways know but one
    /// backend.
    pub fn start(self, backends: Backends, cores: Cores) -> anyhow::Result<RunningPeer> {
        let Backends { backend, greedy } = backends;
        let folder = tempfile::tempdir()?;
        let (address, admin) = (free_address()?, free_address()?);
        let command = match self {
            Peer::Direct => {
                return Ok(RunningPeer {
                    address: backend,
                    greedy,
                    headers: String::new(),
                    processes: None,
                    admin: None,
                    _folder: folder,
                });
            }
            Peer::Nginx => nginx(folder.path(), address, backends)?,
            Peer::Haproxy => haproxy(folder.path(), address, backends)?,
            Peer::Tokengauge => {
                let program = env!("CARGO_BIN_EXE_tokengauge").into();
                tokengauge(program, folder.path(), [address, admin], backends)?
            }
            Peer::Other => {
                let program = std::env::var_os(OTHER).context(OTHER)?;
                tokengauge(program, folder.path(), [address, admin], backends)?
            }
            Peer::Litellm => gateways::litellm(folder.path(), address, backend)?,
            Peer::Portkey => gateways::portkey(address),
        };
        let headers = match self {
            Peer::Portkey => gateways::portkey_headers(backend),
            _ => String::new(),
        };
        let mut processes = Processes::start(command, cores.peer, cores.load)?;
        wait_for(address, &mut processes).with_context(|| format!("{self} did not start"))?;
        let admin = matches!(self, Peer::Tokengauge | Peer::Other).then_some(admin);
        Ok(RunningPeer {
            address,
            greedy: address,
            headers,
            processes: Some(processes),
            admin,
            _folder: folder,
        })
    }
}

impl RunningPeer {
    /// A connection to it.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(self.address, &self.headers).await
    }

    /// Where greedy agents connect.
    pub fn greedy(&self) -> SocketAddr {
        self.greedy
    }

    /// Kilobytes it holds; 0 for `direct`.
    pub fn resident_kb(&self) -> anyhow::Result<f64> {
        let processes = self.processes.as_ref();
        processes.map_or(Ok(0.0), Processes::resident_kb)
    }

    /// Nanoseconds of processor its threads used; 0 for `direct`.
    pub fn cpu_nanoseconds(&self) -> anyhow::Result<u64> {
        let processes = self.processes.as_ref();
        processes.map_or(Ok(0), Processes::cpu_nanoseconds)
    }

    /// The sum of a metric of tokengauge; none for the others.
    pub async fn metric(&self, name: &str) -> anyhow::Result<Option<f64>> {
        let Some(admin) = self.admin else {
            return Ok(None);
        };
        let scrape = Connection::open(admin, "").await?.get("/metrics").await?;
        let samples = scrape.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with([' ', '{']))
        });
        let values = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(Some(values.sum()))
    }
}

fn nginx(folder: &Path, address: SocketAddr, backends: Backends) -> anyhow::Result<Command> {
    let Backends { backend, greedy } = backends;
    let user = if rustix::process::geteuid().is_root() {
        "user root;"
    } else {
        ""
    };
    let path = folder.display();
    let text = format!(
        "daemon off; {user} worker_processes 1; pid {path}/pid; error_log {path}/error.log;
        events {{ worker_connections 16384; }}
        http {{
          access_log off; tcp_nodelay on; keepalive_requests 1000000;
          client_max_body_size 0; proxy_request_buffering off;
          client_body_temp_path {path}/a; proxy_temp_path {path}/b; fastcgi_temp_path {path}/c;
          uwsgi_temp_path {path}/d; scgi_temp_path {path}/e;
          proxy_http_version 1.1; proxy_set_header Connection \"\";
          proxy_buffering off; proxy_read_timeout 600s;
          upstream backend {{ server {backend}; keepalive 4096; keepalive_requests 1000000; }}
          upstream greedy {{ server {greedy}; keepalive 4096; keepalive_requests 1000000; }}
          server {{
            listen {address} backlog=4096;
            location / {{ proxy_pass http://backend; }}
            location {GREEDY}/ {{ proxy_pass http://greedy; }}
          }}
        }}"
    );
    let config = folder.join("nginx.conf");
    std::fs::write(&config, text)?;
    let mut command = Command::new("nginx");
    command
        .arg("-c")
        .arg(config)
        .arg("-p")
        .arg(folder)
        .stderr(Stdio::null());
    Ok(with_sbin(command))
}

fn haproxy(folder: &Path, address: SocketAddr, backends: Backends) -> anyhow::Result<Command> {
    let Backends { backend, greedy } = backends;
    let text = format!(
        "global
  nbthread 1
  maxconn 8192
defaults
  mode http
  option http-no-delay
  http-reuse always
  timeout connect 10s
  timeout client 600s
  timeout server 600s
frontend agents
  bind {address} backlog 4096
  use_backend greedy if {{ path_beg {GREEDY}/ }}
  default_backend backend
backend backend
  server one {backend} pool-max-conn -1
backend greedy
  server one {greedy} pool-max-conn -1
"
    );
    let config = folder.join("haproxy.cfg");
    std::fs::write(&config, text)?;
    let mut command = Command::new("haproxy");
    command
        .arg("-db")
        .arg("-q")
        .arg("-f")
        .arg(config)
        .stderr(Stdio::null());
    Ok(with_sbin(command))
}

fn tokengauge(
    program: OsString,
    folder: &Path,
    [address, admin]: [SocketAddr; 2],
    backends: Backends,
) -> anyhow::Result<Command> {
    let Backends { backend, greedy } = backends;
    let text = format!(
        "listen = \"{address}\"
admin.listen = \"{admin}\"
[[upstream]]
name = \"greedy\"
url = \"http://{greedy}\"
[[upstream]]
name = \"backend\"
url = \"http://{backend}\"
[[route]]
path = \"{GREEDY}\"
strip = true
upstream = \"greedy\"
[[route]]
upstream = \"backend\"
"
    );
    let config = folder.join("proxy-config.toml");
    std::fs::write(&config, text)?;
    let mut command = Command::new(program);
    command
        .args(["run", "--config"])
        .arg(config)
        .env("TOKIO_WORKER_THREADS", "1")
        .stderr(Stdio::null());
    Ok(command)
}

fn with_sbin(mut command: Command) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin"));
    command
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn wait_for(address: SocketAddr, processes: &mut Processes) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(address).is_err() {
        if processes.ended() {
            bail!("it ended at once");
        }
        if Instant::now() > deadline {
            bail!("it takes no connections at {address}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
