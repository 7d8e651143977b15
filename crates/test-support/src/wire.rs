//! What several tests share.
pub mod encode;
pub mod event_stream;
pub mod frames;
pub mod reading;
