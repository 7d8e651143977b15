//! The short way of a chunk: from the upstream's socket to the agent's as it came.

use crate::proxy::direct::{Direct, Past};
use crate::proxy::http1::Piece;
use std::io;
use std::task::{Context, Poll};

/// Writes past the server, once its head has left.
#[derive(Debug)]
pub(super) struct Express {
    past: Past,
    /// How often the server had written when it got its last frame.
    handed: Option<u64>,
    open: bool,
}

/// Who sees to a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// It has left.
    Sent,
    /// The server: it can write the last piece and the end of the body at once.
    Left,
}

impl Express {
    pub fn new(agent: Direct) -> Express {
        Express {
            past: Past::new(agent),
            handed: None,
            open: false,
        }
    }

    /// The server gets a frame to write, behind the head where it is the first.
    pub fn hands_over(&mut self) {
        self.handed = Some(self.past.agent().writes());
    }

    /// Whether all that the server got has left.
    pub fn is_open(&mut self) -> bool {
        let agent = self.past.agent();
        self.open = self.open
            || self
                .handed
                .is_some_and(|writes| agent.is_clear_since(writes));
        self.open
    }

    /// Writes what was left over.
    pub fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.past.poll_unsent(cx)
    }

    /// Sends a piece that lies in `buffer`.
    pub fn pass(
        &mut self,
        cx: &mut Context<'_>,
        piece: &Piece,
        buffer: &[u8],
    ) -> io::Result<Passed> {
        if piece.last && piece.whole_chunks && !piece.payload.is_empty() {
            return Ok(Passed::Left);
        }
        self.past.send(cx, &buffer[piece.raw.clone()])?;
        Ok(Passed::Sent)
    }
}
