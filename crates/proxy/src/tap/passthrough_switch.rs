//! Decides when a body may bypass the server that writes its head.

use crate::agent_socket::{PassthroughWriter, SharedSocket};

/// Waits until the server has written the head.
#[derive(Debug)]
pub(super) struct PassthroughSwitch {
    agent: SharedSocket,
    /// How many times the server had written when it was given the last frame.
    writes_at_last_frame: Option<u64>,
}

impl PassthroughSwitch {
    pub fn new(agent: SharedSocket) -> PassthroughSwitch {
        PassthroughSwitch {
            agent,
            writes_at_last_frame: None,
        }
    }

    /// The server was given a frame to write, the first one together with the head.
    pub fn record_frame(&mut self) {
        self.writes_at_last_frame = Some(self.agent.writes());
    }

    /// Whether everything given to the server has been flushed.
    pub fn is_ready(&self) -> bool {
        self.writes_at_last_frame
            .is_some_and(|writes| self.agent.is_flushed_since(writes))
    }

    pub fn into_writer(self) -> PassthroughWriter {
        PassthroughWriter::new(self.agent)
    }
}
