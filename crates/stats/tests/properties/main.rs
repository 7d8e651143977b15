//! Properties of the functions for any input.

mod any_input;
mod symmetries;
