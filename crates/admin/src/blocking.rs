//! Runs a few handlers at a time on blocking threads, so that the thread that serves connections stays free for health
//! checks.

use super::fair_shares::FairShares;
use super::runtime::BLOCKING;
use super::server::Source;
use super::{METRICS, api, health};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tokio::runtime::Handle;

/// Concurrent scrapes, which have their own limit so that they do not wait for slow queries.
const SCRAPES: usize = 1;
/// Other concurrent handlers; further requests wait. Each handler may need a second thread for the ledger.
const OTHERS: usize = (BLOCKING - SCRAPES) / 2;
const PER_SOURCE: usize = 2;

#[derive(Debug)]
pub(super) struct HandlerLimits {
    scrapes: FairShares,
    others: FairShares,
}

impl Default for HandlerLimits {
    fn default() -> HandlerLimits {
        HandlerLimits {
            scrapes: FairShares::new(SCRAPES, SCRAPES),
            others: FairShares::new(OTHERS, PER_SOURCE),
        }
    }
}

pub(super) async fn run(
    State(limits): State<Arc<HandlerLimits>>,
    request: Request,
    next: Next,
) -> Response {
    let turns = match request.uri().path() {
        path if health::PATHS.contains(&path) => return next.run(request).await,
        METRICS => &limits.scrapes,
        _ => &limits.others,
    };
    let source = request.extensions().get::<Source>().copied();
    let Some(turn) = turns.wait(source).await else {
        return failed();
    };
    let here = Handle::current();
    let response = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        here.block_on(next.run(request))
    });
    response.await.unwrap_or_else(|_| failed())
}

fn failed() -> Response {
    let message = "an internal error occurred; the log of tokengauge may say more";
    api::Problem::new(StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::serve;
    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket, TcpStream};
    use tokio::time::timeout;

    const HANGS: Duration = Duration::from_secs(20);

    #[derive(Default)]
    struct BlockedHandlers(Mutex<bool>, Condvar);

    impl BlockedHandlers {
        fn wait(&self) {
            let released = self.0.lock().expect("no panic");
            let released = self.1.wait_timeout_while(released, HANGS, |free| !*free);
            drop(released.expect("no panic"));
        }

        fn release(&self) {
            *self.0.lock().expect("no panic") = true;
            self.1.notify_all();
        }
    }

    async fn ask(port: u16, from: [u8; 4], path: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((from, 0).into()).expect("an address");
        let connected = socket.connect(([127, 0, 0, 1], port).into()).await;
        let mut tcp = connected.expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        tcp.write_all(request.as_bytes()).await.expect("written");
        tcp
    }

    async fn answer(mut tcp: TcpStream) -> String {
        let mut response = String::new();
        let read = timeout(HANGS / 2, tcp.read_to_string(&mut response)).await;
        read.expect("in time").expect("read");
        response
    }

    #[tokio::test]
    async fn slow_answers_hold_up_neither_health_nor_scrapes_nor_other_sources() {
        const ONE: [u8; 4] = [127, 0, 0, 1];
        const OTHER: [u8; 4] = [127, 0, 0, 2];
        let blocked = Arc::new(BlockedHandlers::default());
        let of_slow = Arc::clone(&blocked);
        let slow = move || {
            let blocked = Arc::clone(&of_slow);
            async move { blocked.wait() }
        };
        let quick = || get(|| async { "quick" });
        let service = Router::new()
            .route("/slow", get(slow))
            .route("/livez", quick())
            .route(METRICS, quick())
            .route("/other", quick())
            .layer(from_fn_with_state(Arc::<HandlerLimits>::default(), run));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let never = std::future::pending();
        let server = tokio::spawn(serve(listener, service, None, Arc::default(), never));
        let mut slow = Vec::new();
        for _ in 0..10 {
            slow.push(ask(port, ONE, "/slow").await);
        }
        for (from, path) in [(ONE, "/livez"), (ONE, METRICS), (OTHER, "/other")] {
            let response = answer(ask(port, from, path).await).await;
            assert!(response.ends_with("quick"), "{path}: {response}");
        }
        blocked.release();
        for slow in slow {
            assert!(answer(slow).await.starts_with("HTTP/1.1 200"));
        }
        server.abort();
    }
}
