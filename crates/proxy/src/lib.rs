#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // they panic when the stream is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod abort_body;
mod address;
mod agent_body;
mod agent_connection;
mod agent_io;
mod body;
mod body_admission;
mod body_error;
mod call_handle;
mod clock;
mod connection;
mod discard_body;
mod drain;
mod exchange;
mod filter;
mod forward;
pub mod headers;
mod http1;
pub mod limit;
pub mod listener;
mod maybe_tls;
mod message;
mod read_buffer;
mod refusal;
mod respond;
mod rewrite;
mod route;
mod routing;
mod send;
mod send_timeout;
pub mod settings;
mod split;
mod tap;
mod threads;
mod timer;
mod upgrade;
mod upload;
mod upstream;
mod upstream_body;

pub use drain::Shutdown;
pub use forward::{Forwarder, UpstreamConnections};
pub use http1::{ChunkedDecoder, DecodedChunks, ResponseBodyError};
pub use listener::{
    ActiveListeners, BindError, BoundListener, DrainSummary, ListenerUpdate, serve,
};
pub use routing::Routing;
pub use threads::TrafficRuntimes;
pub use upstream::EndpointLoad;

use agent_connection::AgentConnection;
use drain::Drain;
use send_timeout::SendState;
use std::net::SocketAddr;
use std::sync::Arc;

#[derive(Clone, Debug)]
struct ConnectionInfo {
    peer: SocketAddr,
    port: u16,
    tls: bool,
    /// The connection's view of the shutdown. Keeps the connection counted as open.
    drain: Drain,
    /// Whether the agent accepts data, and why the connection was closed.
    send_state: Arc<SendState>,
    /// The connection itself, if it uses HTTP/1.
    http1: Option<AgentConnection>,
}
