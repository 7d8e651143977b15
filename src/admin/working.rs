//! Answers are worked out on threads of their own, a few at once: the thread that serves
//! connections is free for health checks, whatever is asked beside them.

use super::beside::BLOCKING;
use super::{api, health};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Answers worked out at once; others wait. Each may need a second thread for the ledger.
const AT_ONCE: usize = BLOCKING / 2;

/// Lets in as many requests as there are to be at once.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Gate {
        Gate(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

/// Answers a request on a thread that may be busy for long.
pub(super) async fn apart(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    if health::PATHS.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let Ok(turn) = gate.0.acquire_owned().await else {
        return failed();
    };
    let here = Handle::current();
    let answer = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        here.block_on(next.run(request))
    });
    answer.await.unwrap_or_else(|_| failed())
}

fn failed() -> Response {
    let message = "tokengauge failed while it worked this out; its log may say more";
    api::Problem::new(StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
}
