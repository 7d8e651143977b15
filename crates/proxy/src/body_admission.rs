//! Buffers request bodies that decide whether their request is admitted. They share a memory limit. A client that sends
//! slowly cannot block others.

use super::agent_body::AgentBody;
use super::body_error::AgentBodyError;
use super::upload::BufferedBody;
use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use std::time::Duration;
use tokengauge_core::memory::{AdmissionBuffers, Buffer, BufferError, SMALL_BODY};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};

const MEMORY_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_EVERY: Duration = Duration::from_millis(10);
/// How often the rate of a body is checked. [`MEMORY_TIMEOUT`] has room for more than two checks, because a body that
/// arrives in one burst passes one check.
const RATE_WINDOW: Duration = Duration::from_millis(500);
/// Minimum bytes per window while other bodies wait for memory.
const MIN_WINDOW_BYTES: usize = 32 * 1024;
/// Maximum number of windows for a long body while other bodies wait for memory.
const MAX_WINDOWS: usize = 64;
/// Bytes of a long body that must arrive before memory for all of it is reserved. This is enough to show that the body
/// is being sent, but waiting connections have no large buffers.
const INITIAL_LIMIT: usize = 4 * 1024;

type BufferedPrefix = (BufferedBody, Option<BufferError>);
/// The buffered prefix, an error of the agent's connection, or a timeout of the agent.
pub(super) type ReadResult = Result<Result<BufferedPrefix, AgentBodyError>, Elapsed>;

/// Reads a body into `buffers`. A body whose declared length exceeds the limit is not read. Reading stops if no memory
/// becomes free in time, or if the body is slow while others wait.
pub(super) async fn read(
    mut body: AgentBody,
    buffers: AdmissionBuffers,
    idle: Duration,
) -> ReadResult {
    let mut buffered = BufferedBody::new(&body);
    let length = body.size_hint();
    let mut partial = PartialBody::new(buffers, length.lower(), length.exact().is_some());
    if partial.exceeds_limit() {
        buffered.remaining = Some(body);
        return Ok(Ok((buffered, Some(BufferError::Limit))));
    }
    let (mut overflow, mut error) = (None, None);
    while error.is_none() {
        match partial.next_step(&mut body, idle).await? {
            BodyStep::TooSlow => error = Some(BufferError::Memory),
            BodyStep::Frame(None) => break,
            BodyStep::Frame(Some(Err(failed))) => return Ok(Err(failed)),
            BodyStep::Frame(Some(Ok(frame))) => match frame.into_data() {
                Ok(bytes) => {
                    error = partial.extend(&bytes).await.err();
                    overflow = error.is_some().then_some(bytes);
                }
                Err(frame) => buffered.trailers = frame.into_trailers().ok(),
            },
        }
    }
    if error.is_some() {
        buffered.remaining = Some(body);
    }
    store_buffer(&mut buffered, partial.buffer, overflow);
    Ok(Ok((buffered, error)))
}

pub(super) fn store_buffer(read: &mut BufferedBody, buffer: Buffer, overflow: Option<Bytes>) {
    let buffer = (!buffer.is_empty()).then(|| Bytes::from_owner(buffer));
    read.chunks.extend(buffer.into_iter().chain(overflow));
}

enum BodyStep {
    Frame(Option<Result<Frame<Bytes>, AgentBodyError>>),
    TooSlow,
}

struct PartialBody {
    buffer: Buffer,
    /// The buffer for long bodies. The body moves there when it outgrows the small buffer or the memory for small
    /// bodies is used up.
    large: Option<Buffer>,
    /// The declared minimum length, in bytes.
    length: usize,
    window_start: Instant,
    window_bytes: usize,
}

impl PartialBody {
    fn new(buffers: AdmissionBuffers, length: u64, exact: bool) -> PartialBody {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let mut buffer = buffers.small;
        if exact && length > SMALL_BODY {
            buffer.lower_limit(INITIAL_LIMIT);
        }
        PartialBody {
            buffer,
            large: Some(buffers.large),
            length,
            window_start: Instant::now(),
            window_bytes: 0,
        }
    }

    fn exceeds_limit(&self) -> bool {
        let large = self.large.as_ref();
        large.is_some_and(|large| !large.could_hold(self.length))
    }

    async fn next_step(
        &mut self,
        body: &mut AgentBody,
        idle: Duration,
    ) -> Result<BodyStep, Elapsed> {
        let end = Instant::now() + idle;
        loop {
            let wait = RATE_WINDOW.min(end.saturating_duration_since(Instant::now()));
            let frame = timeout(wait, body.frame()).await;
            if self.is_slow() {
                return Ok(BodyStep::TooSlow);
            }
            match frame {
                Ok(frame) => return Ok(BodyStep::Frame(frame)),
                Err(elapsed) if Instant::now() >= end => return Err(elapsed),
                Err(_) => {}
            }
        }
    }

    /// Whether a window has ended with too few bytes while other bodies wait for the memory that this body holds.
    fn is_slow(&mut self) -> bool {
        if self.window_start.elapsed() < RATE_WINDOW {
            return false;
        }
        let slow = self.window_bytes < MIN_WINDOW_BYTES.max(self.length / MAX_WINDOWS);
        (self.window_start, self.window_bytes) = (Instant::now(), 0);
        slow && self.buffer.has_pending_reservations()
    }

    async fn extend(&mut self, bytes: &[u8]) -> Result<(), BufferError> {
        let started = Instant::now();
        let mut reservations = None;
        let result = loop {
            match self.try_extend(bytes) {
                Err(BufferError::Memory) if started.elapsed() < MEMORY_TIMEOUT => {
                    let length = self.length_with(bytes);
                    let reservation = |buffer: &Buffer| buffer.pending_reservation(length);
                    let large = self.large.as_ref();
                    reservations
                        .get_or_insert_with(|| (reservation(&self.buffer), large.map(reservation)));
                    sleep(RETRY_EVERY).await;
                }
                result => break result,
            }
        };
        if reservations.is_some() {
            (self.window_start, self.window_bytes) = (Instant::now(), 0);
        }
        self.window_bytes += bytes.len();
        result
    }

    fn length_with(&self, bytes: &[u8]) -> usize {
        self.length.max(self.buffer.len() + bytes.len())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> Result<(), BufferError> {
        let length = self.length_with(bytes);
        let Some(large) = &mut self.large else {
            return self.buffer.extend(bytes);
        };
        // Memory for all of a short body is reserved at once, so that a body that has started to arrive can be read to
        // its end.
        if length > SMALL_BODY || self.buffer.reserve(length).is_ok() {
            let extended = self.buffer.extend(bytes);
            if extended.is_ok() {
                return extended;
            }
        }
        // Shorter bodies take precedence, so that long bodies that wait for memory do not delay them.
        if large.has_smaller_pending_reservation(length) {
            return Err(BufferError::Memory);
        }
        large.reserve(length)?;
        large.extend(self.buffer.as_slice())?;
        large.extend(bytes)?;
        if let Some(large) = self.large.take() {
            self.buffer = large;
        }
        Ok(())
    }
}
