//! Listen addresses and listening sockets.

use serde::Deserialize;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

/// Backlog: how many connections the kernel queues until they are accepted.
const BACKLOG: i32 = 4096;
/// TCP keep-alive detects dead peers.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(60))
    .with_interval(Duration::from_secs(15));

pub const EXPECTED: &str = "is not an address such as \"127.0.0.1:8080\", \"[::1]:8080\" or \"*:8080\" \
                                   (all addresses of this host, IPv4 and IPv6)";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {EXPECTED}")]
pub struct InvalidAddress {
    pub text: String,
}

/// Parses `IP:PORT`. `*:PORT` means `[::]:PORT`, which is all IPv4 and IPv6 addresses.
///
/// # Errors
/// What is wrong with the text.
pub fn parse(text: &str) -> Result<SocketAddr, InvalidAddress> {
    let port = text
        .strip_prefix("*:")
        .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|port| port.parse::<u16>().ok());
    port.map(|port| SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port))
        .or_else(|| text.parse().ok())
        .ok_or_else(|| InvalidAddress {
            text: text.to_owned(),
        })
}

/// A listen address in a configuration file.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub struct Written(pub SocketAddr);

impl TryFrom<String> for Written {
    type Error = InvalidAddress;

    fn try_from(text: String) -> Result<Written, InvalidAddress> {
        parse(&text).map(Written)
    }
}

/// Opens a non-blocking listener. `[::]` accepts IPv4 and IPv6 whatever the host's default is, and falls back to
/// `0.0.0.0` on a host without IPv6.
///
/// # Errors
/// Why the address cannot be bound.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let every_family = address.is_ipv6() && address.ip().is_unspecified();
    match bound(address, every_family) {
        Err(error) if every_family && has_no_family(&error) => {
            let ipv4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
            bound(ipv4, false)
        }
        result => result,
    }
}

fn bound(address: SocketAddr, every_family: bool) -> io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    if every_family {
        socket.set_only_v6(false)?;
    }
    // Accepted sockets inherit the option.
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Whether the error says that the host does not support the address family.
fn has_no_family(error: &io::Error) -> bool {
    let unknown = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    error.raw_os_error() == Some(unknown) || error.kind() == io::ErrorKind::AddrNotAvailable
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_star_is_every_address_and_anything_else_is_one() {
        assert_eq!(parse("*:8080"), Ok("[::]:8080".parse().expect("one")));
        assert_eq!(
            parse("127.0.0.1:0"),
            Ok("127.0.0.1:0".parse().expect("one"))
        );
        assert_eq!(parse("[::1]:1"), Ok("[::1]:1".parse().expect("one")));
        for text in [
            "",
            "*",
            "*:",
            ":80",
            "*:65536",
            "*:+1",
            "localhost:80",
            "8080",
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.to_string(), format!("`{text}` {EXPECTED}"));
        }
    }

    #[test]
    fn every_address_is_ipv4_too() {
        let listener = listen(parse("*:0").expect("one")).expect("bound");
        let port = listener.local_addr().expect("bound").port();
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        let ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        assert_eq!(
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).is_ok(),
            ipv6
        );
    }
}
