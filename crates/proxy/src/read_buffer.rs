//! One read buffer per thread, so that an idle connection needs no buffer.

use std::cell::RefCell;

const BYTES: usize = 32 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; BYTES].into_boxed_slice());
}

/// Passes this thread's buffer, with arbitrary content, to `read`. `read` must not call this function again.
pub(super) fn with_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| read(buffer))
}
