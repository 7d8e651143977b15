//! The configuration of each proxy, as its authors advise for streams, without logging.

use crate::peer::{Backends, NOISY_PATH};
use crate::scenario::{AgentProtocol, BackendProtocol, Setup};
use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Retention of tokengauge's ledger, long enough for everything that a benchmark writes.
pub const KEPT_DAYS: u64 = 3_650;
pub const KEPT_GB: u64 = 200;

/// File name of tokengauge's standard error.
pub const STDERR: &str = "stderr";

/// An experiment and a gate, for a configuration whose route is named `all`.
const COMPARISONS: &str = r#"
[[experiment]]
name = "twins"
route = "all"
arms = [{ name = "old", upstream = "backend" }, { name = "new", upstream = "twin" }]
ttft_above = "500ms"
tps_below = 20
[[gate]]
name = "twin"
candidate = { upstream = "twin" }
baseline = { upstream = "backend" }
"#;

/// Features of tokengauge in addition to measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum With {
    Nothing,
    /// An experiment and a gate, with a copy of the backend's upstream.
    Comparisons,
    Ledger,
    /// The ledger and a sink, whose requests the backend answers with 200.
    Sink,
}

pub struct Site<'a> {
    pub folder: &'a Path,
    pub address: SocketAddr,
    pub admin: SocketAddr,
    pub backends: &'a Backends,
    pub setup: &'a Setup,
}

