//! A running proxy between an agent and an upstream, all on one thread.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_config::{Config, Limits, Listener};
use tokengauge_meter::Meter;
use tokengauge_proxy::{BoundListener, Forwarder, Shutdown, serve};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// Anything that takes longer hangs.
pub const TIMEOUT: Duration = Duration::from_secs(10);

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
    forwarder: Arc<Forwarder>,
    max_idle: usize,
    changes: Cell<u64>,
}

impl Between {
    pub fn start(max_idle: usize) -> Between {
        let runtime = runtime();
        let _entered = runtime.enter();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let upstream = runtime.block_on(TcpListener::bind(any)).expect("bound");
        let upstream_address = upstream.local_addr().expect("an address");
        let config = config(upstream_address, max_idle, 0);
        let meter = Meter::new(config.measure.clone(), Vec::new());
        let forwarder = Arc::new(Forwarder::new(config.forwarding(), meter).expect("usable"));
        let serving = Arc::clone(&forwarder);
        let listener = Listener {
            address: any,
            tls: None,
        };
        let bound = BoundListener::bind(&listener).expect("bound");
        let proxy = bound.address();
        runtime.spawn(async move {
            let (limits, shutdown) = (Limits::default(), Shutdown::new());
            serve(vec![bound], serving, &limits, shutdown, TIMEOUT).await
        });
        Between {
            runtime,
            proxy,
            upstream,
            upstream_address,
            forwarder,
            max_idle,
            changes: Cell::new(0),
        }
    }

    pub fn forget_upstream(&self) {
        let _entered = self.runtime.enter();
        self.changes.set(self.changes.get() + 1);
        let config = config(self.upstream_address, self.max_idle, self.changes.get());
        let routing = self.forwarder.prepare(config.forwarding()).expect("usable");
        self.forwarder.change(routing);
    }
}

/// Connections of a configuration with another number of `changes` serve no requests of this one.
fn config(upstream: SocketAddr, max_idle: usize, changes: u64) -> Config {
    let idle_for = 50_000 + changes % 10_000;
    let text = format!(
        "[[upstream]]\nname = \"u\"\nurl = \"http://{upstream}/base\"\nmax_idle = {max_idle}\n\
         idle_for = \"{idle_for}ms\"\ntimeouts.head = \"5s\"\ntimeouts.idle = \"5s\"\n\
         [[route]]\npath = \"/open\"\nupstream = \"u\"\n"
    );
    Config::parse(&text, "fuzzed").unwrap_or_else(|error| panic!("{error}"))
}
