//! Ollama chat and generate.

use super::{Malformed, Reader, Sink};

/// To be written.
#[derive(Default)]
pub(crate) struct Ollama;

impl Reader for Ollama {
    fn event(&mut self, _: &str, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }

    fn body(&mut self, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }
}
