//! A backend that misbehaves as it is asked to.

use super::message::{self, Seen};
use super::play::{End, Gone, Play};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// What an agent says whose connection is to close after the answer.
const CLOSES: &[u8] = b"Connection: close\r\n";

/// What the backend saw of one connection: the request, and how that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    pub request: Seen,
    pub gone: Option<Gone>,
}

/// Speaks HTTP/1. A connection is served until a play ends it.
pub struct Backend {
    pub address: SocketAddr,
    play: Arc<Mutex<Arc<Play>>>,
    visits: Arc<Mutex<Vec<Visit>>>,
}

impl Backend {
    pub async fn start() -> Backend {
        Backend::bind(([127, 0, 0, 1], 0).into()).await
    }

    pub async fn bind(address: SocketAddr) -> Backend {
        let listener = TcpListener::bind(address).await.expect("bound");
        let backend = Backend {
            address: listener.local_addr().expect("an address"),
            play: Arc::default(),
            visits: Arc::default(),
        };
        let (play, visits) = (Arc::clone(&backend.play), Arc::clone(&backend.visits));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(End::new(tcp), Arc::clone(&play), Arc::clone(&visits)));
            }
        });
        backend
    }

    /// What it does with requests from now on.
    pub fn plays(&self, play: &Play) {
        *self.play.lock().expect("no panic") = Arc::new(play.clone());
    }

    /// What it saw since the last time.
    pub fn visits(&self) -> Vec<Visit> {
        std::mem::take(&mut *self.visits.lock().expect("no panic"))
    }
}

async fn serve(mut end: End, play: Arc<Mutex<Arc<Play>>>, visits: Arc<Mutex<Vec<Visit>>>) {
    loop {
        while !message::is_whole(&end.heard) && end.hear_for_ever().await {}
        if end.heard.is_empty() {
            return;
        }
        let raw = std::mem::take(&mut end.heard);
        let request = message::request(&raw, end.gone);
        let last = memchr::memmem::find(&raw, CLOSES).is_some();
        let whole = request.end == message::Ending::Whole;
        let now = Arc::clone(&play.lock().expect("no panic"));
        let goes_on = whole && end.play(&now).await;
        visits.lock().expect("no panic").push(Visit {
            request,
            gone: end.gone,
        });
        if last || !goes_on || end.gone.is_some() {
            return;
        }
    }
}
