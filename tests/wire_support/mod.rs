//! What several tests share.
#![allow(dead_code)] // each test file uses a part of it

pub mod encode;
pub mod event_stream;
pub mod frames;
pub mod reading;
