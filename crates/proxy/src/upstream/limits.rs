//! Limits on an upstream's open connections, and on requests that wait for a connection.

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The file descriptors that all upstreams of the process share.
///
/// Half of them are reserved in equal shares, one per upstream, so that no upstream can take all. The other half is
/// first come, first served.
#[derive(Debug)]
pub(crate) struct DescriptorBudget {
    shares: Mutex<DescriptorShares>,
    /// Waiting requests of all upstreams.
    pending: AtomicUsize,
}

#[derive(Debug)]
struct DescriptorShares {
    total: usize,
    members: Vec<Weak<Connections>>,
}

impl DescriptorBudget {
    pub fn unlimited() -> Arc<DescriptorBudget> {
        Arc::new(DescriptorBudget {
            shares: Mutex::new(DescriptorShares {
                total: usize::MAX,
                members: Vec::new(),
            }),
            pending: AtomicUsize::new(0),
        })
    }

    pub fn limit(&self, total: usize) {
        self.shares().total = total;
    }

    fn shares(&self) -> MutexGuard<'_, DescriptorShares> {
        self.shares.lock()
    }
}

impl DescriptorShares {
    fn share(&mut self) -> usize {
        self.members.retain(|member| member.strong_count() > 0);
        self.total / (2 * self.members.len().max(1))
    }

    fn allows(&mut self, requester: &Connections) -> bool {
        if self.total == usize::MAX {
            return true;
        }
        let share = self.share();
        let (mut open, mut reserved) = (0, 0);
        for member in self.members.iter().filter_map(Weak::upgrade) {
            let member_open = member.open();
            open += member_open;
            if !std::ptr::eq(&*member, requester) {
                reserved += share.saturating_sub(member_open);
            }
        }
        open + reserved < self.total
    }
}

#[derive(Debug)]
pub(crate) struct Connections {
    descriptors: Arc<DescriptorBudget>,
    open: AtomicUsize,
    pending: AtomicUsize,
    /// The pending requests that can also use a stream of a shared connection.
    pending_for_any: AtomicUsize,
    refused: AtomicU64,
    resent: AtomicU64,
    /// Wakes the longest waiting request that can use a stream.
    any_freed: Notify,
    /// Wakes the longest waiting request that needs an exclusive connection.
    connection_freed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    Any,
    /// An exclusive connection, for example for an upgrade.
    Connection,
}

impl Connections {
    pub fn new(descriptors: &Arc<DescriptorBudget>) -> Arc<Connections> {
        let connections = Arc::new(Connections {
            descriptors: Arc::clone(descriptors),
            open: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            pending_for_any: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            resent: AtomicU64::new(0),
            any_freed: Notify::new(),
            connection_freed: Notify::new(),
        });
        let member = Arc::downgrade(&connections);
        descriptors.shares().members.push(member);
        connections
    }

    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    pub fn pending_for_any(&self) -> usize {
        self.pending_for_any.load(Ordering::Relaxed)
    }

    pub fn resent(&self) -> u64 {
        self.resent.load(Ordering::Relaxed)
    }

    pub fn count_resent(&self) {
        self.resent.fetch_add(1, Ordering::Relaxed);
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub fn is_full(&self, max: Option<usize>) -> bool {
        max.is_some_and(|max| self.open() >= max) || !self.descriptors.shares().allows(self)
    }

    /// Whether fewer than half of `max` connections are open, and fewer than are reserved for this upstream. An
    /// optional connection then takes none from other upstreams.
    pub fn has_room_to_spare(&self, max: Option<usize>) -> bool {
        let open = self.open();
        max.is_none_or(|max| open < max / 2) && open < self.descriptors.shares().share()
    }

    /// Counts one more connection as open, if fewer than `max` are open and a descriptor is available.
    pub fn try_open(self: &Arc<Self>, max: Option<usize>) -> Option<OpenConnection> {
        let mut shares = self.descriptors.shares();
        if max.is_some_and(|max| self.open() >= max) || !shares.allows(self) {
            return None;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        Some(OpenConnection(Arc::clone(self)))
    }

    /// Counts a request as waiting, if fewer than `max` are waiting.
    pub fn enqueue(self: &Arc<Self>, max: usize, wait_for: WaitFor) -> Option<PendingRequest> {
        let increment = |pending| (pending < max).then_some(pending + 1);
        let order = Ordering::Relaxed;
        let others = self.pending.fetch_update(order, order, increment).ok()?;
        self.descriptors.pending.fetch_add(1, order);
        let others = match wait_for {
            WaitFor::Any => self.pending_for_any.fetch_add(1, order),
            WaitFor::Connection => others.saturating_sub(self.pending_for_any()),
        };
        Some(PendingRequest {
            connections: Arc::clone(self),
            wait_for,
            is_first: others == 0,
        })
    }

    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub fn freed(&self, wait_for: WaitFor) -> Notified<'_> {
        match wait_for {
            WaitFor::Any => self.any_freed.notified(),
            WaitFor::Connection => self.connection_freed.notified(),
        }
    }

    /// Wakes a waiting request, because a connection is free or another one may be opened.
    pub fn connection_released(&self) {
        self.stream_released();
        if self.pending() > self.pending_for_any() {
            self.connection_freed.notify_one();
        }
    }

    pub fn stream_released(&self) {
        if self.pending_for_any() > 0 {
            self.any_freed.notify_one();
        }
    }

    /// Wakes waiting requests of other upstreams, because a descriptor is free.
    fn closed(&self) {
        if self.pending() > 0 {
            return self.connection_released();
        }
        if self.descriptors.pending.load(Ordering::Relaxed) > 0 {
            let members = self.descriptors.shares().members.clone();
            let members = members.iter().filter_map(Weak::upgrade);
            members.for_each(|member| member.connection_released());
        }
    }
}

#[derive(Debug)]
pub(crate) struct OpenConnection(Arc<Connections>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.closed();
    }
}

