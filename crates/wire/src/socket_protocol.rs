//! How a dialect uses a WebSocket that carries several responses.

use super::Reader;
use super::json::Text;
use serde::Deserialize;

/// A message of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketRequest<'a> {
    /// Sets up how all responses are generated. Contains the JSON object with the setup.
    Setup(&'a [u8]),
    /// Requests a response. Contains the whole message.
    Response(&'a [u8]),
    /// Requests a response, unless the server decides that the agent has not finished.
    PossibleResponse,
    /// Requests a response, but is longer than [`SMALL_BODY`](tokengauge_core::memory::SMALL_BODY).
    /// The message is not parsed, because parsing would delay forwarding.
    Oversized,
}

/// How a dialect uses a WebSocket that carries several responses.
pub struct SocketProtocol {
    /// Makes a reader of the server's messages, if they differ from HTTP.
    pub reader: Option<fn() -> Box<dyn Reader>>,
    /// Classifies a message of the agent.
    pub read_request: fn(&[u8]) -> Option<SocketRequest<'_>>,
    /// Byte strings without spaces that identify requests for a response in messages that are too
    /// long to be parsed.
    pub long_requests: &'static [&'static [u8]],
}

impl SocketProtocol {
    /// OpenAI's protocol in the Realtime and Responses APIs, in which `response.create` requests a response.
    pub const RESPONSE_CREATE: SocketProtocol = SocketProtocol {
        reader: None,
        read_request: response_create,
        long_requests: &[b"type\":\"response.create\""],
    };
}

fn response_create(payload: &[u8]) -> Option<SocketRequest<'_>> {
    #[derive(Deserialize)]
    struct Request<'a> {
        #[serde(borrow, default)]
        r#type: Text<'a>,
    }
    let request: Request<'_> = serde_json::from_slice(payload).ok()?;
    (&*request.r#type == "response.create").then_some(SocketRequest::Response(payload))
}
