//! Ports that no other test gets.

use std::net::SocketAddr;
use std::sync::LazyLock;
use tokio::net::{TcpListener, TcpSocket};

/// A port that is bound, but not listened on. The system gives it to nobody else, and connections
/// to it are refused. On Linux, one listener at a time can still take it if it reuses addresses.
pub struct HeldPort {
    pub address: SocketAddr,
    _socket: TcpSocket,
}

impl HeldPort {
    pub fn take() -> HeldPort {
        let socket = bound(([127, 0, 0, 1], 0).into());
        HeldPort {
            address: socket.local_addr().expect("an address"),
            _socket: socket,
        }
    }

    /// Listens until the listener is dropped. The port stays reserved.
    pub fn listen(&self) -> TcpListener {
        bound(self.address).listen(1024).expect("listening")
    }
}

fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("an option");
    socket.bind(address).expect("bound");
    socket
}

/// An address that refuses connections until this process ends.
pub fn nowhere() -> SocketAddr {
    static NOWHERE: LazyLock<HeldPort> = LazyLock::new(HeldPort::take);
    NOWHERE.address
}
