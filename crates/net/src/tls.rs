//! TLS for connections from agents and to upstreams. Both sides reload changed files for new connections.

mod files;
mod reload;

use crate::endpoint::Protocol;
use reload::Reloading;
use rustls::crypto::ring;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, RootCertStore, ServerConfig, WantsVerifier,
};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

pub use files::Invalid;

const H2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// TLS for connections from agents. Changed files are reloaded.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerTls {
    /// PEM.
    pub certificate: PathBuf,
    /// PEM.
    pub key: PathBuf,
    /// If set, agents must present a certificate that one of these authorities signed.
    pub client_ca: Option<PathBuf>,
}

/// TLS for connections to an upstream. Changed files are reloaded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientTls {
    /// Trusted root certificates, PEM. They override the system's.
    pub ca: Option<PathBuf>,
    /// Client certificate chain and key, PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Server name for SNI and verification. It overrides the endpoint's host.
    pub server_name: Option<String>,
}

/// TLS client for connections to an upstream.
#[derive(Debug)]
pub struct Connector {
    config: Reloading<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

impl Connector {
    /// Reads the files that `tls` names.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or its content cannot be used.
    pub fn new(tls: &ClientTls, protocol: Protocol) -> Result<Connector, Invalid> {
        Connector::with_alpn(
            tls,
            match protocol {
                Protocol::Auto => &[H2, HTTP1],
                Protocol::Http1 => &[HTTP1],
                Protocol::Http2 => &[H2],
            },
        )
    }

    /// A connector without ALPN, for protocols other than HTTP.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or its content cannot be used.
    pub fn without_alpn(tls: &ClientTls) -> Result<Connector, Invalid> {
        Connector::with_alpn(tls, &[])
    }

    fn with_alpn(
        tls: &ClientTls,
        protocols: &'static [&'static [u8]],
    ) -> Result<Connector, Invalid> {
        let server_name = tls.server_name.as_deref().map(server_name).transpose()?;
        let identity_files = tls
            .identity
            .iter()
            .flat_map(|(certificate, key)| [certificate, key]);
        let files = tls.ca.iter().chain(identity_files).cloned().collect();
        let tls = tls.clone();
        let config = Reloading::new(
            files,
            Instant::now(),
            Box::new(move || client_config(&tls, protocols)),
        )?;
        Ok(Connector {
            config,
            server_name,
        })
    }

    /// Performs the handshake. `host` is the endpoint's host, with or without the brackets of an IPv6 address. It is
    /// sent as SNI and verified unless `server_name` is set. The returned stream knows the protocol that ALPN chose.
    ///
    /// # Errors
    ///
    /// Returns an error if the handshake fails. The message says what the operator can do.
    pub async fn connect<T>(&self, tcp: T, host: &str) -> io::Result<client::TlsStream<T>>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => server_name(host).map_err(io::Error::other)?,
        };
        let connector = TlsConnector::from(self.config.current(Instant::now()));
        connector
            .connect(name.clone(), tcp)
            .await
            .map_err(|error| explain(error, &name))
    }
}

/// TLS server for connections from agents.
#[derive(Debug)]
pub struct Acceptor {
    config: Reloading<ServerConfig>,
}

impl Acceptor {
    /// Reads the files that `tls` names.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or its content cannot be used.
    pub fn new(tls: &ServerTls) -> Result<Acceptor, Invalid> {
        let files = [&tls.certificate, &tls.key]
            .into_iter()
            .chain(&tls.client_ca)
            .cloned()
            .collect();
        let tls = tls.clone();
        let config = Reloading::new(files, Instant::now(), Box::new(move || server_config(&tls)))?;
        Ok(Acceptor { config })
    }

    /// Performs the handshake, without a timeout.
    ///
    /// # Errors
    ///
    /// Returns an error if the handshake fails.
    pub async fn accept(&self, tcp: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
        TlsAcceptor::from(self.config.current(Instant::now()))
            .accept(tcp)
            .await
    }
}

fn client_config(tls: &ClientTls, protocols: &[&[u8]]) -> Result<ClientConfig, Invalid> {
    let roots = match &tls.ca {
        Some(file) => Arc::new(files::roots(file)?),
        None => system_roots()?,
    };
    let builder = client_builder().with_root_certificates(roots);
    let mut config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(files::certificates(certificate)?, files::private_key(key)?)
            .map_err(|error| Invalid::pair(certificate, key, &error))?,
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

fn server_config(tls: &ServerTls) -> Result<ServerConfig, Invalid> {
    let builder = server_builder();
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let roots = Arc::new(files::roots(file)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(
                roots,
                Arc::new(ring::default_provider()),
            );
            let verifier = verifier
                .build()
                .map_err(|error| Invalid::authority(file, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(
            files::certificates(&tls.certificate)?,
            files::private_key(&tls.key)?,
        )
        .map_err(|error| Invalid::pair(&tls.certificate, &tls.key, &error))?;
    config.alpn_protocols = vec![H2.to_vec(), HTTP1.to_vec()];
    Ok(config)
}

/// The system clock. The clock of rustls panics if the system time is before 1970. With this one, certificate
/// verification fails instead.
#[derive(Debug)]
struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Some(UnixTime::since_unix_epoch(since.unwrap_or_default()))
    }
}

/// Names the crypto provider explicitly, because a process may have a second one compiled in.
fn client_builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_details(Arc::new(ring::default_provider()), Arc::new(WallClock))
        .with_safe_default_protocol_versions()
        .expect("ring has the suites of TLS 1.2 and 1.3")
}

fn server_builder() -> ConfigBuilder<ServerConfig, WantsVerifier> {
    ServerConfig::builder_with_details(Arc::new(ring::default_provider()), Arc::new(WallClock))
        .with_safe_default_protocol_versions()
        .expect("ring has the suites of TLS 1.2 and 1.3")
}

/// The system's root certificates, read once and shared by all upstreams.
fn system_roots() -> Result<Arc<RootCertStore>, Invalid> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    if roots.is_empty() {
        Err(Invalid::NoSystemRoots)
    } else {
        Ok(Arc::clone(roots))
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, Invalid> {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    ServerName::try_from(bare.to_owned()).map_err(|_| Invalid::ServerName {
        name: host.to_owned(),
    })
}

/// Appends advice for the operator to the message of rustls.
fn explain(error: io::Error, name: &ServerName<'_>) -> io::Error {
    let Some(cause) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    else {
        return error;
    };
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext,
        UnknownIssuer,
    };
    let name = name.to_str();
    let advice = match cause {
        // If an authority has the expected name but a different key, verification fails with a bad signature.
        rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature) => {
            "no trusted authority signed its certificate; set `tls.ca` to trust another one"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. }) => {
            "its certificate has expired".to_owned()
        }
        rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            format!(
                "its certificate is not for `{name}`; set `tls.server_name` to expect another name"
            )
        }
        rustls::Error::InvalidMessage(_) => "it does not speak TLS on this port".to_owned(),
        rustls::Error::AlertReceived(alert) => {
            format!(
                "it refused the handshake ({alert:?}); it may require a client certificate (`tls.certificate`, `tls.key`)"
            )
        }
        rustls::Error::NoApplicationProtocol => {
            "it does not support the requested protocol".to_owned()
        }
        other => other.to_string(),
    };
    io::Error::new(error.kind(), advice)
}
