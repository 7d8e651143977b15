#[derive(Debug, thiserror::Error)]
pub(super) enum AgentBodyError {
    #[error("the agent's stream broke off: {0}")]
    Http2(#[from] hyper::Error),
    #[error("the agent's connection was lost")]
    Lost,
    #[error("the framing of the request body is malformed")]
    Malformed,
}

impl AgentBodyError {
    pub fn is_malformed(&self) -> bool {
        matches!(self, AgentBodyError::Malformed)
    }
}

/// Why a response body was aborted. The agent sees an incomplete body, not this message.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// The upstream's HTTP/2 body broke off. Hyper passes the reason on to an HTTP/2 agent.
    #[error("the upstream's response broke off")]
    Upstream(#[from] hyper::Error),
    #[error("the upstream's response broke off: {0}")]
    Http1(#[from] super::http1::ResponseBodyError),
    #[error("the agent left")]
    Agent,
    #[error("the upstream sent nothing for too long")]
    Idle,
}
