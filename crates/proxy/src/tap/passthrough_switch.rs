//! When a body may leave past the server that writes its head.

use crate::agent_socket::{PassthroughWriter, SharedSocket};

/// Waits until the server's head has left.
#[derive(Debug)]
pub(super) struct PassthroughSwitch {
    agent: SharedSocket,
    /// How often the server had written when it got its last frame.
    gave: Option<u64>,
}

impl PassthroughSwitch {
    pub fn new(agent: SharedSocket) -> PassthroughSwitch {
        PassthroughSwitch { agent, gave: None }
    }

    /// The server got a frame to write, after the head where it is the first.
    pub fn gave(&mut self) {
        self.gave = Some(self.agent.writes());
    }

    /// Whether all that the server got has left.
    pub fn is_open(&self) -> bool {
        self.gave
            .is_some_and(|writes| self.agent.is_clear_since(writes))
    }

    pub fn past(self) -> PassthroughWriter {
        PassthroughWriter::new(self.agent)
    }
}
