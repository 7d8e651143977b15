//! Asking for usage on the agent's behalf, and hiding that from the agent.

use crate::observer::Filter;
use bytes::Bytes;

/// The request body with `stream_options.include_usage` added; `None` leaves it alone.
pub fn rewrite_request(_body: &[u8]) -> Option<Bytes> {
    None
}

/// Takes the usage that only we asked for out of a stream.
#[derive(Debug, Default)]
pub struct UsageFilter;

impl Filter for UsageFilter {
    fn push(&mut self, bytes: Bytes) -> Bytes {
        bytes
    }

    fn finish(&mut self) -> Bytes {
        Bytes::new()
    }
}
