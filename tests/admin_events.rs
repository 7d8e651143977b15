//! `/api/v1/events` over a real socket.

use crate::admin_api::Server;
use serde_json::Value;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// A client that reads every event in time.
pub struct Listener {
    stream: TcpStream,
    text: String,
    events: VecDeque<(String, Value)>,
}

impl Listener {
    pub async fn start(to: SocketAddr) -> Listener {
        Listener::start_from(to, [127, 0, 0, 1]).await
    }

    async fn start_from(to: SocketAddr, address: [u8; 4]) -> Listener {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((address, 0).into()).expect("an address");
        let mut stream = socket.connect(to).await.expect("connect");
        let request = "GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).await.expect("write");
        Listener {
            stream,
            text: String::new(),
            events: VecDeque::new(),
        }
    }

    pub async fn next(&mut self) -> Option<(String, Value)> {
        while self.events.is_empty() {
            let mut bytes = [0; 65_536];
            let read = timeout(TIMEOUT, self.stream.read(&mut bytes)).await;
            match read.expect("something comes").expect("read") {
                0 => return None,
                count => self.text += std::str::from_utf8(&bytes[..count]).expect("UTF-8"),
            }
            while let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                let line = |name: &str| {
                    let mut lines = event.lines();
                    lines.find_map(|line| Some(line.strip_prefix(name)?.to_owned()))
                };
                if let (Some(kind), Some(data)) = (line("event: "), line("data: ")) {
                    let data = serde_json::from_str(&data).expect("JSON");
                    self.events.push_back((kind, data));
                }
            }
            if self.text.ends_with("0\r\n\r\n") {
                return None;
            }
        }
        self.events.pop_front()
    }

    async fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let (is, data) = self.next().await.expect("events go on");
            if is == kind {
                return data;
            }
        }
    }
}

#[tokio::test]
async fn a_listener_gets_a_snapshot_then_calls_and_streams_as_they_happen() {
    let server = Server::start().await;
    let mut listener = Listener::start(server.address).await;
    let (kind, data) = listener.next().await.expect("an event");
    assert_eq!(
        (kind.as_str(), &data["total"]),
        ("streams", &Value::from(0))
    );
    let (kind, data) = listener.next().await.expect("an event");
    assert_eq!(
        (kind.as_str(), &data["slos"][0]["name"]),
        ("slos", &Value::from("decoder"))
    );
    server.chat();
    let call = listener.next_of("call").await;
    let logged = server.json("/api/v1/calls").await;
    assert_eq!(call, logged["calls"][0], "the same record");
    let _call = server.bench.chat();
    loop {
        let streams = listener.next_of("streams").await;
        if streams["total"] == 1 {
            assert_eq!(streams["streams"][0]["route"], "route");
            break;
        }
    }
    let scrape = server.fetch("/metrics").await;
    assert_eq!(scrape.status, 200, "others are answered meanwhile");
}

#[tokio::test]
async fn listeners_beyond_the_bound_are_turned_away_with_a_reason() {
    let server = Server::start().await;
    let mut listeners = Vec::new();
    for (address, refusals) in [([127, 0, 0, 2], 0), ([127, 0, 0, 1], 1)] {
        for _ in 0..16 {
            let mut listener = Listener::start_from(server.address, address).await;
            listener.next().await.expect("an event");
            listeners.push(listener);
        }
        // Connections from another address do not use up the limit for `fetch`, which comes from 127.0.0.1.
        if refusals > 0 {
            let refused = fetch(server.address, "/api/v1/events").await;
            assert_eq!(refused.status, 503);
            let full = refused
                .body
                .contains("too many clients already listen to events");
            assert!(full, "{}", refused.body);
        }
        assert_eq!(server.event_bus.listening().refused, refusals);
    }
    drop(listeners.pop());
    let end = std::time::Instant::now() + TIMEOUT;
    while server.event_bus.listening().listeners == 32 {
        assert!(
            std::time::Instant::now() < end,
            "a seat is free once one has left"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn listeners_do_not_hold_up_the_end() {
    let server = Server::start().await;
    let mut listener = Listener::start(server.address).await;
    listener.next().await.expect("an event");
    let begun = std::time::Instant::now();
    server.stop.send(()).expect("it runs");
    while listener.next().await.is_some() {}
    timeout(TIMEOUT, server.served)
        .await
        .expect("in time")
        .expect("no panic");
    // A client that delays shutdown is disconnected after 5 s.
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}
