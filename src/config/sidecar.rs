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
        let upstream = Arc::new(Upstream {
            name: endpoint.authority.as_str().into(),
            endpoints: vec![endpoint],
            protocol: Protocol::Auto,
            tls: ClientTls::default(),
            timeouts: Timeouts::default(),
            max_idle: DEFAULT_MAX_IDLE,
            idle_for: DEFAULT_IDLE_FOR,
            eject_for: DEFAULT_EJECT_FOR,
            max_connections: None,
            max_pending: DEFAULT_MAX_PENDING,
        });
        let route = Route {
            name: "all".into(),
            matches: Matches::default(),
            strip_prefix: false,
            upstream,
            dialect: None,
            workload: None,
            inject_usage: false,
            add_via: false,
            add_forwarded: false,
            upgrades: default_upgrades(),
        };
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
            state_dir: None,
            ledger: None,
            refusal: None,
            origin: "--upstream".to_owned(),
            digest: resolve::digest(""),
        })
    }
}
