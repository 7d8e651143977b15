//! Reads and discards the rest of a refused request's body. The observer sees the rest first, because it may name the
//! caller. If the connection were closed while the agent sends, the agent would not read the response.

use super::agent_body::AgentBody;
use super::call_handle::{Call, CallHandle};
use super::headers::expects_continue;
use super::upload::UploadSource;
use http::{Version, request};
use std::future::poll_fn;
use std::time::{Duration, Instant};
use tokengauge_core::observer::End;
use tokio::time::timeout;

const MAX_BYTES: usize = 64 << 20;
/// How long reading continues after the call has been recorded, or after its response.
pub(super) const LINGER_TIMEOUT: Duration = Duration::from_secs(10);
const OBSERVE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub(super) struct DiscardPolicy {
    /// Whether the agent sends its body without waiting for `100 Continue`. An agent that waits is not asked to send.
    sent_unprompted: bool,
    /// Whether to keep reading after the call was recorded. Over HTTP/1, an unread body forces the proxy to close the
    /// connection.
    linger: bool,
}

impl DiscardPolicy {
    pub fn new(parts: &request::Parts) -> DiscardPolicy {
        let sent_unprompted = !expects_continue(&parts.headers);
        DiscardPolicy {
            sent_unprompted,
            linger: sent_unprompted && parts.version <= Version::HTTP_11,
        }
    }
}

pub(super) struct UnreadBody {
    source: UploadSource,
    policy: DiscardPolicy,
}

impl UnreadBody {
    pub fn new(source: UploadSource, policy: DiscardPolicy) -> UnreadBody {
        UnreadBody { source, policy }
    }

    pub fn from_agent(body: AgentBody, policy: DiscardPolicy) -> UnreadBody {
        UnreadBody::new(UploadSource::Agent(body), policy)
    }

    /// Passes data that arrives soon to the observer, ends the call with the time `at`, and discards the rest.
    pub fn discard(self, call: Call, at: Instant, end: End) {
        if !self.policy.sent_unprompted || self.source.is_end_stream() {
            call.end(at, end);
            return;
        }
        call.handle().notify(|call| call.refused());
        let discard = async move {
            let UnreadBody { mut source, policy } = self;
            let observing = read(&mut source, MAX_BYTES, Some(call.handle()));
            let timed_out = timeout(OBSERVE_TIMEOUT, observing).await.is_err();
            call.end(at, end);
            if timed_out && policy.linger {
                let _ = timeout(LINGER_TIMEOUT, read(&mut source, MAX_BYTES, None)).await;
            }
        };
        tokio::spawn(discard);
    }
}

async fn read(source: &mut UploadSource, max_bytes: usize, observer: Option<&CallHandle>) {
    let mut remaining = max_bytes;
    while let Some(frame) = poll_fn(|cx| source.poll_frame(cx)).await {
        let Ok(frame) = frame else { return };
        let Some(bytes) = frame.data_ref() else {
            continue;
        };
        let Some(rest) = remaining.checked_sub(bytes.len()) else {
            return;
        };
        remaining = rest;
        if let Some(handle) = observer {
            handle.notify(|call| call.unsent_chunk(bytes));
        }
    }
    if let Some(handle) = observer {
        handle.notify(|call| call.unsent_whole());
    }
}
