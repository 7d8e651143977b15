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

/// Scrapes at once: they do not wait for slow questions, nor for each other for long.
const SCRAPES: usize = 1;
/// Other answers worked out at once; more wait. Each may need a second thread for the ledger.
const OTHERS: usize = (BLOCKING - SCRAPES) / 2;

/// Lets in as many requests as there are to be at once.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    scrapes: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            scrapes: Arc::new(Semaphore::new(SCRAPES)),
            others: Arc::new(Semaphore::new(OTHERS)),
        }
    }
}

/// Answers a request on a thread that may be busy for long.
pub(super) async fn apart(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    if health::PATHS.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let turns = match request.uri().path() {
        "/metrics" => gate.scrapes,
        _ => gate.others,
    };
    let Ok(turn) = turns.acquire_owned().await else {
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
