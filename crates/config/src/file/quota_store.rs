use super::super::scalar::Span;
use super::super::schema_types::EnumNames;
use super::super::spanned::Spanned;
use super::ClientTls;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use tokengauge_accounting::sharing::OnError;
use tokengauge_core::caller::Mode;

pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(1);
pub(crate) const DEFAULT_PREFIX: &str = "tokengauge:";
pub(crate) const QUOTA_STORE_TIMEOUT: Duration = Duration::from_millis(500);
const MAX_LEASE: Duration = Duration::from_secs(60);
/// The store is queried four times during a lease.
const MIN_LEASE: Duration = Duration::from_millis(100);

/// A Valkey or Redis server through which several processes share quotas, budgets and the sending of alerts
/// ([quotas](quotas.md)). Without such a server, each process counts only its own calls.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaStore {
    /// The URL of the server: `redis://[user@]host[:port][/database]`, or `rediss://` for TLS.
    pub(crate) url: Spanned<String>,
    /// The path of a file with the password, read for each connection. The default is the environment variable
    /// `TOKENGAUGE_QUOTA_STORE_PASSWORD`.
    pub(crate) password_file: Option<PathBuf>,
    /// TLS for connections to the server.
    #[serde(default)]
    pub(crate) tls: ClientTls,
    /// The prefix of all key names on the server. Processes with the same prefix share their limits.
    #[schemars(extend("default" = DEFAULT_PREFIX))]
    pub(crate) prefix: Option<Spanned<String>>,
    /// Each process reserves the part of a limit that becomes available in this time. Each process may exceed the limit
    /// by one such lease. A process contacts the server four times per lease.
    #[schemars(extend(
        "default" = Span(DEFAULT_LEASE),
        "x-minimum" = Span(MIN_LEASE),
        "x-maximum" = Span(MAX_LEASE),
    ))]
    pub(crate) lease: Option<Span>,
    /// The number of processes that share the limits. `on_error = "local"` divides each limit by this number.
    #[schemars(extend("default" = 1, "minimum" = 1))]
    pub(crate) replicas: Option<u32>,
    /// What happens while the server does not answer. `local` divides each limit by `replicas`, `open` admits all
    /// calls, and `closed` refuses calls under a quota or a blocking budget.
    #[schemars(with = "Option<EnumNames<OnError>>", extend("default" = "local"))]
    pub(crate) on_error: Option<OnError>,
    /// With `shadow`, each process enforces only its own limits, and metrics count what the shared limits would have
    /// refused.
    #[schemars(with = "Option<EnumNames<Mode>>", extend("default" = "enforce"))]
    pub(crate) mode: Option<Mode>,
    /// How long a connection attempt or a request to the server may take.
    #[schemars(extend("default" = Span(QUOTA_STORE_TIMEOUT), "x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(crate) timeout: Option<Span>,
}
