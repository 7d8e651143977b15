//! Embeddings and rerankers.

use super::{Malformed, Reader, Sink};

/// To be written.
#[derive(Default)]
pub(crate) struct Embeddings;

impl Reader for Embeddings {
    fn event(&mut self, _: &str, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }

    fn body(&mut self, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }
}

/// To be written.
#[derive(Default)]
pub(crate) struct Rerank;

impl Reader for Rerank {
    fn event(&mut self, _: &str, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }

    fn body(&mut self, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }
}
