//! What runs beside the traffic, on a thread of its own: the admin address, and the
//! readers of upstreams' own metrics.

use crate::Error;
use crate::admin::{self, Admin, Beside, Door, Feed};
use crate::config::Config;
use crate::engine::Watcher;
use crate::export::prometheus::Prometheus;
use crate::export::registry::Registry;
use crate::export::{names, runtime};
use crate::meter::Meter;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

/// The admin address, bound, and all that is beside the traffic.
pub(super) struct Operators {
    beside: Beside,
    listener: Option<TcpListener>,
    door: Door,
    watchers: Vec<Watcher>,
}

impl Operators {
    /// Binds the address and reads every file, so that what cannot work fails now.
    pub(super) fn bind(
        config: &Config,
        prometheus: &Arc<Prometheus>,
        meter: &Arc<Meter>,
    ) -> Result<Operators, Error> {
        let beside = Beside::start()
            .map_err(|error| Error::Failed(format!("cannot start a thread: {error}")))?;
        prometheus.before_scrape(runtime::figures("admin", beside.handle().clone()));
        let watchers = config.scrapes.iter().map(|scrape| {
            Watcher::new(scrape, prometheus, meter).map_err(|error| {
                Error::Configuration(format!("upstream {}: {error}", scrape.upstream))
            })
        });
        Ok(Operators {
            watchers: watchers.collect::<Result<_, _>>()?,
            door: Door::new(&config.admin, Instant::now()).map_err(Error::Configuration)?,
            listener: config.admin.address.map(listen).transpose()?,
            beside,
        })
    }

    /// Where operators connect.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Starts everything; it goes on while streams end, until what is given is dropped.
    pub(super) fn start(self, admin: Admin) -> Beside {
        let handle = self.beside.handle();
        for watcher in self.watchers {
            handle.spawn(watcher.run());
        }
        if let Some(listener) = self.listener {
            handle.spawn(serve(listener, admin, self.door));
        }
        self.beside
    }
}

/// Brings the series of listeners up to date.
pub(super) fn refresh(registry: &Registry, feed: &Feed) {
    let listening = feed.listening();
    let gauge = registry.gauge(&names::EVENT_LISTENERS, &[]);
    gauge.set(listening.listeners as f64);
    let count = |metric, count| registry.counter(metric, &[]).absolute(count);
    count(&names::EVENTS_LOST, listening.lost);
    count(&names::EVENT_LISTENERS_REFUSED, listening.refused);
}

async fn serve(listener: TcpListener, admin: Admin, door: Door) {
    match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => admin::serve(listener, admin, door, std::future::pending()).await,
        Err(error) => tracing::error!(%error, "there is no admin address; traffic goes on"),
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    let bound = TcpListener::bind(address);
    let ready = bound.and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    ready.map_err(|error| {
        Error::Failed(format!(
            "cannot listen on the admin address {address}: {error}; name another with --admin"
        ))
    })
}
