//! Moves bytes. No JSON, no tokens, no metric names.

mod forward;
mod headers;
mod limit;
mod listener;
mod tap;
mod tls;
mod upgrade;
mod upstream;
