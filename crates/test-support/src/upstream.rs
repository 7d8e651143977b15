//! An upstream that does exactly what its test says.

use crate::connection::RawConnection;
use crate::soon;
use std::net::SocketAddr;
use tokio::net::TcpListener;

pub struct Upstream {
    pub listener: TcpListener,
    pub address: SocketAddr,
}

impl Upstream {
    pub async fn bind() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Upstream { listener, address }
    }

    pub async fn accept(&self) -> RawConnection {
        let (tcp, _) = soon("a connection to the upstream", self.listener.accept())
            .await
            .unwrap();
        tcp.set_nodelay(true).unwrap();
        RawConnection::new(tcp)
    }
}

pub fn fields(head: &str) -> Vec<&str> {
    head.trim_end().lines().skip(1).collect()
}
