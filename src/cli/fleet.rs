//! The command for many processes as one.

use super::*;
use tokengauge_fleet::PodAddress;
use tokengauge_sink::WarehouseUrl;

/// Options of `fleet`.
#[derive(Debug, Clone, Args)]
pub struct FleetArgs {
    /// The table of ClickHouse that the pods' sinks write to:
    /// clickhouse://USER@HOST:8123/DATABASE?table=TABLE; the password is in $CLICKHOUSE_PASSWORD
    #[arg(id = "store", long = "store", value_name = "URL")]
    pub warehouse: WarehouseUrl,
    /// The pods' admin addresses, with commas between: HOST:PORT, or https://HOST:PORT. Of a name, such as
    /// that of a headless Service, all addresses are used
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub pods: Vec<PodAddress>,
    /// A file with the token of the pods' admin addresses
    #[arg(long, value_name = "FILE", requires = "pods")]
    pub pods_token_file: Option<PathBuf>,
    /// A file with the roots of the pods' certificates [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "pods")]
    pub pods_ca: Option<PathBuf>,
    /// Take objectives from the recording rules of this Prometheus [default: each pod's own]
    #[arg(long, value_name = "URL")]
    pub prometheus: Option<String>,
    /// The credentials for that Prometheus.
    #[command(flatten)]
    pub credentials: PrometheusCredentials,
    /// Prices, objectives, experiments and access to the page: those of the pods
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Where operators connect, in place of the configuration's admin address; port 0 picks one
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    pub listen: Option<SocketAddr>,
    /// A file with the token that this address wants, in place of the configuration's
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Without effect since 0.3: questions are answered by the warehouse itself.
    #[arg(long, hide = true)]
    pub since: Option<String>,
    /// Without effect since 0.3: no calls are copied.
    #[arg(long, hide = true)]
    pub state_dir: Option<PathBuf>,
}
