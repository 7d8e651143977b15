//! HTTP/1 towards upstreams. hyper writes requests and reads response heads; bodies are read here,
//! by whoever forwards them, without another task.

mod body;
mod chunked;
mod heads;
mod interim;

pub(super) use body::{BodyReader, Piece};
pub use chunked::{ChunkedDecoder, DecodedChunks};
pub(super) use heads::{HeadReader, HeadsControl};

/// Why a response body could not be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseBodyError {
    /// The connection was lost.
    #[error("the connection was lost")]
    ConnectionLost,
    /// The connection was closed before the end of the body.
    #[error("the connection was closed before the end of the body")]
    UnexpectedEof,
    /// The chunked coding is malformed.
    #[error("the chunked coding is malformed")]
    InvalidChunk,
    /// The trailers are malformed.
    #[error("the trailers are malformed")]
    InvalidTrailers,
}
