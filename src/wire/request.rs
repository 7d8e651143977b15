//! What a request body says of itself.

use crate::call::{Dialect, RequestFacts};

/// Reads the facts of a whole request body; `None` where it cannot be read.
pub fn request_facts(_dialect: Dialect, _body: &[u8]) -> Option<RequestFacts> {
    None
}

/// Gives every prompt text of a request body.
pub fn request_texts(_dialect: Dialect, _body: &[u8], _each: &mut dyn FnMut(&str)) {}
