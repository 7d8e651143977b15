//! The table of the quota store.

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
/// The store is asked four times in a lease.
const MIN_LEASE: Duration = Duration::from_millis(100);

/// A Valkey or Redis server by which several processes share quotas, budgets and who sends alerts ([quotas](quotas.md)).
/// Without it each process counts for itself.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuotaStore {
    /// The server: `redis://[user@]host[:port][/database]`, or `rediss://` with TLS.
    pub(crate) url: Spanned<String>,
    /// A file with the password, read for each connection; that of `TOKENGAUGE_QUOTA_STORE_PASSWORD` by default.
    pub(crate) password_file: Option<PathBuf>,
    /// TLS towards the server.
    #[serde(default)]
    pub(crate) tls: ClientTls,
    /// What names of keys begin with: processes with the same one share.
    #[schemars(extend("default" = DEFAULT_PREFIX))]
    pub(crate) prefix: Option<Spanned<String>>,
    /// How much of a limit a process takes in advance: what there is of it in this time. Each process may let as much
    /// more through. The store is asked four times in it.
    #[schemars(extend(
        "default" = Span(DEFAULT_LEASE),
        "x-minimum" = Span(MIN_LEASE),
        "x-maximum" = Span(MAX_LEASE),
    ))]
    pub(crate) lease: Option<Span>,
    /// How many processes share, for `on_error = "local"`.
    #[schemars(extend("default" = 1, "minimum" = 1))]
    pub(crate) replicas: Option<u32>,
    /// While the store does not answer: `local` is each limit divided by `replicas` in each process, `open` admits all
    /// calls, `closed` refuses those that a quota or a blocking budget is for.
    #[schemars(with = "Option<EnumNames<OnError>>", extend("default" = "local"))]
    pub(crate) on_error: Option<OnError>,
    /// `shadow`: each process enforces its own limits, and metrics count what the shared ones would refuse.
    #[schemars(with = "Option<EnumNames<Mode>>", extend("default" = "enforce"))]
    pub(crate) mode: Option<Mode>,
    /// How long a connection or a request may take.
    #[schemars(extend("default" = Span(QUOTA_STORE_TIMEOUT), "x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(crate) timeout: Option<Span>,
}
