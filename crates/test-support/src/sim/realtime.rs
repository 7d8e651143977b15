//! A real WebSocket client of the simulator.

use super::Sim;
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

pub struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    heard: Vec<String>,
}

impl Client {
    pub async fn connect(sim: &Sim, model: &str) -> Client {
        let url = format!("ws://{}/v1/realtime?model={model}", sim.address);
        let (socket, _) = connect_async(url).await.expect("a session");
        Client {
            socket,
            heard: Vec::new(),
        }
    }

    pub async fn send(&mut self, event: Value) {
        self.socket
            .send(Message::text(event.to_string()))
            .await
            .expect("sent");
    }

    /// Reads until an event of this type arrives.
    pub async fn until(&mut self, kind: &str) {
        loop {
            let message = self.socket.next().await.expect("open").expect("readable");
            let Message::Text(text) = message else {
                continue;
            };
            let event: Value = serde_json::from_str(&text).expect("JSON");
            self.heard.push(text.to_string());
            if event["type"] == kind {
                return;
            }
        }
    }

    pub fn lines(&self) -> String {
        self.heard.join("\n")
    }
}
