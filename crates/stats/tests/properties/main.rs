//! What holds for any input.

mod any_input;
mod symmetries;
