//! Address and settings of the quota store.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tokengauge_accounting::sharing::SharingSettings;
use tokengauge_net::tls::ClientTls;

const DEFAULT_PORT: u16 = 6379;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub address: Address,
    pub password: Password,
    /// TLS settings, used if the scheme is `rediss`.
    pub tls: ClientTls,
    pub prefix: String,
    /// Time limit for connecting and for each request.
    pub timeout: Duration,
    pub sharing: SharingSettings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Password {
    /// A file, read for each connection.
    File(PathBuf),
    /// An environment variable. If it is not set, no password is sent.
    Variable(&'static str),
}

/// The server, written as `redis://[user@]host[:port][/database]`, or `rediss://` for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub tls: bool,
    /// `None` for the default user.
    pub user: Option<String>,
    /// Host name or IP address. An IPv6 address has no brackets.
    pub host: String,
    pub port: u16,
    pub database: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    #[error(
        "must be a URL that starts with redis:// or rediss://, such as \"redis://valkey:6379\""
    )]
    Scheme,
    /// The host is missing or the port is invalid.
    #[error("must have a host, and a port unless the port is 6379")]
    Host,
    #[error("must not contain a password; use `password_file` or TOKENGAUGE_QUOTA_STORE_PASSWORD")]
    Password,
    /// The path is not a database number.
    #[error("must have no path after the host, except a database number such as /2")]
    Database,
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Address, InvalidAddress> {
        let (tls, rest) = match text.split_once("://") {
            Some(("redis", rest)) => (false, rest),
            Some(("rediss", rest)) => (true, rest),
            _ => return Err(InvalidAddress::Scheme),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let database = match path {
            "" => 0,
            number => number.parse().map_err(|_| InvalidAddress::Database)?,
        };
        let (user, server) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some((user, _)) if user.contains(':') => return Err(InvalidAddress::Password),
            Some((user, server)) => (Some(user).filter(|user| !user.is_empty()), server),
        };
        let (host, port) = server_parts(server).ok_or(InvalidAddress::Host)?;
        if database < 0 {
            return Err(InvalidAddress::Database);
        }
        Ok(Address {
            tls,
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
            database,
        })
    }
}

/// Host and port of a server. An IPv6 address is in brackets.
fn server_parts(server: &str) -> Option<(&str, u16)> {
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (
                host,
                if port.is_empty() {
                    None
                } else {
                    Some(port.strip_prefix(':')?)
                },
            )
        }
        None => match server.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, None),
        },
    };
    let plain = |one: char| one.is_ascii_alphanumeric() || "-._:".contains(one);
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port > 0)?,
        None => DEFAULT_PORT,
    };
    (!host.is_empty() && host.chars().all(plain)).then_some((host, port))
}

impl std::fmt::Display for Address {
    /// Host and port, for messages.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_what_its_url_says() {
        let address: Address = "redis://valkey".parse().expect("an address");
        assert_eq!(
            (address.tls, address.port, address.database, &address.user),
            (false, 6379, 0, &None)
        );
        let address: Address = "rediss://me@[::1]:7000/3".parse().expect("an address");
        assert_eq!(
            (address.tls, address.port, address.database),
            (true, 7000, 3)
        );
        assert_eq!(address.user.as_deref(), Some("me"));
        assert_eq!(address.to_string(), "[::1]:7000");
    }

    #[test]
    fn what_is_no_address_is_refused_with_its_reason() {
        for (text, reason) in [
            ("http://valkey", InvalidAddress::Scheme),
            ("valkey:6379", InvalidAddress::Scheme),
            ("redis://", InvalidAddress::Host),
            ("redis://:6379", InvalidAddress::Host),
            ("redis://valkey:port", InvalidAddress::Host),
            ("redis://valkey:99999", InvalidAddress::Host),
            ("redis://valkey:0", InvalidAddress::Host),
            ("redis://a:1:2", InvalidAddress::Host),
            ("redis://a b", InvalidAddress::Host),
            ("redis://[::1", InvalidAddress::Host),
            ("redis://[::1]6379", InvalidAddress::Host),
            ("redis://valkey?db=1", InvalidAddress::Host),
            ("redis://me:secret@valkey", InvalidAddress::Password),
            ("redis://:secret@valkey", InvalidAddress::Password),
            ("redis://valkey/two", InvalidAddress::Database),
            ("redis://valkey/-1", InvalidAddress::Database),
        ] {
            assert_eq!(text.parse::<Address>(), Err(reason), "{text}");
        }
    }
}
