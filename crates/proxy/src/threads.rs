use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// The runtimes that forward traffic, with one thread each. One runtime serves an agent's connection from its first
/// byte to its last, so that data for its calls wakes no other thread.
#[derive(Clone, Debug)]
pub struct TrafficRuntimes {
    runtimes: Arc<[TrafficRuntime]>,
    last: Arc<Mutex<usize>>,
}

#[derive(Debug)]
struct TrafficRuntime {
    handle: Handle,
    connections: Arc<AtomicUsize>,
}

impl TrafficRuntimes {
    /// Distributes connections over `runtimes`. The first runtime accepts them.
    ///
    /// # Panics
    ///
    /// If `runtimes` is empty.
    pub fn new(runtimes: impl IntoIterator<Item = Handle>) -> TrafficRuntimes {
        let runtime = |handle| TrafficRuntime {
            handle,
            connections: Arc::default(),
        };
        let runtimes: Arc<[_]> = runtimes.into_iter().map(runtime).collect();
        assert!(!runtimes.is_empty(), "at least one runtime");
        TrafficRuntimes {
            runtimes,
            last: Arc::default(),
        }
    }

    /// The runtime in which this is called.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub fn current() -> TrafficRuntimes {
        TrafficRuntimes::new([Handle::current()])
    }

    pub fn handles(&self) -> impl Iterator<Item = &Handle> {
        self.runtimes.iter().map(|runtime| &runtime.handle)
    }

    pub fn number(&self) -> usize {
        self.runtimes.len()
    }

    /// Chooses the runtime for a connection that was just accepted: the one with the fewest connections. On a tie, it
    /// is the next one after the previous choice. The connection counts until the returned count is dropped.
    pub(super) fn choose(&self) -> (ChosenRuntime, ConnectionCount) {
        let mut last = self.last.lock();
        let number = self.runtimes.len();
        let after_last = (1..=number).map(|step| (*last + step) % number);
        let load = |at: &usize| self.runtimes[*at].connections.load(Ordering::Relaxed);
        *last = after_last.min_by_key(load).unwrap_or(0);
        let TrafficRuntime {
            handle,
            connections,
        } = &self.runtimes[*last];
        let chosen = ChosenRuntime {
            handle: handle.clone(),
            is_first: *last == 0,
        };
        (chosen, ConnectionCount::new(connections))
    }
}

pub(super) struct ChosenRuntime {
    handle: Handle,
    is_first: bool,
}

impl ChosenRuntime {
    /// Serves the connection.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection cannot be taken from the runtime that accepted it.
    pub fn serve<F>(
        self,
        tcp: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.is_first {
            self.handle.spawn(serve(tcp));
            return Ok(());
        }
        let tcp = tcp.into_std()?;
        self.handle.spawn(async move {
            match TcpStream::from_std(tcp) {
                // A separate task, because this one would keep the memory for `serve` until the connection ends.
                Ok(tcp) => drop(tokio::spawn(serve(tcp))),
                Err(error) => tracing::error!(%error, "cannot serve a connection"),
            }
        });
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct ConnectionCount(Arc<AtomicUsize>);

impl ConnectionCount {
    fn new(connections: &Arc<AtomicUsize>) -> ConnectionCount {
        connections.fetch_add(1, Ordering::Relaxed);
        ConnectionCount(Arc::clone(connections))
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::net::TcpListener;
    use tokio::runtime::{Builder, Runtime, RuntimeFlavor};
    use tokio::sync::{mpsc, oneshot};

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn two() -> [Runtime; 2] {
        [(); 2].map(|()| {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).enable_all();
            builder.build().expect("a runtime")
        })
    }

    #[test]
    fn a_connection_is_served_by_the_runtime_with_the_fewest() {
        let [first, second] = two();
        let ids = [first.handle().id(), second.handle().id()];
        let runtimes = TrafficRuntimes::new([first.handle().clone(), second.handle().clone()]);
        let served = first.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
            let address = listener.local_addr().expect("bound");
            let (sender, mut receiver) = mpsc::unbounded_channel();
            let mut open = Vec::new();
            let mut served = Vec::new();
            for _ in 0..5 {
                let agent = TcpStream::connect(address).await.expect("connected");
                let (tcp, _) = listener.accept().await.expect("accepted");
                let (close, closed) = oneshot::channel::<()>();
                let sender = sender.clone();
                let (runtime, count) = runtimes.choose();
                let serve = move |tcp: TcpStream| async move {
                    let _count = count;
                    tcp.writable().await.expect("its runtime waits for it");
                    let _ = sender.send(Handle::current().id());
                    let _ = closed.await;
                };
                runtime.serve(tcp, serve).expect("served");
                let by = tokio::time::timeout(TIMEOUT, receiver.recv()).await;
                served.push(by.expect("served in time").expect("the id of a runtime"));
                open.push((agent, close));
                if open.len() == 4 {
                    // Closes both connections of the runtime that served the last one.
                    let last = served[3];
                    let both = (0..4).rev().filter(|at| served[*at] == last);
                    both.for_each(|at| drop(open.remove(at)));
                    let at = ids.iter().position(|id| *id == last).expect("one of both");
                    let left = &runtimes.runtimes[at].connections;
                    let end = std::time::Instant::now() + TIMEOUT;
                    while left.load(Ordering::Relaxed) > 0 {
                        assert!(std::time::Instant::now() < end, "they are still open");
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            }
            served
        });
        let [a, b] = [served[0], served[1]];
        assert_ne!(a, b);
        assert_eq!(served, [a, b, a, b, b], "the last finds two and none");
    }

    #[tokio::test]
    async fn a_single_runtime_serves_all() {
        assert_eq!(
            Handle::current().runtime_flavor(),
            RuntimeFlavor::CurrentThread
        );
        let runtimes = TrafficRuntimes::current();
        assert_eq!(runtimes.number(), 1);
        assert!(runtimes.choose().0.is_first);
        assert!(runtimes.choose().0.is_first);
    }
}
