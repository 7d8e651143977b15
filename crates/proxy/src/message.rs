//! Requests from agents and responses to agents, independent of the HTTP version.

use super::agent_body::AgentBody;
use super::body::Body;
use super::http1::FieldNames;
use super::upgrade::Tunnel;
use bytes::Bytes;
use http::{Response, request, response};

pub(super) struct AgentRequest {
    pub parts: request::Parts,
    pub names: FieldNames,
    pub body: AgentBody,
}

pub(super) struct AgentResponse {
    pub parts: response::Parts,
    pub names: FieldNames,
    pub reason: Option<Bytes>,
    pub body: Body,
    /// The upstream responded before it had the whole request. The rest of the request is dropped when the response is
    /// complete.
    pub ends_upload: bool,
    pub tunnel: Option<Box<Tunnel>>,
}

impl From<Response<Body>> for AgentResponse {
    fn from(response: Response<Body>) -> AgentResponse {
        let (parts, body) = response.into_parts();
        AgentResponse {
            parts,
            names: FieldNames::default(),
            reason: None,
            body,
            ends_upload: false,
            tunnel: None,
        }
    }
}

impl From<AgentResponse> for Response<Body> {
    fn from(response: AgentResponse) -> Response<Body> {
        Response::from_parts(response.parts, response.body)
    }
}
