//! How a dialect works over a WebSocket that carries several answers.

use super::Reader;
use super::json::Text;
use serde::Deserialize;

/// A message of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketRequest<'a> {
    /// It sets up how all answers are generated: the JSON object with the setup.
    Setup(&'a [u8]),
    /// It asks for an answer: the whole message.
    Response(&'a [u8]),
    /// It asks for an answer, unless the server decides that the agent has not finished.
    PossibleResponse,
    /// It asks for an answer and is longer than [`SMALL_BODY`](tokengauge_core::memory::SMALL_BODY): it is not parsed, since that
    /// would delay forwarding.
    Oversized,
}

/// How a dialect works over a WebSocket that carries several answers.
pub struct SocketProtocol {
    /// Makes a reader of the server's messages, if they differ from those over HTTP.
    pub reader: Option<fn() -> Box<dyn Reader>>,
    /// Classifies a message of the agent.
    pub read_request: fn(&[u8]) -> Option<SocketRequest<'_>>,
    /// Byte strings, without spaces, that identify messages that ask for an answer and are too
    /// long to be parsed.
    pub long_requests: &'static [&'static [u8]],
}

impl SocketProtocol {
    /// OpenAI's protocol, for Realtime and responses: `response.create` asks for an answer.
    pub const RESPONSE_CREATE: SocketProtocol = SocketProtocol {
        reader: None,
        read_request: response_create,
        long_requests: &[b"type\":\"response.create\""],
    };
}

/// OpenAI's Realtime and responses.
fn response_create(payload: &[u8]) -> Option<SocketRequest<'_>> {
    #[derive(Deserialize)]
    struct Request<'a> {
        #[serde(borrow, default)]
        r#type: Text<'a>,
    }
    let request: Request<'_> = serde_json::from_slice(payload).ok()?;
    (&*request.r#type == "response.create").then_some(SocketRequest::Response(payload))
}