#[derive(Debug)]
pub(crate) struct PendingRequest {
    connections: Arc<Connections>,
    wait_for: WaitFor,
    is_first: bool,
}

impl PendingRequest {
    pub fn is_first(&self) -> bool {
        self.is_first
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.connections.pending.fetch_sub(1, Ordering::Relaxed);
        if self.wait_for == WaitFor::Any {
            let any = &self.connections.pending_for_any;
            any.fetch_sub(1, Ordering::Relaxed);
        }
        let all = &self.connections.descriptors.pending;
        all.fetch_sub(1, Ordering::Relaxed);
        self.connections.connection_released();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(connections: &Arc<Connections>, count: usize) -> Vec<OpenConnection> {
        let taken: Vec<_> = std::iter::from_fn(|| connections.try_open(None))
            .take(count)
            .collect();
        taken
    }

    #[test]
    fn one_upstream_gets_all_descriptors_and_none_of_several_does() {
        let descriptors = DescriptorBudget::unlimited();
        descriptors.limit(100);
        let greedy = Connections::new(&descriptors);
        assert_eq!(take(&greedy, 1_000).len(), 100);
        let other = Connections::new(&descriptors);
        let third = Connections::new(&descriptors);
        // Half of the 100 descriptors is reserved, a third of it (16) per upstream. The greedy upstream cannot take the
        // 16 of each of the other two.
        let most = take(&greedy, 1_000);
        assert_eq!(most.len(), 100 - 2 * 16);
        let one = take(&other, 1_000);
        assert_eq!(one.len(), 16, "its own part, whatever others do");
        assert_eq!(take(&third, 1_000).len(), 16);
        drop(most);
        drop(one);
        drop(third);
        assert_eq!(take(&other, 1_000).len(), 100 - 25, "two are left");
    }

    #[test]
    fn half_of_what_an_upstream_may_have_is_to_spare() {
        let descriptors = DescriptorBudget::unlimited();
        let connections = Connections::new(&descriptors);
        let open = take(&connections, 2);
        assert!(connections.has_room_to_spare(None));
        assert!(connections.has_room_to_spare(Some(6)));
        assert!(!connections.has_room_to_spare(Some(5)));
        let other = Connections::new(&descriptors);
        descriptors.limit(12);
        assert!(connections.has_room_to_spare(None), "three are reserved");
        descriptors.limit(8);
        assert!(!connections.has_room_to_spare(None), "two are");
        drop(open);
        drop(other);
        assert!(connections.has_room_to_spare(None));
    }

    #[test]
    fn a_closed_connection_makes_room() {
        let connections = Connections::new(&DescriptorBudget::unlimited());
        let first = connections.try_open(Some(1)).expect("the first");
        assert!(connections.try_open(Some(1)).is_none());
        assert_eq!(connections.open(), 1);
        drop(first);
        assert_eq!(connections.open(), 0);
        assert!(connections.try_open(Some(1)).is_some());
    }

    #[test]
    fn waiting_requests_are_bounded() {
        let connections = Connections::new(&DescriptorBudget::unlimited());
        let waiting = [
            connections.enqueue(2, WaitFor::Any),
            connections.enqueue(2, WaitFor::Any),
        ];
        assert!(waiting.iter().all(Option::is_some));
        assert!(connections.enqueue(2, WaitFor::Any).is_none());
        drop(waiting);
        assert_eq!(connections.pending(), 0);
        assert!(connections.enqueue(0, WaitFor::Any).is_none());
    }
}
