//! TLS faults of an upstream.

use super::fixture::{ProxyFixture, SHORT_TIMEOUT_MS, Setup, ask, chat, request};
use super::message::MessageEnd;
use super::upstream::{ExpectedRecord, recorded};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::ring};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokengauge_test_support::certificates::Authority;
use tokengauge_test_support::meter::words;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};

#[derive(Clone)]
enum Behaviour {
    Tls(TlsAcceptor, &'static str),
    /// Ends the connection during the handshake.
    Cut,
    Plain,
    Silent,
}

const WHOLE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
/// A response without a length: only TLS shows whether it is complete.
const OPEN: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";

fn acceptor((certificate, key): (PathBuf, PathBuf)) -> TlsAcceptor {
    let chain = vec![CertificateDer::from_pem_file(certificate).expect("a certificate")];
    let key = PrivateKeyDer::from_pem_file(key).expect("a key");
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("versions");
    let config = builder.with_no_client_auth().with_single_cert(chain, key);
    TlsAcceptor::from(Arc::new(config.expect("usable")))
}

async fn serve(mut tcp: TcpStream, does: Behaviour) {
    let mut request = vec![0; 64 * 1024];
    match does {
        Behaviour::Tls(acceptor, response) => {
            let Ok(mut tls) = acceptor.accept(tcp).await else {
                return;
            };
            let _ = tls.read(&mut request).await;
            let _ = tls.write_all(response.as_bytes()).await;
            let _ = tls.flush().await;
            if response == WHOLE {
                let _ = tls.shutdown().await;
            }
        }
        Behaviour::Cut => drop(tcp.read(&mut request[..100]).await),
        Behaviour::Plain => {
            let _ = tcp.read(&mut request).await;
            let _ = tcp.write_all(WHOLE.as_bytes()).await;
        }
        Behaviour::Silent => while tcp.read(&mut request).await.is_ok_and(|read| read > 0) {},
    }
}

async fn backend(does: Arc<Mutex<Behaviour>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let does = does.lock().expect("no panic").clone();
            tokio::spawn(serve(tcp, does));
        }
    });
    address
}

/// The response that an agent gets if it trusts the authority and calls the backend without the proxy.
struct DirectResponse {
    received: Vec<u8>,
    end: io::Result<()>,
}

async fn alone(backend: SocketAddr, authority: &Authority) -> DirectResponse {
    let mut received = Vec::new();
    let limit = Duration::from_millis(SHORT_TIMEOUT_MS);
    let end = timeout(limit, call(backend, authority, &mut received)).await;
    DirectResponse {
        received,
        end: end.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
    }
}

async fn call(
    backend: SocketAddr,
    authority: &Authority,
    received: &mut Vec<u8>,
) -> io::Result<()> {
    let mut roots = RootCertStore::empty();
    let own = CertificateDer::from_pem_file(&authority.file).expect("a certificate");
    roots.add(own).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("versions");
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let connector = TlsConnector::from(Arc::new(config));
    let mut tls = connector
        .connect(name, TcpStream::connect(backend).await?)
        .await?;
    tls.write_all(chat("alone", "HTTP/1.1").as_bytes()).await?;
    tls.read_to_end(received).await.map(drop)
}

struct Fault {
    name: &'static str,
    does: Behaviour,
    status: &'static str,
    recorded: ExpectedRecord,
}

fn faults(authority: &Authority, strange: &Authority) -> Vec<Fault> {
    let untrusted = || recorded("unreachable", Some("upstream_tls"), None);
    let with = |certificate| Behaviour::Tls(acceptor(certificate), WHOLE);
    let fault = |name, does| Fault {
        name,
        does,
        status: "502",
        recorded: untrusted(),
    };
    vec![
        fault(
            "certificate for another name",
            with(authority.issue("wrong", "other.test")),
        ),
        fault(
            "expired certificate",
            with(authority.issue_expired("old", "localhost")),
        ),
        fault(
            "certificate of an unknown authority",
            with(strange.issue("strange", "localhost")),
        ),
        fault("handshake cut off", Behaviour::Cut),
        fault("plain text instead of TLS", Behaviour::Plain),
        Fault {
            status: "504",
            recorded: recorded("timeout", Some("upstream_connect_timeout"), None),
            ..fault("handshake without answer", Behaviour::Silent)
        },
    ]
}

