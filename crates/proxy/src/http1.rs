//! HTTP/1 for agents and upstreams. The caller reads and writes heads and bodies directly, without an extra task and
//! without a buffer for idle connections.

mod body;
mod chunked;
mod encoder;
mod exchange;
mod field_names;
mod head;
mod head_reader;
mod interim;
mod request_body;
mod write_buffer;
mod write_request;
mod write_response;

pub(super) use body::{BodyReader, Piece};
pub use chunked::{ChunkedDecoder, DecodedChunks};
pub(super) use encoder::{BodyEncoder, BodyTooShort};
pub(super) use exchange::{ExchangeError, Http1Exchange, Http1Response, UnansweredBody};
pub(super) use field_names::FieldNames;
pub(super) use head::{BodyLength, HeadError, RequestHead, keeps_alive, parse_request};
pub(super) use head_reader::HeadBuffer;
pub(super) use request_body::RequestDecoder;
pub(super) use write_buffer::WriteBuffer;
pub(super) use write_request::{RequestWriter, SendError};
pub(super) use write_response::{BodySize, ResponseContext, WrittenHead, write_response};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseBodyError {
    #[error("the connection was lost")]
    ConnectionLost,
    #[error("the connection was closed before the end of the body")]
    UnexpectedEof,
    #[error("the chunked coding is malformed")]
    InvalidChunk,
    #[error("the trailers are malformed")]
    InvalidTrailers,
}
