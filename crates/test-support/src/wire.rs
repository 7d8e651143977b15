//! Encoders and decoders that several tests of wire formats share.
pub mod encode;
pub mod event_stream;
pub mod frames;
pub mod reading;
