//! A backend that misbehaves on request.

use super::message::{self, ObservedMessage};
use super::script::{Disconnect, Peer, Script};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// An agent sends this header line on its last request of a connection.
const CLOSES: &[u8] = b"Connection: close\r\n";

/// A request as the backend received it, and how its connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedRequest {
    pub request: ObservedMessage,
    pub gone: Option<Disconnect>,
}

/// An HTTP/1.1 server that answers each request by a script, which may end the connection.
pub struct Backend {
    pub address: SocketAddr,
    script: Arc<Mutex<Arc<Script>>>,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Backend {
    pub async fn start() -> Backend {
        Backend::bind(([127, 0, 0, 1], 0).into()).await
    }

    pub async fn bind(address: SocketAddr) -> Backend {
        let listener = TcpListener::bind(address).await.expect("bound");
        let backend = Backend {
            address: listener.local_addr().expect("an address"),
            script: Arc::default(),
            received: Arc::default(),
        };
        let (script, received) = (Arc::clone(&backend.script), Arc::clone(&backend.received));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(
                    Peer::new(tcp),
                    Arc::clone(&script),
                    Arc::clone(&received),
                ));
            }
        });
        backend
    }

    pub fn set_script(&self, script: &Script) {
        *self.script.lock().expect("no panic") = Arc::new(script.clone());
    }

    pub fn received(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut *self.received.lock().expect("no panic"))
    }
}

async fn serve(
    mut end: Peer,
    script: Arc<Mutex<Arc<Script>>>,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
) {
    loop {
        while !message::is_whole(&end.received) && end.receive_without_timeout().await {}
        if end.received.is_empty() {
            return;
        }
        let raw = std::mem::take(&mut end.received);
        let request = message::request(&raw, end.gone);
        let last = memchr::memmem::find(&raw, CLOSES).is_some();
        let whole = request.end == message::MessageEnd::Whole;
        let now = Arc::clone(&script.lock().expect("no panic"));
        let goes_on = whole && end.play(&now).await;
        received.lock().expect("no panic").push(ReceivedRequest {
            request,
            gone: end.gone,
        });
        if last || !goes_on || end.gone.is_some() {
            return;
        }
    }
}
