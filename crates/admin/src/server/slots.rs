//! Bounds on open connections, in total and from one source address. Without a free slot, a new connection evicts an idle
//! one. If none is idle, it gets a reserved slot, which serves only the health paths. So health checks are answered
//! regardless of how many connections other clients hold.

use super::activity::Activity;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    connections: usize,
    per_source: usize,
    reserved: usize,
}

impl Bounds {
    /// The bounds of the admin address and of the webhook.
    const ALL: Bounds = Bounds {
        connections: 256,
        per_source: 64,
        reserved: 64,
    };
    /// The bounds of the metrics address. Both addresses together need fewer file descriptors than are reserved from
    /// traffic.
    pub const METRICS: Bounds = Bounds {
        connections: 64,
        per_source: 32,
        reserved: 32,
    };
}

/// The source of a connection: an IPv4 address, or the first 64 bits of an IPv6 address, since a host can choose the other
/// bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source(IpAddr);

impl Source {
    pub fn of(address: IpAddr) -> Source {
        Source(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            v4 => v4,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Closed {
    Evicted,
    /// The peer did not send a request, or did not read the response, in time.
    Timeout,
    /// The connection had a reserved slot and requested something other than health.
    Refused,
}

impl Closed {
    pub const ALL: [Closed; 3] = [Closed::Evicted, Closed::Timeout, Closed::Refused];

    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug)]
pub struct Slots {
    bounds: Bounds,
    /// Open connections by number, which is the order in which they came.
    open: Mutex<BTreeMap<u64, Open>>,
    next: AtomicU64,
    closed: [AtomicU64; Closed::ALL.len()],
}

#[derive(Debug)]
struct Open {
    source: Source,
    reserved: bool,
    activity: Arc<Activity>,
    evicted: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    number: u64,
    pub(super) source: Source,
    pub(super) reserved: bool,
    pub(super) activity: Arc<Activity>,
    evicted: Arc<Notify>,
}

impl Default for Slots {
    fn default() -> Slots {
        Slots::within(Bounds::ALL)
    }
}

impl Slots {
    pub fn within(bounds: Bounds) -> Slots {
        Slots {
            bounds,
            open: Mutex::default(),
            next: AtomicU64::default(),
            closed: Default::default(),
        }
    }

    pub(crate) fn open(&self) -> usize {
        self.state().len()
    }

    #[cfg(test)]
    pub(super) fn busy(&self) -> usize {
        let open = self.state();
        open.values()
            .filter(|open| !open.activity.is_idle())
            .count()
    }

    pub fn closed(&self, reason: Closed) -> u64 {
        self.closed[reason as usize].load(Ordering::Relaxed)
    }

    pub fn count(&self, reason: Closed) {
        self.closed[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Slot {
        let source = Source::of(address);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut open = self.state();
        let reserved = !self.make_room(&mut open, source);
        if reserved && open.values().filter(|open| open.reserved).count() >= self.bounds.reserved {
            let oldest = open.iter().find(|(_, open)| open.reserved);
            let oldest = oldest.map(|(number, _)| *number);
            self.evict(&mut open, oldest);
        }
        let activity = Arc::new(Activity::new(Instant::now()));
        let evicted = Arc::new(Notify::new());
        let one = Open {
            source,
            reserved,
            activity: Arc::clone(&activity),
            evicted: Arc::clone(&evicted),
        };
        open.insert(number, one);
        drop(open);
        Slot {
            slots: Arc::clone(self),
            number,
            source,
            reserved,
            activity,
            evicted,
        }
    }

    /// Evicts an idle connection if there is no slot for `source`. `false` if all connections that could be evicted have
    /// requests in flight.
    fn make_room(&self, open: &mut BTreeMap<u64, Open>, source: Source) -> bool {
        let counted = |of: &dyn Fn(&Open) -> bool| {
            let others = open.values().filter(|open| !open.reserved);
            others.filter(|open| of(open)).count()
        };
        let of_source = |open: &Open| open.source == source;
        let victim = if counted(&of_source) >= self.bounds.per_source {
            idle(open, of_source)
        } else if counted(&|_| true) >= self.bounds.connections {
            idle(open, |_| true)
        } else {
            return true;
        };
        self.evict(open, victim)
    }

    fn evict(&self, open: &mut BTreeMap<u64, Open>, victim: Option<u64>) -> bool {
        let victim = victim.and_then(|number| open.remove(&number));
        if let Some(victim) = &victim {
            victim.evicted.notify_one();
            self.count(Closed::Evicted);
        }
        victim.is_some()
    }

    fn state(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        self.open.lock()
    }
}

/// The connection that has been idle longest. Connections that never sent a request come first.
fn idle(open: &BTreeMap<u64, Open>, of: impl Fn(&Open) -> bool) -> Option<u64> {
    let idle = open
        .iter()
        .filter(|(_, open)| !open.reserved && of(open) && open.activity.is_idle());
    let first = idle.min_by_key(|(number, open)| (open.activity.has_begun(), **number));
    first.map(|(number, _)| *number)
}

impl Slot {
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    pub fn count(&self, reason: Closed) {
        self.slots.count(reason);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.state().remove(&self.number);
    }
}
