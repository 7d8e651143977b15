//! OpenAI Realtime.

use super::{Malformed, Reader, Sink};

/// To be written.
#[derive(Default)]
pub(crate) struct Realtime;

impl Reader for Realtime {
    fn event(&mut self, _: &str, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }

    fn body(&mut self, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }
}

/// Reads what the agent sends over a Realtime connection.
pub struct RealtimeRequests;
