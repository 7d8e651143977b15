//! The configuration of `--upstream`: one upstream for every path, without a file.

use super::scalar::{UrlError, parse_url};
use super::*;

/// The value of `--upstream` is not the URL of an upstream.
#[derive(Debug, thiserror::Error)]
#[error("--upstream `{upstream}` {source}")]
pub struct InvalidUpstream {
    pub upstream: String,
    pub source: UrlError,
}

impl Config {
    /// A configuration that forwards every call from `listen` to `upstream`.
    ///
    /// # Errors
    /// Returns an error if `upstream` is not a URL.
    pub fn sidecar(
        upstream: &str,
        listen: SocketAddr,
        admin: SocketAddr,
    ) -> Result<Config, InvalidUpstream> {
        let endpoint = parse_url(upstream).map_err(|source| InvalidUpstream {
            upstream: upstream.to_owned(),
            source,
        })?;
        let name = endpoint.authority.as_str().to_owned();
        let upstream = Arc::new(Upstream::new(&name, vec![endpoint]));
        let route = Route::new("all", upstream);
        Ok(Config {
            listeners: vec![Listener {
                address: listen,
                tls: None,
            }],
            admin: Admin {
                address: Some(admin),
                ..Admin::default()
            },
            routes: vec![Arc::new(route)],
            experiments: Vec::new(),
            scrapes: Vec::new(),
            limits: Limits::default(),
            measure: Measure::default(),
            block_key: None,
            otlp: Otlp::default(),
            drain_timeout: DEFAULT_DRAIN,
            slos: Vec::new(),
            receivers: Vec::new(),
            budgets: Vec::new(),
            prices: PriceList::default(),
            quotas: Vec::new(),
            quota_store: None,
            runaway: tokengauge_sessions::RunawayLimits::default(),
            drifts: Vec::new(),
            gates: Vec::new(),
            state_dir: None,
            ledger: None,
            sinks: Vec::new(),
            refusal: None,
            warnings: Vec::new(),
            origin: "--upstream".to_owned(),
            digest: resolve::digest(""),
            redacted: Arc::default(),
        })
    }
}
