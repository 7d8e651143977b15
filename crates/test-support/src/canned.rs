//! An upstream with a fixed response for each of a few paths.

use crate::connection::RawConnection;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// `/hello` responds at once, and `/late` after [`CannedUpstream::finish`]. `/stream` sends
/// `first`, and `last` after `finish`. `/tunnel` switches protocols and echoes. `/head` returns the
/// head of the request.
pub struct CannedUpstream {
    pub address: SocketAddr,
    finish: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl CannedUpstream {
    pub async fn start() -> CannedUpstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let finish = watch::Sender::new(false);
        let signal = finish.subscribe();
        let accepting = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(answer(tcp, signal.clone()));
            }
        });
        CannedUpstream {
            address,
            finish,
            accepting,
        }
    }

    /// Ends every stream, including streams that are opened later.
    pub fn finish(&self) {
        self.finish.send_replace(true);
    }
}

impl Drop for CannedUpstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(tcp: TcpStream, mut finish: watch::Receiver<bool>) {
    let mut peer = RawConnection::new(tcp);
    loop {
        let Some(head) = peer.next_head().await else {
            return;
        };
        match head.split(' ').nth(1).expect("a target") {
            "/hello" => {
                peer.write("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
                    .await
            }
            "/late" => {
                let _ = finish.wait_for(|finish| *finish).await;
                peer.write("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
                    .await
            }
            "/head" => {
                let length = head.len();
                peer.write(format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{head}"
                ))
                .await;
            }
            "/stream" => {
                peer.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
                    .await;
                let _ = finish.wait_for(|finish| *finish).await;
                peer.write("4\r\nlast\r\n0\r\n\r\n").await;
            }
            "/tunnel" => {
                peer.write("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n").await;
                let (mut reader, mut writer) = peer.io.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                return;
            }
            other => panic!("no answer to {other}"),
        }
    }
}