pub fn names() -> Vec<&'static str> {
    let faults = faults(&Authority::new(), &Authority::new());
    faults.iter().map(|fault| fault.name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_whose_tls_is_wrong() {
    let (authority, strange) = (Authority::new(), Authority::new());
    let good = acceptor(authority.issue("good", "localhost"));
    let does = Arc::new(Mutex::new(Behaviour::Tls(good.clone(), WHOLE)));
    let address = backend(Arc::clone(&does)).await;
    let fixture = ProxyFixture::with_upstream(|setup: &mut Setup| {
        setup.url = format!("https://localhost:{}", address.port());
        setup.timeout_ms = SHORT_TIMEOUT_MS;
        setup.upstream = format!("tls.ca = {:?}\n", authority.file);
    });
    let fixture = fixture.await;
    let works = || async {
        *does.lock().expect("no panic") = Behaviour::Tls(good.clone(), WHOLE);
        let alone = alone(address, &authority).await;
        assert!(alone.end.is_ok(), "{:?}", alone.end);
        assert_eq!(alone.received, WHOLE.as_bytes());
        let seen = ask(fixture.proxy(), &request("ordinary")).await;
        assert_eq!(
            (seen.body.as_slice(), seen.end),
            (&b"hello"[..], MessageEnd::Whole),
            "{seen:?}"
        );
    };
    works().await;
    for fault in faults(&authority, &strange) {
        let session = fault.name.replace(' ', "-");
        *does.lock().expect("no panic") = fault.does;
        let alone = alone(address, &authority).await;
        assert!(alone.end.is_err(), "{}: no fault without us", fault.name);
        assert!(
            alone.received.is_empty(),
            "{}: {:?}",
            fault.name,
            alone.received
        );
        let seen = ask(fixture.proxy(), &request(&session)).await;
        assert_eq!(
            seen.what.as_deref(),
            Some(fault.status),
            "{}: {seen:?}",
            fault.name
        );
        assert_eq!(
            seen.error.as_deref(),
            fault.recorded.error,
            "{}",
            fault.name
        );
        let record = fixture.record(&session).await;
        assert!(fault.recorded.is(&record), "{}: {record}", fault.name);
        fixture.returns_to_idle(fault.name).await;
        works().await;
    }
}

/// Otherwise an attacker who can cut a connection could make a part of a response look complete.
#[tokio::test(flavor = "multi_thread")]
async fn a_tls_connection_cut_without_close_notify_is_not_a_complete_answer() {
    let authority = Authority::new();
    let good = acceptor(authority.issue("good", "localhost"));
    let response: &'static str = Box::leak(format!("{OPEN}{}", words(5)).into_boxed_str());
    let does = Arc::new(Mutex::new(Behaviour::Tls(good.clone(), response)));
    let address = backend(Arc::clone(&does)).await;
    let fixture = ProxyFixture::with_upstream(|setup: &mut Setup| {
        setup.url = format!("https://localhost:{}", address.port());
        setup.upstream = format!("tls.ca = {:?}\n", authority.file);
    });
    let fixture = fixture.await;
    let alone = alone(address, &authority).await;
    assert_eq!(alone.received, response.as_bytes());
    let cut = alone.end.expect_err("a cut").kind();
    assert_eq!(cut, io::ErrorKind::UnexpectedEof);
    let seen = ask(fixture.proxy(), &request("tls-cut")).await;
    assert_eq!(
        (seen.body, seen.end),
        (words(5).into_bytes(), MessageEnd::Short)
    );
    assert_eq!(fixture.record("tls-cut").await["outcome"], "upstream_reset");
    fixture.returns_to_idle("a cut").await;
}
