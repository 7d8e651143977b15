//! HTTP/1 upstreams: hyper writes requests and reads response heads; bodies are read here,
//! where whoever wants a chunk polls the socket itself.

mod body;
mod chunked;
mod heads;
mod interim;

pub(super) use body::{Piece, Response};
pub use chunked::{Chunked, Read as ChunkedRead};
pub(super) use heads::{HeadReader, HeadsControl};

/// Why a response body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The connection was lost.
    #[error("the connection was lost")]
    Lost,
    /// The connection was closed before the body was over.
    #[error("the connection was closed before the end of the body")]
    Early,
    /// The chunked coding is wrong.
    #[error("the chunked coding is malformed")]
    Chunk,
    /// The trailers are wrong.
    #[error("the trailers are malformed")]
    Trailers,
}
