//! # tokengauge
//!
//! A transparent streaming reverse proxy between agents and model backends that
//! measures tokens per second on live traffic.

pub mod admin;
pub mod attribution;
pub mod call;
pub mod cli;
pub mod config;
pub mod export;
pub mod meter;
pub mod observer;
pub mod proxy;
pub mod sim;
pub mod tokens;
pub mod wire;
