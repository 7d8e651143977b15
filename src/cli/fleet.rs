//! The options of `fleet`.

use super::*;
use tokengauge_fleet::PodAddress;
use tokengauge_sink::WarehouseUrl;

/// Options of `fleet`.
#[derive(Debug, Clone, Args)]
pub struct FleetArgs {
    /// ClickHouse table that the sinks of the pods write to: clickhouse://USER@HOST:8123/DATABASE?table=TABLE. The
    /// password is read from $CLICKHOUSE_PASSWORD
    #[arg(id = "store", long = "store", value_name = "URL")]
    pub warehouse: WarehouseUrl,
    /// Comma-separated admin addresses of the pods, HOST:PORT or https://HOST:PORT. If a name resolves to several
    /// addresses, such as a headless Service, all of them are used
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub pods: Vec<PodAddress>,
    /// File with the token of the pods' admin addresses
    #[arg(long, value_name = "FILE", requires = "pods")]
    pub pods_token_file: Option<PathBuf>,
    /// PEM file with the root certificates for the pods [default: those that the system trusts]
    #[arg(long, value_name = "FILE", requires = "pods")]
    pub pods_ca: Option<PathBuf>,
    /// Read objectives from the recording rules in this Prometheus [default: read the objectives of each pod]
    #[arg(long, value_name = "URL")]
    pub prometheus: Option<String>,
    #[command(flatten)]
    pub credentials: PrometheusCredentials,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Admin address of the fleet for operators; overrides the configuration. Port 0 picks a free port
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    pub listen: Option<SocketAddr>,
    /// File with the token for the fleet's admin address; overrides the configuration
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Without effect since 0.3: questions are answered by the warehouse itself.
    #[arg(long, hide = true)]
    pub since: Option<String>,
    /// Without effect since 0.3: no calls are copied.
    #[arg(long, hide = true)]
    pub state_dir: Option<PathBuf>,
}