impl Site<'_> {
    pub fn backend(&self) -> SocketAddr {
        self.backends.of(self.setup.backend)
    }

    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<std::path::PathBuf> {
        let path = self.folder.join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// nginx with one keep-alive pool per backend and without buffering.
    pub fn nginx(&self) -> anyhow::Result<Command> {
        let Site { address, .. } = self;
        let (backend, noisy) = (self.backend(), self.backends.noisy);
        let user = if rustix::process::geteuid().is_root() {
            "user root;"
        } else {
            ""
        };
        let (path, workers) = (self.folder.display(), self.setup.workers);
        let connections = self.setup.connections;
        let http2 = match self.setup.agents {
            AgentProtocol::Http1 => "",
            AgentProtocol::Http2 => " http2",
        };
        let (scheme, tls) = match self.setup.backend {
            BackendProtocol::Tls => ("https", "proxy_ssl_verify off; proxy_ssl_session_reuse on;"),
            _ => ("http", ""),
        };
        let text = format!(
            "daemon off; {user} worker_processes {workers}; pid {path}/pid; error_log {path}/error.log;
            events {{ worker_connections {connections}; }}
            http {{
              access_log off; tcp_nodelay on; keepalive_requests 100000000;
              client_max_body_size 0; proxy_request_buffering off;
              client_body_temp_path {path}/a; proxy_temp_path {path}/b; fastcgi_temp_path {path}/c;
              uwsgi_temp_path {path}/d; scgi_temp_path {path}/e;
              proxy_http_version 1.1; proxy_set_header Connection \"\"; {tls}
              proxy_buffering off; proxy_read_timeout 600s;
              upstream backend {{ server {backend}; keepalive 4096; keepalive_requests 100000000; }}
              upstream noisy {{ server {noisy}; keepalive 4096; keepalive_requests 100000000; }}
              server {{
                listen {address} backlog=4096{http2};
                location / {{ proxy_pass {scheme}://backend; }}
                location {NOISY_PATH}/ {{ proxy_pass http://noisy; }}
              }}
            }}"
        );
        let config = self.write("nginx.conf", &text)?;
        let mut command = with_sbin("nginx");
        command.arg("-c").arg(config).arg("-p").arg(self.folder);
        Ok(command)
    }

    pub fn haproxy(&self) -> anyhow::Result<Command> {
        let Site { address, .. } = self;
        let (backend, noisy) = (self.backend(), self.backends.noisy);
        let (workers, maximum) = (self.setup.workers, self.setup.connections / 2);
        let http2 = match self.setup.agents {
            AgentProtocol::Http1 => "",
            AgentProtocol::Http2 => " proto h2",
        };
        let protocol = match self.setup.backend {
            BackendProtocol::Http1 => "",
            BackendProtocol::Tls => " ssl verify none",
            BackendProtocol::Http2 => " proto h2",
        };
        let text = format!(
            "global
  nbthread {workers}
  maxconn {maximum}
defaults
  mode http
  option http-no-delay
  http-reuse always
  timeout connect 10s
  timeout client 600s
  timeout server 600s
frontend agents
  bind {address} backlog 4096{http2}
  use_backend noisy if {{ path_beg {NOISY_PATH}/ }}
  default_backend backend
backend backend
  server one {backend}{protocol} pool-max-conn -1
backend noisy
  server one {noisy} pool-max-conn -1
"
        );
        let config = self.write("haproxy.cfg", &text)?;
        let mut command = with_sbin("haproxy");
        command.args(["-db", "-q", "-f"]).arg(config);
        Ok(command)
    }

    /// tokengauge with its defaults, which measure every call and count every token.
    pub fn tokengauge(&self, program: OsString, with: With) -> anyhow::Result<Command> {
        let Site { address, admin, .. } = self;
        let (backend, noisy) = (self.backend(), self.backends.noisy);
        let (scheme, protocol) = match self.setup.backend {
            BackendProtocol::Http1 => ("http", String::new()),
            BackendProtocol::Tls => (
                "https",
                format!(
                    "tls.ca = {:?}\nprotocol = \"http1\"\n",
                    self.backends.authority
                ),
            ),
            BackendProtocol::Http2 => ("http", "protocol = \"http2\"\n".to_owned()),
        };
        let models = self.setup.max_models;
        let models = models.map(|number| format!("measure.max_models = {number}\n"));
        let models = models.unwrap_or_default();
        let own = self.folder.join("ledger.sqlite");
        let ledger = self.setup.ledger.as_ref();
        let ledger = ledger.or(matches!(with, With::Ledger | With::Sink).then_some(&own));
        // Retention must not delete anything.
        let keep = format!(
            "ledger.retention_age = \"{KEPT_DAYS}days\"\nledger.retention_bytes = \"{KEPT_GB}GB\"\n"
        );
        let ledger = ledger.map(|path| format!("ledger.path = {path:?}\n{keep}"));
        let ledger = ledger.unwrap_or_default();
        let more = match with {
            With::Nothing | With::Ledger => String::new(),
            With::Comparisons => format!(
                "{COMPARISONS}[[upstream]]\nname = \"twin\"\nurl = \"{scheme}://{backend}\"\n{protocol}"
            ),
            With::Sink => format!(
                "[[sink]]\nkind = \"clickhouse\"\nurl = \"http://{}\"\n",
                self.backends.http1
            ),
        };
        let text = format!(
            "listen = \"{address}\"
admin.listen = \"{admin}\"
{models}{ledger}[[upstream]]
name = \"noisy\"
url = \"http://{noisy}\"
[[upstream]]
name = \"backend\"
url = \"{scheme}://{backend}\"
{protocol}[[route]]
path = \"{NOISY_PATH}\"
strip = true
upstream = \"noisy\"
[[route]]
name = \"all\"
upstream = \"backend\"
{more}"
        );
        let config = self.write("proxy-config.toml", &text)?;
        let mut command = Command::new(program);
        command
            .args(["run", "--config"])
            .arg(config)
            .env("TOKIO_WORKER_THREADS", self.setup.workers.to_string())
            // The other proxies do not log requests either.
            .env("TOKENGAUGE_LOG", "warn")
            .stderr(File::create(self.folder.join(STDERR))?);
        Ok(command)
    }
}

fn with_sbin(program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    command
        .env("PATH", format!("{path}:/usr/sbin"))
        .stderr(Stdio::null());
    command
}
