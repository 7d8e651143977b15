//! Reads on what an agent still sends of a request that was refused: what it says of who sent
//! it is noted, and an agent that is cut off while it sends does not read the answer.

use super::call_handle::{Call, CallHandle};
use super::forward::expects_continue;
use super::upload::UploadSource;
use http::{Version, request};
use hyper::body::Incoming;
use std::future::poll_fn;
use std::time::{Duration, Instant};
use tokengauge_core::observer::End;
use tokio::time::timeout;

/// What is read at most of a body that goes nowhere.
const MAX_BYTES: usize = 64 << 20;
/// How long the rest of a body is read, at most.
const LINGER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the call waits for its body before its record is made.
const OBSERVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether, and why, the body of a request is read that goes nowhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiscardPolicy {
    /// The agent sends it without being asked for it: nothing is asked for in vain.
    sent_unprompted: bool,
    /// The connection would have to be closed for want of reading it.
    linger: bool,
}

impl DiscardPolicy {
    /// What is to be read of the request with this head.
    pub fn new(parts: &request::Parts) -> DiscardPolicy {
        let sent_unprompted = !expects_continue(&parts.headers);
        DiscardPolicy {
            sent_unprompted,
            linger: sent_unprompted && parts.version <= Version::HTTP_11,
        }
    }
}

/// What is still to come of a request that is refused.
pub(super) struct UnreadBody {
    source: UploadSource,
    policy: DiscardPolicy,
}

impl UnreadBody {
    pub fn new(source: UploadSource, policy: DiscardPolicy) -> UnreadBody {
        UnreadBody { source, policy }
    }

    /// All of the agent's body.
    pub fn from_agent(body: Incoming, policy: DiscardPolicy) -> UnreadBody {
        UnreadBody::new(UploadSource::Agent(body), policy)
    }

    /// Notes what comes soon, ends the call as of `at`, and throws the rest away.
    pub fn discard(self, call: Call, at: Instant, end: End) {
        if !self.policy.sent_unprompted || self.source.is_end_stream() {
            call.end(at, end);
            return;
        }
        call.handle().notify(|call| call.refused());
        let discard = async move {
            let UnreadBody { mut source, policy } = self;
            let observing = read(&mut source, MAX_BYTES, Some(call.handle()));
            let left = timeout(OBSERVE_TIMEOUT, observing)
                .await
                .unwrap_or(Some(MAX_BYTES));
            call.end(at, end);
            if let Some(left) = left.filter(|_| policy.linger) {
                let _ = timeout(LINGER_TIMEOUT, read(&mut source, left, None)).await;
            }
        };
        tokio::spawn(discard);
    }
}

/// Reads up to `left` bytes, and says how many of them did not come where something still may.
async fn read(
    source: &mut UploadSource,
    mut left: usize,
    observer: Option<&CallHandle>,
) -> Option<usize> {
    while let Some(frame) = poll_fn(|cx| source.poll_frame(cx)).await {
        let frame = frame.ok()?;
        let Some(bytes) = frame.data_ref() else {
            continue;
        };
        left = left.checked_sub(bytes.len())?;
        if let Some(handle) = observer {
            handle.notify(|call| call.unsent_frame(bytes));
        }
    }
    if let Some(handle) = observer {
        handle.notify(|call| call.unsent_whole());
    }
    None
}
