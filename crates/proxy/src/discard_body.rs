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
const BYTES: usize = 64 << 20;
/// How long the rest of a body is read, at most.
const TIME: Duration = Duration::from_secs(10);
/// How long the call waits for its body before its record is made.
const NOTED_WITHIN: Duration = Duration::from_secs(2);

/// Whether, and why, the body of a request is read that goes nowhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiscardPolicy {
    /// The agent sends it without being asked for it: nothing is asked for in vain.
    comes: bool,
    /// The connection would have to be closed for want of reading it.
    lingers: bool,
}

impl DiscardPolicy {
    /// What is to be read of the request with this head.
    pub fn of(parts: &request::Parts) -> DiscardPolicy {
        let comes = !expects_continue(&parts.headers);
        DiscardPolicy {
            comes,
            lingers: comes && parts.version <= Version::HTTP_11,
        }
    }
}

/// What is still to come of a request that is refused.
pub(super) struct UnreadBody {
    source: UploadSource,
    reads: DiscardPolicy,
}

impl UnreadBody {
    pub fn new(source: UploadSource, reads: DiscardPolicy) -> UnreadBody {
        UnreadBody { source, reads }
    }

    /// All of the agent's body.
    pub fn all(body: Incoming, reads: DiscardPolicy) -> UnreadBody {
        UnreadBody::new(UploadSource::Agent(body), reads)
    }

    /// Notes what comes soon, ends the call as of `at`, and throws the rest away.
    pub fn read(self, call: Call, at: Instant, end: End) {
        if !self.reads.comes || self.source.is_end_stream() {
            call.end(at, end);
            return;
        }
        call.handle().notify(|call| call.refused());
        let reading = async move {
            let UnreadBody { mut source, reads } = self;
            let noting = read(&mut source, BYTES, Some(call.handle()));
            let left = timeout(NOTED_WITHIN, noting).await.unwrap_or(Some(BYTES));
            call.end(at, end);
            if let Some(left) = left.filter(|_| reads.lingers) {
                let _ = timeout(TIME, read(&mut source, left, None)).await;
            }
        };
        tokio::spawn(reading);
    }
}

/// Reads up to `left` bytes, and says how many of them did not come where something still may.
async fn read(
    source: &mut UploadSource,
    mut left: usize,
    noted: Option<&CallHandle>,
) -> Option<usize> {
    while let Some(frame) = poll_fn(|cx| source.poll_frame(cx)).await {
        let frame = frame.ok()?;
        let Some(bytes) = frame.data_ref() else {
            continue;
        };
        left = left.checked_sub(bytes.len())?;
        if let Some(handle) = noted {
            handle.notify(|call| call.unsent_frame(bytes));
        }
    }
    if let Some(handle) = noted {
        handle.notify(|call| call.unsent_whole());
    }
    None
}
