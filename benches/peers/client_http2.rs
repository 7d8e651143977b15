//! The load client for HTTP/2, over cleartext with prior knowledge.

use crate::agents::Call;
use crate::client::EventReader;
use crate::wire::{KEY, now};
use anyhow::ensure;
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::Request;
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// Flow-control window of a stream and of a connection, larger than any stream here needs.
const WINDOW: u32 = 1 << 24;

/// An agent on a connection that several agents may share.
#[derive(Clone)]
pub struct Http2 {
    requests: SendRequest<Bytes>,
}

impl Http2 {
    /// Connects, and drives the connection on this thread.
    pub async fn open(address: SocketAddr) -> anyhow::Result<Http2> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let mut builder = Builder::new();
        builder
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        let (requests, connection) = builder.handshake(socket).await?;
        tokio::task::spawn_local(async move {
            // Calls on the connection fail with it and report the error.
            let _ = connection.await;
        });
        Ok(Http2 { requests })
    }

    /// Makes one call and passes its body to `events` as it arrives.
    pub async fn exchange(
        &mut self,
        call: &Call,
        events: &mut EventReader<'_>,
    ) -> anyhow::Result<()> {
        let request = Request::post("http://bench/v1/chat/completions")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {KEY}"))
            .header("content-length", call.body.len())
            .body(())?;
        let mut requests = self.requests.clone().ready().await?;
        let (response, mut body) = requests.send_request(request, false)?;
        body.send_data(call.body.clone(), true)?;
        let response = response.await?;
        ensure!(response.status() == 200, "{}", response.status());
        let (mut stream, mut unread) = (response.into_body(), Vec::new());
        while let Some(data) = stream.data().await {
            let data = data?;
            let arrived = now();
            stream.flow_control().release_capacity(data.len())?;
            unread.extend_from_slice(&data);
            events.read(&mut unread, arrived);
        }
        Ok(())
    }
}
