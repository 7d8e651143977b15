use super::server::Server;
use super::{Acceptor, BindError, BoundListener, DrainSummary, accept, drain};
use crate::settings::{self, Limits};
use crate::{Forwarder, Shutdown, TrafficRuntimes};
use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, MutexGuard};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

pub struct ActiveListeners {
    server: Arc<Server>,
    /// One permit per connection that may be open.
    permits: Arc<Semaphore>,
    set: Mutex<ListenerSet>,
}

struct ListenerSet {
    active: Vec<ActiveListener>,
    max_connections: usize,
    draining: bool,
}

struct ActiveListener {
    address: SocketAddr,
    settings: settings::Listener,
    acceptor: Arc<ArcSwapOption<Acceptor>>,
    task: JoinHandle<()>,
}

/// Prepared listeners and limits. Applying them cannot fail.
pub struct ListenerUpdate {
    active: Vec<ListenerAction>,
    limits: Limits,
}

enum ListenerAction {
    /// The proxy already listens at the address, with the same TLS settings.
    Keep(settings::Listener),
    /// The proxy already listens at the address, with other TLS settings.
    ReplaceTls(settings::Listener, Option<Arc<Acceptor>>),
    Open(BoundListener),
}

impl ActiveListeners {
    pub fn start(
        listeners: Vec<BoundListener>,
        forwarder: Arc<Forwarder>,
        limits: &Limits,
        shutdown: Shutdown,
        runtimes: TrafficRuntimes,
    ) -> ActiveListeners {
        let max_connections = connection_limit(limits);
        let this = ActiveListeners {
            server: Arc::new(Server::new(forwarder, limits, shutdown, runtimes)),
            permits: Arc::new(Semaphore::new(max_connections)),
            set: Mutex::new(ListenerSet {
                active: Vec::new(),
                max_connections,
                draining: false,
            }),
        };
        let active = listeners.into_iter().map(|bound| this.accept(bound));
        let active = active.collect();
        this.set().active = active;
        this
    }

    fn accept(&self, bound: BoundListener) -> ActiveListener {
        ActiveListener {
            address: bound.address,
            settings: bound.settings.clone(),
            acceptor: Arc::clone(&bound.acceptor),
            task: tokio::spawn(accept(
                bound,
                Arc::clone(&self.server),
                Arc::clone(&self.permits),
            )),
        }
    }

    /// Binds the new addresses in `listeners` without accepting yet. Needs a runtime.
    ///
    /// # Errors
    ///
    /// Returns an error if an address cannot be bound or TLS files cannot be used.
    pub fn prepare(
        &self,
        listeners: &[settings::Listener],
        limits: &Limits,
    ) -> Result<ListenerUpdate, BindError> {
        let set = self.set();
        let mut current: Vec<&settings::Listener> = set
            .active
            .iter()
            .map(|listener| &listener.settings)
            .collect();
        let mut active = Vec::new();
        for wanted in listeners {
            let at = current
                .iter()
                .position(|settings| settings.address == wanted.address);
            let known = at.map(|at| current.swap_remove(at));
            active.push(match known {
                Some(known) if known.tls == wanted.tls => ListenerAction::Keep(wanted.clone()),
                Some(_) => {
                    let acceptor = wanted.tls.as_ref().map(Acceptor::new).transpose()?;
                    ListenerAction::ReplaceTls(wanted.clone(), acceptor.map(Arc::new))
                }
                None => ListenerAction::Open(BoundListener::bind(wanted)?),
            });
        }
        Ok(ListenerUpdate {
            active,
            limits: *limits,
        })
    }

    /// Applies a prepared update and returns the added addresses. Open connections stay open, even on removed
    /// addresses.
    pub fn change(&self, update: ListenerUpdate) -> Vec<SocketAddr> {
        let mut set = self.set();
        if set.draining {
            return Vec::new();
        }
        let mut opened = Vec::new();
        let mut before = std::mem::take(&mut set.active);
        let mut keep = |settings: settings::Listener| {
            let same = |listener: &ActiveListener| listener.settings.address == settings.address;
            let mut listener = before.swap_remove(before.iter().position(same)?);
            listener.settings = settings;
            Some(listener)
        };
        for next in update.active {
            set.active.extend(match next {
                ListenerAction::Keep(settings) => keep(settings),
                ListenerAction::ReplaceTls(settings, acceptor) => {
                    keep(settings).inspect(|listener| {
                        listener.acceptor.store(acceptor);
                    })
                }
                ListenerAction::Open(bound) => {
                    opened.push(bound.address);
                    Some(self.accept(bound))
                }
            });
        }
        before.iter().for_each(|listener| listener.task.abort());
        self.server.change(&update.limits);
        let max_connections = connection_limit(&update.limits);
        self.resize_permits(set.max_connections, max_connections);
        set.max_connections = max_connections;
        opened
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.set()
            .active
            .iter()
            .map(|listener| listener.address)
            .collect()
    }

    /// Changes the connection limit. If more connections are open than the new limit allows, none is accepted until
    /// enough have closed.
    fn resize_permits(&self, before: usize, max_connections: usize) {
        if max_connections >= before {
            return self.permits.add_permits(max_connections - before);
        }
        let less = before - max_connections;
        let taken = less - self.permits.forget_permits(less);
        let Ok(taken @ 1..) = u32::try_from(taken) else {
            return;
        };
        let permits = Arc::clone(&self.permits);
        tokio::spawn(async move {
            if let Ok(taken) = permits.acquire_many_owned(taken).await {
                taken.forget();
            }
        });
    }

    /// Waits until draining starts, then until open connections have closed, the drain timeout has passed or
    /// [`Shutdown::now`] is called. `drain_timeout` is called when draining starts.
    pub async fn drained(&self, drain_timeout: impl FnOnce() -> Duration) -> DrainSummary {
        self.server.shutdown.drain_started().await;
        let active = {
            let mut set = self.set();
            set.draining = true;
            std::mem::take(&mut set.active)
        };
        for listener in active {
            listener.task.abort();
            let _ = listener.task.await;
        }
        drain(&self.server.shutdown, drain_timeout()).await
    }

    fn set(&self) -> MutexGuard<'_, ListenerSet> {
        self.set.lock()
    }
}

fn connection_limit(limits: &Limits) -> usize {
    limits.connections.min(Semaphore::MAX_PERMITS)
}
