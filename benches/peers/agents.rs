//! Agents: connections to a peer that make calls one after the other.

use crate::client::{Connection, EventReader, StreamStats};
use crate::client_http2::Http2;
use crate::scenario::AgentProtocol;
use crate::wire::StreamRequest;
use bytes::Bytes;
use std::net::SocketAddr;

/// A request that is made often, prepared for sending.
#[derive(Clone, Debug)]
pub struct Call {
    pub events: u32,
    pub http1: Bytes,
    pub body: Bytes,
}

impl Call {
    pub fn new(spec: StreamRequest, headers: &str) -> Call {
        Call {
            events: spec.events,
            http1: spec.request(headers).into(),
            body: spec.body("").into(),
        }
    }
}

pub enum Agent {
    Http1(Connection),
    Http2(Http2),
}

impl Agent {
    /// Opens `number` agents. Over HTTP/2, `per_connection` of them share a connection.
    pub async fn open(
        protocol: AgentProtocol,
        address: SocketAddr,
        number: usize,
        per_connection: usize,
    ) -> anyhow::Result<Vec<Agent>> {
        let mut agents = Vec::with_capacity(number);
        match protocol {
            AgentProtocol::Http1 => {
                for _ in 0..number {
                    agents.push(Agent::Http1(Connection::open(address).await?));
                }
            }
            AgentProtocol::Http2 => {
                while agents.len() < number {
                    let connection = Http2::open(address).await?;
                    let sharing = per_connection.min(number - agents.len());
                    agents.extend((0..sharing).map(|_| Agent::Http2(connection.clone())));
                }
            }
        }
        Ok(agents)
    }

    /// Makes one call and reads its stream to the end. Returns the nanoseconds until its first event.
    pub async fn call(&mut self, call: &Call, stats: &StreamStats) -> anyhow::Result<u64> {
        let mut events = EventReader::new(stats);
        let read = match self {
            Agent::Http1(connection) => {
                let each = |body: &mut Vec<u8>, arrived| events.read(body, arrived);
                connection.exchange(&call.http1, each).await
            }
            Agent::Http2(connection) => connection.exchange(call, &mut events).await,
        };
        events.finish(read, call.events)
    }
}
