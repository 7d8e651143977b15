//! A limited resource, such as concurrent requests or memory, that source addresses share fairly. A source that uses its
//! whole share waits without delaying others.

use super::server::Source;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub struct FairShares {
    all: Arc<Semaphore>,
    each: usize,
    /// The semaphores of the sources that hold units or wait for them.
    sources: Mutex<HashMap<Option<Source>, Weak<Semaphore>>>,
}

/// Units that are held until this is dropped.
#[derive(Debug)]
pub struct Share {
    of_all: OwnedSemaphorePermit,
    of_source: OwnedSemaphorePermit,
}

impl FairShares {
    /// Creates `all` units in total, and at most `each` for one source address.
    pub fn new(all: usize, each: usize) -> FairShares {
        FairShares {
            all: Arc::new(Semaphore::new(all)),
            each,
            sources: Mutex::default(),
        }
    }

    pub(crate) fn left(&self) -> usize {
        self.all.available_permits()
    }

    /// Waits for a unit for `source`. The request that waits longest is served first.
    pub async fn wait(&self, source: Option<Source>) -> Option<Share> {
        // The source's semaphore comes first, so that no source waits for `all` with more than its share.
        let of_source = self.of(source).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Share { of_all, of_source })
    }

    /// Takes `count` units. `None` if fewer are free.
    pub fn take(&self, source: Option<Source>, count: u32) -> Option<Share> {
        let of_source = self.of(source).try_acquire_many_owned(count).ok()?;
        let of_all = Arc::clone(&self.all);
        let of_all = of_all.try_acquire_many_owned(count).ok()?;
        Some(Share { of_all, of_source })
    }

    fn of(&self, source: Option<Source>) -> Arc<Semaphore> {
        let mut sources = self.sources.lock();
        if let Some(places) = sources.get(&source).and_then(Weak::upgrade) {
            return places;
        }
        sources.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(self.each));
        sources.insert(source, Arc::downgrade(&places));
        places
    }
}

impl Share {
    pub fn count(&self) -> usize {
        self.of_all.num_permits()
    }

    pub fn merge(&mut self, other: Share) {
        self.of_all.merge(other.of_all);
        self.of_source.merge(other.of_source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    fn source(host: u8) -> Option<Source> {
        Some(Source::of([10, 0, 0, host].into()))
    }

    #[test]
    fn each_source_has_its_share_and_all_together_theirs() {
        let shares = FairShares::new(5, 2);
        let first = shares.take(source(1), 2).expect("its share");
        assert!(shares.take(source(1), 1).is_none());
        let _second = shares.take(source(2), 2).expect("its share");
        let mut third = shares.take(source(3), 0).expect("nothing as yet");
        third.merge(shares.take(source(3), 1).expect("the last"));
        assert_eq!((third.count(), shares.left()), (1, 0));
        assert!(shares.take(source(3), 1).is_none(), "all is taken");
        drop(first);
        third.merge(shares.take(source(3), 1).expect("given back"));
        assert_eq!((third.count(), shares.left()), (2, 1));
        drop(third);
        shares.take(source(4), 1).expect("there is room");
        assert!(shares.sources.lock().len() <= 2, "forgotten");
    }

    #[tokio::test]
    async fn whoever_asks_for_much_waits_for_himself_alone() {
        let shares = Arc::new(FairShares::new(2, 1));
        let held = shares.wait(source(1)).await.expect("a turn");
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let shares = Arc::clone(&shares);
                tokio::spawn(async move { shares.wait(source(1)).await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        let other = timeout(Duration::from_secs(10), shares.wait(source(2))).await;
        other.expect("at once").expect("a turn");
        drop(held);
        for one in waiting {
            let turn = timeout(Duration::from_secs(10), one).await;
            turn.expect("in time").expect("no panic").expect("a turn");
        }
    }
}
