//! When a body may leave past the server that writes its head.

use crate::agent_socket::{PassthroughWriter, SharedSocket};

/// Waits until the server's head has left.
#[derive(Debug)]
pub(super) struct PassthroughSwitch {
    agent: SharedSocket,
    /// How often the server had written when it got its last frame.
    writes_at_last_frame: Option<u64>,
}

impl PassthroughSwitch {
    pub fn new(agent: SharedSocket) -> PassthroughSwitch {
        PassthroughSwitch {
            agent,
            writes_at_last_frame: None,
        }
    }

    /// The server got a frame to write, after the head where it is the first.
    pub fn record_frame(&mut self) {
        self.writes_at_last_frame = Some(self.agent.writes());
    }

    /// Whether all that the server got has left.
    pub fn is_ready(&self) -> bool {
        self.writes_at_last_frame
            .is_some_and(|writes| self.agent.is_flushed_since(writes))
    }

    pub fn into_writer(self) -> PassthroughWriter {
        PassthroughWriter::new(self.agent)
    }
}
