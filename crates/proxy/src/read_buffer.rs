//! Where sockets are read: one buffer a thread, so that a connection that waits keeps none.

use std::cell::RefCell;

/// What is read at once.
const BYTES: usize = 32 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; BYTES].into_boxed_slice());
}

/// Reads through this thread's buffer, which holds anything at first. `read` may not do the same
/// again meanwhile.
pub(super) fn with_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| read(buffer))
}
