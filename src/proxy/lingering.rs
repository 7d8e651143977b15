//! Reads on what an agent still sends of a request that was refused: one that is cut off while
//! it sends does not read the answer.

use super::forward::expects_continue;
use http::{HeaderMap, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::Duration;
use tokio::time::timeout;

/// What is read at most of a body that goes nowhere.
const BYTES: usize = 64 << 20;
/// And for how long.
const TIME: Duration = Duration::from_secs(10);

/// Whether the agent of a request sends its body without being asked for it, on a connection
/// that would have to be closed for want of reading it.
pub(super) fn sends_unasked(version: Version, headers: &HeaderMap) -> bool {
    version <= Version::HTTP_11 && !expects_continue(headers)
}

/// Reads a body that was sent unasked, and throws it away.
pub(super) fn linger(mut body: Incoming, unasked: bool) {
    if !unasked || body.is_end_stream() {
        return;
    }
    let reading = async move {
        let mut left = BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, bytes::Bytes::len);
            let Some(less) = left.checked_sub(length) else {
                return;
            };
            left = less;
        }
    };
    tokio::spawn(timeout(TIME, reading));
}
