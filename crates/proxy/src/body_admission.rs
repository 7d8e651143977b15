//! Bodies that decide whether their request may leave: read whole, each within the memory that
//! there is for all of them, which nobody may keep from others by sending slowly.

use super::rewrite::{ReadResult, take};
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
const PATIENCE: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(10);
/// How often is looked at how much came: more than twice within [`PATIENCE`], since all that
/// comes at once makes up for one window.
const WINDOW: Duration = Duration::from_millis(500);
/// What has to come within each, in bytes, while others wait for memory.
const LEAST: usize = 32 * 1024;
/// The windows within which a long body has to come whole meanwhile.
const WINDOWS: usize = 64;
/// What has to come of a long body before all of it is accounted for, in bytes: something, and
/// so little that the connections of those that wait have no long buffers.
const BEGINNING: usize = 4 * 1024;

/// Reads a body into `buffers`: nothing of one that says it is longer than it may be, and no
/// more of one for which there is no memory in time, or which is slow while others wait.
pub(super) async fn read(
    mut body: Incoming,
    buffers: AdmissionBuffers,
    idle: Duration,
) -> ReadResult {
    let mut read = BufferedBody::of(&body);
    let length = body.size_hint();
    let mut holding = PartialBody::new(buffers, length.lower(), length.exact().is_some());
    if holding.never_fits() {
        read.rest = Some(body);
        return Ok(Ok((read, Some(BufferError::Limit))));
    }
    let (mut unfit, mut full) = (None, None);
    while full.is_none() {
        match holding.next(&mut body, idle).await? {
            BodyStep::TooSlow => full = Some(BufferError::Memory),
            BodyStep::Frame(None) => break,
            BodyStep::Frame(Some(Err(error))) => return Ok(Err(error)),
            BodyStep::Frame(Some(Ok(frame))) => match frame.into_data() {
                Ok(bytes) => {
                    full = holding.extend(&bytes).await.err();
                    unfit = full.is_some().then_some(bytes);
                }
                Err(frame) => read.trailers = frame.into_trailers().ok(),
            },
        }
    }
    if full.is_some() {
        read.rest = Some(body);
    }
    take(&mut read, holding.held, unfit);
    Ok(Ok((read, full)))
}

/// What comes next of a body.
enum BodyStep {
    Frame(Option<Result<Frame<Bytes>, hyper::Error>>),
    /// Too little of it came, and others wait.
    TooSlow,
}

/// A body as far as it came.
struct PartialBody {
    held: Buffer,
    /// What it is moved into when it turns out to be long, or short ones take all of theirs.
    large: Option<Buffer>,
    /// As long as it says to be at least.
    length: usize,
    /// When the window began, and what came since.
    since: Instant,
    came: usize,
}

impl PartialBody {
    fn new(buffers: AdmissionBuffers, length: u64, exact: bool) -> PartialBody {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let mut held = buffers.small;
        if exact && length > SMALL_BODY {
            held.lower_limit(BEGINNING);
        }
        PartialBody {
            held,
            large: Some(buffers.large),
            length,
            since: Instant::now(),
            came: 0,
        }
    }

    fn never_fits(&self) -> bool {
        let large = self.large.as_ref();
        large.is_some_and(|large| !large.could_hold(self.length))
    }

    async fn next(&mut self, body: &mut Incoming, idle: Duration) -> Result<BodyStep, Elapsed> {
        let end = Instant::now() + idle;
        loop {
            let wait = WINDOW.min(end.saturating_duration_since(Instant::now()));
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
        if self.since.elapsed() < WINDOW {
            return false;
        }
        let slow = self.came < LEAST.max(self.length / WINDOWS);
        (self.since, self.came) = (Instant::now(), 0);
        slow && self.held.has_pending_reservations()
    }

    /// Adds `bytes`, as soon as there is memory for them.
    async fn extend(&mut self, bytes: &[u8]) -> Result<(), BufferError> {
        let began = Instant::now();
        let mut wanting = None;
        let extended = loop {
            match self.try_extend(bytes) {
                Err(BufferError::Memory) if began.elapsed() < PATIENCE => {
                    let short = self.with(bytes);
                    let want = |buffer: &Buffer| buffer.pending_reservation(short);
                    let large = self.large.as_ref();
                    wanting.get_or_insert_with(|| (want(&self.held), large.map(want)));
                    sleep(AGAIN).await;
                }
                extended => break extended,
            }
        };
        if wanting.is_some() {
            (self.since, self.came) = (Instant::now(), 0);
        }
        self.came += bytes.len();
        extended
    }

    /// How long it is with `bytes`, or says to be.
    fn with(&self, bytes: &[u8]) -> usize {
        self.length.max(self.held.len() + bytes.len())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> Result<(), BufferError> {
        let short = self.with(bytes);
        let Some(large) = &mut self.large else {
            return self.held.extend(bytes);
        };
        // All of a short one, so that those that have begun come whole.
        if short > SMALL_BODY || self.held.reserve(short).is_ok() {
            let extended = self.held.extend(bytes);
            if extended.is_ok() {
                return extended;
            }
        }
        // The shortest first: many long ones that wait are not in its way.
        if large.has_smaller_pending_reservation(short) {
            return Err(BufferError::Memory);
        }
        large.reserve(short)?;
        large.extend(self.held.as_slice())?;
        large.extend(bytes)?;
        if let Some(large) = self.large.take() {
            self.held = large;
        }
        Ok(())
    }
}
