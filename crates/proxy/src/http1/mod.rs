//! HTTP/1 upstreams: hyper writes requests and reads response heads; bodies are read here,
//! where whoever wants a chunk polls the socket itself.

mod body;
mod chunked;
mod heads;
mod interim;

pub(super) use body::{BodyReader, Piece};
pub use chunked::{ChunkedDecoder, DecodedChunks};
pub(super) use heads::{HeadReader, HeadsControl};

/// Why a response body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseBodyError {
    /// The connection was lost.
    #[error("the connection was lost")]
    ConnectionLost,
    /// The connection was closed before the body was over.
    #[error("the connection was closed before the end of the body")]
    UnexpectedEof,
    /// The chunked coding is wrong.
    #[error("the chunked coding is malformed")]
    InvalidChunk,
    /// The trailers are wrong.
    #[error("the trailers are malformed")]
    InvalidTrailers,
}
