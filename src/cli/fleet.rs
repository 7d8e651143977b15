//! The options of `fleet`.

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
    /// How far back its calls are read at the start
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = since)]
    pub since: std::time::Duration,
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
    #[command(flatten)]
    pub credentials: PrometheusCredentials,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Where operators connect, in place of the configuration's admin address; port 0 picks one
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    pub listen: Option<SocketAddr>,
    /// A file with the token that this address wants, in place of the configuration's
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Keep the calls in this folder [default: in a temporary one, and read them again after a restart]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// Parses a duration from one minute to 400 days.
fn since(text: &str) -> Result<std::time::Duration, Box<dyn std::error::Error + Send + Sync>> {
    let given = humantime::parse_duration(text).ok();
    let given = given.filter(|given| (60..=400 * 86_400).contains(&given.as_secs()));
    given.ok_or_else(|| "is a time from 1m to 400d, such as 7d".into())
}
