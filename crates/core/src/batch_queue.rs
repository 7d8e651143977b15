//! A bounded queue with one reader, which takes all queued items at once. Under load, the reader is
//! not woken for every item, because waking a thread costs as much as the work for a short call.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The number of items at which a gathering reader is woken early. If the reader shares a core with
/// traffic, all calls in flight wait while it processes a batch.
const GATHER_ITEMS: usize = 32;

/// A bounded queue for one reader.
///
/// ```
/// use tokengauge_core::batch_queue::{BatchQueue, TakeOutcome};
///
/// let queue = BatchQueue::new(2);
/// assert!(queue.push(1).is_ok() && queue.push(2).is_ok());
/// assert_eq!(queue.push(3), Err(3), "two may wait");
/// let mut batch = Vec::new();
/// assert_eq!(queue.take(&mut batch, None), TakeOutcome::Batch);
/// assert_eq!(batch, [1, 2]);
/// queue.close();
/// assert_eq!(queue.take(&mut batch, None), TakeOutcome::Closed);
/// ```
#[derive(Debug)]
pub struct BatchQueue<T> {
    limit: usize,
    state: Mutex<QueueState<T>>,
    wake: Condvar,
}

#[derive(Debug)]
struct QueueState<T> {
    items: Vec<T>,
    reader: Reader,
    /// Whether an item must be read at once, without gathering more.
    urgent: bool,
    closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// The reader processes items and need not be woken.
    Busy,
    /// The reader waits until a deadline or for enough items.
    Gathers,
    Waits,
}

/// The result of taking items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOutcome {
    /// At least one item was taken.
    Batch,
    /// No item was queued before the deadline.
    TimedOut,
    /// The queue is closed and empty.
    Closed,
}

impl<T> BatchQueue<T> {
    /// A queue of at most `limit` items.
    pub fn new(limit: usize) -> BatchQueue<T> {
        BatchQueue {
            limit,
            state: Mutex::new(QueueState {
                items: Vec::new(),
                reader: Reader::Busy,
                urgent: false,
                closed: false,
            }),
            wake: Condvar::new(),
        }
    }

    /// Queues an item. Wakes the reader if it waits, or if it gathers and enough items are queued.
    ///
    /// # Errors
    /// Returns the item if the queue is full or closed.
    pub fn push(&self, item: T) -> Result<(), T> {
        self.add(item, false)
    }

    /// Queues an item that must be read at once.
    ///
    /// # Errors
    /// Returns the item if the queue is full or closed.
    pub fn push_urgent(&self, item: T) -> Result<(), T> {
        self.add(item, true)
    }

    fn add(&self, item: T, urgent: bool) -> Result<(), T> {
        let mut state = self.state.lock();
        if state.closed || state.items.len() >= self.limit {
            return Err(item);
        }
        state.items.push(item);
        state.urgent |= urgent;
        let wanted = match state.reader {
            Reader::Busy => false,
            Reader::Gathers => state.items.len() >= GATHER_ITEMS,
            Reader::Waits => true,
        };
        if urgent || wanted {
            self.wake(state);
        }
        Ok(())
    }

    fn wake(&self, mut state: MutexGuard<'_, QueueState<T>>) {
        state.reader = Reader::Busy;
        drop(state);
        self.wake.notify_one();
    }

    /// Clears `batch` and moves all items into it. Waits for items, at most `patience` if it is
    /// given.
    pub fn take(&self, batch: &mut Vec<T>, patience: Option<Duration>) -> TakeOutcome {
        batch.clear();
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut state = self.state.lock();
        while state.items.is_empty() {
            if state.closed {
                return TakeOutcome::Closed;
            }
            state.reader = Reader::Waits;
            let timed_out = self.wait(&mut state, deadline);
            state.reader = Reader::Busy;
            if timed_out && state.items.is_empty() && !state.closed {
                return TakeOutcome::TimedOut;
            }
        }
        state.urgent = false;
        std::mem::swap(&mut state.items, batch);
        TakeOutcome::Batch
    }

