use super::{locked, millis};
use crate::clock::now;
use crate::connection::Io;
use crate::settings;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// A connection that is closed sooner than this after a response was not meant to be kept alive.
const EARLY_CLOSE: Duration = Duration::from_secs(1);
/// A new endpoint is trusted once it has kept a connection open for this long after a response. Servers that close
/// without `connection: close` do so immediately after the response.
pub(super) const PROBATION: Duration = Duration::from_millis(100);
/// Once a new endpoint has this many idle connections and none is old enough to be trusted, a request waits until one
/// has stayed open for [`SHORT_PROBATION`] instead of opening another.
const MAX_ON_PROBATION: usize = 8;
const SHORT_PROBATION: Duration = Duration::from_millis(10);
/// After this many consecutive early closes, the pool is disabled for [`DISABLED_FOR`].
const MAX_EARLY_CLOSES: u8 = 2;
const DISABLED_FOR: Duration = Duration::from_secs(60);

/// Idle connections, and how the endpoint treats them.
///
/// Some servers close connections after each response without `connection: close` (llama.cpp after streams). A request
/// sent at that moment is lost, and must not be sent again if the server may have read it. A request that is not
/// idempotent therefore reuses a connection only in two cases: the endpoint has kept one open for [`PROBATION`], or
/// there were [`MAX_ON_PROBATION`] connections and this one has stayed open for [`SHORT_PROBATION`]. After an early
/// close, every request needs a connection that has stayed open for [`EARLY_CLOSE`]. After a lost
/// request or [`MAX_EARLY_CLOSES`], the pool is disabled for a while.
pub(super) struct IdlePool {
    created: Instant,
    max_idle: usize,
    idle_for: Duration,
    /// Oldest first.
    idle: Mutex<VecDeque<IdleConnection>>,
    /// Whether a connection stayed open long enough, and none was closed early since.
    trusted: AtomicBool,
    /// Whether there were [`MAX_ON_PROBATION`] idle connections before the endpoint was trusted.
    crowded: AtomicBool,
    has_closed_early: AtomicBool,
    early_closes: AtomicU8,
    /// Until when the pool is disabled, in milliseconds from `created`.
    disabled_until: AtomicU64,
}

/// Takes the youngest connection, which is the most likely to be open. Prefers connections of this runtime.
fn take_youngest(idle: &mut VecDeque<IdleConnection>) -> Option<IdleConnection> {
    let current = Handle::current().id();
    let own = idle
        .iter()
        .rposition(|idle| idle.io.tcp().runtime() == current);
    match own {
        Some(own) => idle.remove(own),
        None => idle.pop_back(),
    }
}

struct IdleConnection {
    since: Instant,
    io: Io,
}

impl IdlePool {
    pub fn new(upstream: &settings::Upstream) -> IdlePool {
        IdlePool {
            created: now(),
            max_idle: upstream.max_idle,
            idle_for: upstream.idle_for,
            idle: Mutex::default(),
            trusted: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
            has_closed_early: AtomicBool::new(false),
            early_closes: AtomicU8::new(0),
            disabled_until: AtomicU64::new(0),
        }
    }

    pub fn is_enabled(&self) -> bool {
        let until = self.disabled_until.load(Ordering::Relaxed);
        self.max_idle > 0 && (until == 0 || until <= millis(self.created.elapsed()))
    }

    /// Adds a connection whose response was read exactly to its end. Returns whether it was added. Taking it checks
    /// whether the endpoint closed it or sent more.
    pub fn put(&self, io: Io) -> bool {
        if !self.is_enabled() {
            return false;
        }
        let mut idle = locked(&self.idle);
        if idle.len() >= self.max_idle {
            if !self.trusted.load(Ordering::Relaxed) {
                // The oldest connection shows how long the endpoint keeps connections open.
                return false;
            }
            idle.pop_front();
        }
        let since = now();
        idle.push_back(IdleConnection { since, io });
        if idle.len() >= MAX_ON_PROBATION.min(self.max_idle) {
            self.crowded.store(true, Ordering::Relaxed);
        }
        true
    }

    fn required_age(&self) -> Duration {
        if self.has_closed_early.load(Ordering::Relaxed) {
            EARLY_CLOSE
        } else {
            PROBATION
        }
    }

    fn is_cautious(&self, non_idempotent: bool) -> bool {
        !self.trusted.load(Ordering::Relaxed)
            && (non_idempotent || self.has_closed_early.load(Ordering::Relaxed))
    }

    /// Whether a request should wait for a connection on probation before another one is opened.
    pub fn is_worth_waiting(&self, non_idempotent: bool) -> bool {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        self.is_cautious(non_idempotent) && is(&self.crowded) && !is(&self.has_closed_early)
    }

    /// Whether the second-oldest connection may be used although the endpoint is not trusted yet.
    fn second_may_be_used(&self, idle: &VecDeque<IdleConnection>) -> bool {
        let second = idle.get(1);
        self.is_worth_waiting(true)
            && second.is_some_and(|idle| idle.since.elapsed() >= SHORT_PROBATION)
    }

