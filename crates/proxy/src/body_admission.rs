//! Bodies that decide whether their request may leave: read whole, each within the memory that
//! there is for all of them, which nobody may keep from others by sending slowly.

use super::rewrite::{ReadResult, store_buffer};
use super::upload::BufferedBody;
use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::Duration;
use tokengauge_core::memory::{AdmissionBuffers, Buffer, BufferError, SMALL_BODY};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};

/// How long a body waits for memory: others leave and give theirs back.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_EVERY: Duration = Duration::from_millis(10);
/// How often is looked at how much came: more than twice within [`MEMORY_TIMEOUT`], since all that
/// comes at once makes up for one window.
const RATE_WINDOW: Duration = Duration::from_millis(500);
/// What has to come within each, in bytes, while others wait for memory.
const MIN_WINDOW_BYTES: usize = 32 * 1024;
/// The windows within which a long body has to come whole meanwhile.
const MAX_WINDOWS: usize = 64;
/// What has to come of a long body before all of it is accounted for, in bytes: something, and
/// so little that the connections of those that wait have no long buffers.
const INITIAL_LIMIT: usize = 4 * 1024;

/// Reads a body into `buffers`: nothing of one that says it is longer than it may be, and no
/// more of one for which there is no memory in time, or which is slow while others wait.
pub(super) async fn read(
    mut body: Incoming,
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

/// What comes next of a body.
enum BodyStep {
    Frame(Option<Result<Frame<Bytes>, hyper::Error>>),
    /// Too little of it came, and others wait.
    TooSlow,
}

/// A body as far as it came.
struct PartialBody {
    buffer: Buffer,
    /// What it is moved into when it turns out to be long, or short ones take all of theirs.
    large: Option<Buffer>,
    /// As long as it says to be at least.
    length: usize,
    /// When the window began, and what came since.
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
        body: &mut Incoming,
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

    /// Whether a window is over in which too little came while others wait for what this holds.
    fn is_slow(&mut self) -> bool {
        if self.window_start.elapsed() < RATE_WINDOW {
            return false;
        }
        let slow = self.window_bytes < MIN_WINDOW_BYTES.max(self.length / MAX_WINDOWS);
        (self.window_start, self.window_bytes) = (Instant::now(), 0);
        slow && self.buffer.has_pending_reservations()
    }

    /// Adds `bytes`, as soon as there is memory for them.
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

    /// How long it is with `bytes`, or says to be.
    fn length_with(&self, bytes: &[u8]) -> usize {
        self.length.max(self.buffer.len() + bytes.len())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> Result<(), BufferError> {
        let length = self.length_with(bytes);
        let Some(large) = &mut self.large else {
            return self.buffer.extend(bytes);
        };
        // All of a short one, so that those that have begun come whole.
        if length > SMALL_BODY || self.buffer.reserve(length).is_ok() {
            let extended = self.buffer.extend(bytes);
            if extended.is_ok() {
                return extended;
            }
        }
        // The shortest first: many long ones that wait are not in its way.
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
