//! A running proxy between an agent and an upstream, all on one thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokengauge::config::{Config, Limits, Listener};
use tokengauge::meter::Meter;
use tokengauge::proxy::{Bound, Forwarder, Shutdown, serve};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// Nothing takes longer unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// One route from `/open` to `/base` of an upstream.
pub struct Between {
    pub runtime: Runtime,
    pub proxy: SocketAddr,
    pub upstream: TcpListener,
    pub upstream_address: SocketAddr,
}

impl Between {
    /// `max_idle` is how many connections to the upstream are kept.
    pub fn start(max_idle: usize) -> Between {
        let runtime = runtime();
        let _entered = runtime.enter();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let upstream = runtime.block_on(TcpListener::bind(any)).expect("bound");
        let upstream_address = upstream.local_addr().expect("an address");
        let text = format!(
            "[[upstream]]\nname = \"u\"\nurl = \"http://{upstream_address}/base\"\nmax_idle = {max_idle}\ntimeouts.head = \"5s\"\n\
             timeouts.idle = \"5s\"\n[[route]]\npath = \"/open\"\nupstream = \"u\"\n"
        );
        let config = Config::parse(&text, "fuzzed").unwrap_or_else(|error| panic!("{error}"));
        let meter = Meter::new(config.measure.clone(), Vec::new());
        let forwarder = Forwarder::new(Arc::new(config), meter).expect("usable");
        let listener = Listener {
            address: any,
            tls: None,
        };
        let bound = Bound::bind(&listener).expect("bound");
        let proxy = bound.address();
        runtime.spawn(async move {
            let (limits, shutdown) = (Limits::default(), Shutdown::new());
            serve(
                vec![bound],
                Arc::new(forwarder),
                &limits,
                shutdown,
                PATIENCE,
            )
            .await
        });
        Between {
            runtime,
            proxy,
            upstream,
            upstream_address,
        }
    }
}
