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
    /// Age of the oldest calls that are read from the table at the start
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = since)]
    pub since: std::time::Duration,
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
    /// Admin address for operators, overrides the configuration; port 0 picks a free port
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    pub listen: Option<SocketAddr>,
    /// File with the token of this admin address, overrides the configuration
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Keep the calls in this folder [default: a temporary folder, filled again after a restart]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// Parses a duration from one minute to 400 days.
fn since(text: &str) -> Result<std::time::Duration, Box<dyn std::error::Error + Send + Sync>> {
    let given = humantime::parse_duration(text).ok();
    let given = given.filter(|given| (60..=400 * 86_400).contains(&given.as_secs()));
    given.ok_or_else(|| "must be a duration from 1m to 400d, such as 7d".into())
}