    /// Takes a connection that has stayed open long enough, or one that was closed meanwhile. The oldest one stays in
    /// the pool until then, to show how long the endpoint keeps connections open.
    fn take_proven(&self, idle: &mut VecDeque<IdleConnection>) -> Option<IdleConnection> {
        let oldest = idle.front_mut()?;
        if oldest.since.elapsed() >= self.required_age() || !oldest.io.is_open_and_idle() {
            return idle.pop_front();
        }
        self.early_closes.store(0, Ordering::Relaxed);
        if self.second_may_be_used(idle) {
            idle.remove(1)
        } else {
            None
        }
    }

    /// Takes a connection for a request and returns since when it was idle. Before the endpoint is trusted, a
    /// `non_idempotent` request gets only a connection that has stayed open long enough. After an early close, this
    /// applies to every request.
    pub fn take(&self, non_idempotent: bool) -> Option<(Io, Instant)> {
        loop {
            let next = {
                let mut idle = locked(&self.idle);
                if !self.is_cautious(non_idempotent) {
                    take_youngest(&mut idle)
                } else {
                    self.take_proven(&mut idle)
                }
            };
            let mut next = next?;
            let age = next.since.elapsed();
            if !next.io.is_open_and_idle() {
                self.record_closed(age);
                continue;
            }
            self.early_closes.store(0, Ordering::Relaxed);
            self.record_open(age);
            if age < self.idle_for {
                // An error is harmless: the other runtime continues to wait for the socket.
                let _ = next.io.tcp_mut().move_to_current_runtime();
                return Some((next.io, next.since));
            }
        }
    }

    pub fn record_lost(&self, since: Instant) {
        if since.elapsed() < EARLY_CLOSE {
            self.distrust();
            self.disable();
        }
    }

    pub fn close_oldest(&self) -> bool {
        let oldest = locked(&self.idle).pop_front();
        oldest.is_some()
    }

    /// Closes connections that expired or that the endpoint closed. Returns whether any remain.
    pub fn sweep(&self) -> bool {
        let mut idle = locked(&self.idle);
        idle.retain_mut(|idle| {
            let (age, open) = (idle.since.elapsed(), idle.io.is_open_and_idle());
            if open {
                self.record_open(age);
            } else {
                self.record_closed(age);
            }
            open && age < self.idle_for
        });
        !idle.is_empty()
    }

    fn record_open(&self, age: Duration) {
        if age >= self.required_age() {
            self.trusted.store(true, Ordering::Relaxed);
        }
    }

    fn record_closed(&self, age: Duration) {
        if age >= EARLY_CLOSE {
            return;
        }
        self.distrust();
        if self.early_closes.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_EARLY_CLOSES {
            self.disable();
        }
    }

    fn distrust(&self) {
        self.trusted.store(false, Ordering::Relaxed);
        self.has_closed_early.store(true, Ordering::Relaxed);
    }

    fn disable(&self) {
        self.early_closes.store(0, Ordering::Relaxed);
        let until = millis(self.created.elapsed() + DISABLED_FOR);
        self.disabled_until.store(until, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::socket::CountedTcp;
    use crate::upstream::{Connections, DescriptorBudget};
    use std::io::Write;
    use std::net::TcpListener;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;
    use tokio::runtime::{Builder, Runtime};
    use tokio::time::timeout;

    fn runtime() -> Runtime {
        let mut builder = Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    }

    #[test]
    fn a_connection_is_waited_for_by_the_runtime_that_takes_it() {
        let upstream = settings::Upstream::new("engine", Vec::new());
        let pool = IdlePool::new(&upstream);
        let connections = Connections::new(&DescriptorBudget::unlimited());
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        let open = async || {
            let tcp = TcpStream::connect(address).await.expect("connected");
            let counted = connections.try_open(None).expect("no limit");
            Io::Tcp(CountedTcp::new(tcp, counted))
        };
        let (first, second) = (runtime(), runtime());
        // An idempotent request takes any connection.
        let take = || pool.take(false).expect("an idle one").0;

        first.block_on(async { assert!(pool.put(open().await)) });
        let of_first = listener.accept().expect("accepted").0;
        second.block_on(async { assert!(pool.put(open().await)) });
        let own = first.block_on(async { take() });
        assert_eq!(
            own.tcp().peer_addr().expect("open"),
            address,
            "a real connection"
        );
        let is_of_first =
            |io: &Io| io.tcp().local_addr().expect("open") == of_first.peer_addr().expect("open");
        assert!(is_of_first(&own), "its own, though another is younger");
        first.block_on(async { assert!(pool.put(own)) });

        // The first runtime does not run anymore.
        second.block_on(async {
            assert!(!is_of_first(&take()), "its own, though another is younger");
            let mut moved = take();
            assert!(is_of_first(&moved));
            assert_eq!(moved.tcp().runtime(), Handle::current().id());
            let mut byte = [0];
            let wait = timeout(Duration::from_millis(10), moved.read_exact(&mut byte));
            assert!(wait.await.is_err(), "nothing was sent yet");
            (&of_first).write_all(b"x").expect("sent");
            let read = timeout(Duration::from_secs(30), moved.read_exact(&mut byte));
            read.await.expect("woken").expect("read");
            assert_eq!(connections.open(), 1, "that it was moved opens none");
        });
    }
}