    /// Waits for `time` so that more items are queued. Returns early if there are enough items, one
    /// is urgent, or the queue is closed.
    pub fn gather(&self, time: Duration) {
        let deadline = Some(Instant::now() + time);
        let mut state = self.state.lock();
        while !state.urgent && !state.closed && state.items.len() < GATHER_ITEMS {
            state.reader = Reader::Gathers;
            let timed_out = self.wait(&mut state, deadline);
            state.reader = Reader::Busy;
            if timed_out {
                return;
            }
        }
    }

    fn wait(&self, state: &mut MutexGuard<'_, QueueState<T>>, deadline: Option<Instant>) -> bool {
        match deadline {
            Some(deadline) => self.wake.wait_until(state, deadline).timed_out(),
            None => {
                self.wake.wait(state);
                false
            }
        }
    }

    /// Refuses further items. The reader still gets the queued ones.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.wake(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_reader_that_waits_is_woken_by_the_first_item() {
        let queue = Arc::new(BatchQueue::new(8));
        let reader = Arc::clone(&queue);
        let reading = thread::spawn(move || {
            let mut batch = Vec::new();
            (reader.take(&mut batch, Some(LONG)), batch)
        });
        while queue.state.lock().reader != Reader::Waits {
            thread::yield_now();
        }
        queue.push(7).expect("there is room");
        assert_eq!(
            reading.join().expect("no panic"),
            (TakeOutcome::Batch, vec![7])
        );
    }

    #[test]
    fn a_reader_that_gathers_is_woken_by_what_is_urgent_alone() {
        let queue = Arc::new(BatchQueue::new(8));
        let reader = Arc::clone(&queue);
        let reading = thread::spawn(move || {
            let began = Instant::now();
            reader.gather(LONG);
            let mut batch = Vec::new();
            reader.take(&mut batch, None);
            (began.elapsed() < LONG, batch)
        });
        queue.push(1).expect("there is room");
        queue.push(2).expect("there is room");
        queue.push_urgent(3).expect("there is room");
        assert_eq!(reading.join().expect("no panic"), (true, vec![1, 2, 3]));
    }

    #[test]
    fn a_reader_that_gathers_is_woken_once_there_are_enough() {
        let queue = Arc::new(BatchQueue::new(2 * GATHER_ITEMS));
        let reader = Arc::clone(&queue);
        let reading = thread::spawn(move || {
            let began = Instant::now();
            reader.gather(LONG);
            (began.elapsed() < LONG, reader.state.lock().items.len())
        });
        while queue.state.lock().reader != Reader::Gathers {
            thread::yield_now();
        }
        for item in 1..GATHER_ITEMS {
            queue.push(item).expect("there is room");
            let reader = queue.state.lock().reader;
            assert_eq!(reader, Reader::Gathers, "{item} are too few");
        }
        queue.push(0).expect("there is room");
        let (in_time, items) = reading.join().expect("no panic");
        assert!(in_time && items == GATHER_ITEMS);
        queue.gather(LONG);
        assert_eq!(queue.state.lock().items.len(), GATHER_ITEMS, "enough wait");
    }

    #[test]
    fn what_waits_when_a_queue_is_closed_is_still_read() {
        let queue = BatchQueue::new(8);
        queue.push(1).expect("there is room");
        queue.close();
        assert_eq!(queue.push(2), Err(2));
        let mut batch = Vec::new();
        queue.gather(LONG);
        assert_eq!(queue.take(&mut batch, None), TakeOutcome::Batch);
        assert_eq!(queue.take(&mut batch, None), TakeOutcome::Closed);
        assert!(batch.is_empty());
    }

    #[test]
    fn a_reader_gives_up_when_nothing_comes() {
        let queue: BatchQueue<u32> = BatchQueue::new(8);
        let mut batch = vec![1];
        let taken = queue.take(&mut batch, Some(Duration::from_millis(1)));
        assert_eq!((taken, batch.len()), (TakeOutcome::TimedOut, 0));
    }
}
