//! Anthropic messages and completions.

use super::{Malformed, Reader, Sink};

/// To be written.
#[derive(Default)]
pub(crate) struct Messages;

impl Reader for Messages {
    fn event(&mut self, _: &str, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }

    fn body(&mut self, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }
}

/// To be written.
#[derive(Default)]
pub(crate) struct Complete;

impl Reader for Complete {
    fn event(&mut self, _: &str, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }

    fn body(&mut self, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }
}
