//! The configuration that needs no file: one upstream for every path.

use super::scalar::parse_url;
use super::*;

impl Config {
    /// Everything that arrives at `listen` goes to `upstream`; the reason says what is
    /// wrong with `upstream` where it is no URL.
    pub fn sidecar(
        upstream: &str,
        listen: SocketAddr,
        admin: SocketAddr,
    ) -> Result<Config, String> {
        let endpoint =
            parse_url(upstream).map_err(|reason| format!("--upstream `{upstream}` {reason}"))?;
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
            scrapes: Vec::new(),
            limits: Limits::default(),
            measure: Measure::default(),
            otlp: Otlp::default(),
            drain_timeout: DEFAULT_DRAIN,
            slos: Vec::new(),
            receivers: Vec::new(),
            budgets: Vec::new(),
            prices: PriceList::default(),
            quotas: Vec::new(),
            state_dir: None,
            ledger: None,
            refusal: None,
            origin: "--upstream".to_owned(),
            digest: resolve::digest(""),
        })
    }
}
