//! Bedrock converse and invoke.

use super::{Malformed, Reader, Sink};

/// To be written.
#[derive(Default)]
pub(crate) struct Converse;

impl Reader for Converse {
    fn event(&mut self, _: &str, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }

    fn body(&mut self, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }
}

/// To be written.
#[derive(Default)]
pub(crate) struct Invoke;

impl Reader for Invoke {
    fn event(&mut self, _: &str, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }

    fn body(&mut self, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }
}
