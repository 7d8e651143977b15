//! Edits a response body as it streams: removes data that the proxy requested and the agent did not.

use bytes::Bytes;
use http_body::Frame;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokengauge_core::observer::Filter;

/// Applies a filter to a body's frames. If the filter panics, the frame passes unchanged.
pub(super) struct BodyFilter {
    filter: Box<dyn Filter>,
    trailers: Option<Frame<Bytes>>,
    finished: bool,
}

impl BodyFilter {
    pub fn new(filter: Box<dyn Filter>) -> BodyFilter {
        BodyFilter {
            filter,
            trailers: None,
            finished: false,
        }
    }

    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Returns the edited frame, or `None` if the filter holds all of it back.
    pub fn apply(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        match frame.into_data() {
            Ok(bytes) => {
                let original = bytes.clone();
                let filter = &mut self.filter;
                let edited =
                    catch_unwind(AssertUnwindSafe(|| filter.push(bytes))).unwrap_or(original);
                (!edited.is_empty()).then(|| Frame::data(edited))
            }
            Err(trailers) => {
                self.trailers = Some(trailers);
                None
            }
        }
    }

    /// After the end of the upstream's body, returns the frames that the filter held back, then the trailers.
    pub fn next_remaining(&mut self) -> Option<Frame<Bytes>> {
        if !self.finished {
            self.finished = true;
            let filter = &mut self.filter;
            let held_back = catch_unwind(AssertUnwindSafe(|| filter.finish())).unwrap_or_default();
            if !held_back.is_empty() {
                self.finished = self.trailers.is_none();
                return Some(Frame::data(held_back));
            }
        }
        self.finished = true;
        self.trailers.take()
    }
}
