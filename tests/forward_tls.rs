//! Upstreams over TLS: ALPN, untrusted certificates and upgrades.

use crate::process::Process;
use http::uri::Scheme;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokengauge_config::{ClientTls, Protocol};
use tokengauge_core::observer::{End, FailureKind};
use tokengauge_test_support::certificates::Authority;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::Setup;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

struct Backend {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

/// Answers with the HTTP version of the request. After an upgrade, echoes bytes in capitals.
async fn respond(mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let version = format!("{:?}", request.version());
    if !request.headers().contains_key("upgrade") {
        return Ok(Response::new(Full::from(version)));
    }
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgraded.await.unwrap());
        let mut word = [0; 5];
        io.read_exact(&mut word).await.unwrap();
        word.make_ascii_uppercase();
        io.write_all(&word).await.unwrap();
        io.shutdown().await.unwrap();
    });
    let response = Response::builder()
        .status(101)
        .header("connection", "upgrade")
        .header("upgrade", "websocket");
    Ok(response.body(Full::default()).unwrap())
}

async fn backend(authority: &Authority, alpn: &[&str]) -> Backend {
    let (certificate, key) = authority.issue("backend", "127.0.0.1");
    let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&connections);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut serving = JoinSet::new();
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            let counted = Arc::clone(&counted);
            serving.spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else {
                    return;
                };
                counted.fetch_add(1, Ordering::SeqCst);
                let server = auto::Builder::new(TokioExecutor::new());
                let io = TokioIo::new(tls);
                let serving = server.serve_connection_with_upgrades(io, service_fn(respond));
                drop(serving.await);
            });
        }
    });
    Backend {
        address,
        connections,
        _tasks: tasks,
    }
}

fn setup(backend: &Backend, authority: &Authority) -> Setup {
    Setup {
        scheme: Scheme::HTTPS,
        tls: ClientTls {
            ca: Some(authority.file.clone()),
            ..ClientTls::default()
        },
        ..Setup::to(backend.address)
    }
}

#[tokio::test]
async fn alpn_chooses_the_protocol_and_connections_are_shared() {
    let authority = Authority::new();
    for (alpn, protocol, expected) in [
        (&["h2", "http/1.1"][..], Protocol::Auto, "HTTP/2.0"),
        (&["http/1.1"], Protocol::Auto, "HTTP/1.1"),
        (&[], Protocol::Auto, "HTTP/1.1"),
        (&["h2", "http/1.1"], Protocol::Http1, "HTTP/1.1"),
        (&["h2", "http/1.1"], Protocol::Http2, "HTTP/2.0"),
    ] {
        let backend = backend(&authority, alpn).await;
        let settings = Setup {
            protocol,
            ..setup(&backend, &authority)
        };
        let proxy = settings.start().await;
        let mut agent = RawConnection::connect(proxy.address).await;
        for _ in 0..3 {
            agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
            agent.read_head().await;
            assert_eq!(agent.read_exact(8).await, expected.as_bytes());
        }
        assert_eq!(
            backend.connections.load(Ordering::SeqCst),
            1,
            "{alpn:?} {protocol:?}"
        );
        let calls = proxy.recorder.ended_calls(3).await;
        assert!(calls.iter().all(|call| call.ended() == Some(End::Complete)));
    }
}

/// Only the thread that uses a connection is notified of its data, so the connection must move between the threads.
#[tokio::test]
async fn an_idle_connection_serves_agents_of_two_threads_in_turn() {
    let authority = Authority::new();
    let backend = backend(&authority, &["http/1.1"]).await;
    let url = format!("https://{}", backend.address);
    let trust = format!("tls.ca = {:?}", authority.file);
    let (process, _folder) = Process::start_threads(2, &url, &trust).await;
    let address = process.addresses()[0];
    let mut agents = [
        RawConnection::connect(address).await,
        RawConnection::connect(address).await,
    ];
    for _ in 0..10 {
        for agent in &mut agents {
            agent.get("/u/").await;
            agent.text_until("\r\n\r\nHTTP/1.1").await;
            // The proxy answers this itself once the connection is idle.
            agent.get("/none").await;
            agent.text_until("404").await;
            agent.read_head().await;
        }
    }
    assert_eq!(backend.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_burst_to_an_unknown_upstream_ends_up_on_one_http2_connection() {
    let authority = Authority::new();
    let backend = backend(&authority, &["h2"]).await;
    let proxy = setup(&backend, &authority).start().await;
    let mut agents = JoinSet::new();
    for _ in 0..20 {
        let address = proxy.address;
        agents.spawn(async move {
            let mut agent = RawConnection::connect(address).await;
            agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
            agent.read_head().await;
            assert_eq!(agent.read_exact(8).await, b"HTTP/2.0");
        });
    }
    while let Some(done) = agents.join_next().await {
        done.unwrap();
    }
    assert_eq!(backend.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_upgrade_gets_http1_where_alpn_would_choose_http2() {
    let authority = Authority::new();
    let backend = backend(&authority, &["h2", "http/1.1"]).await;
    let proxy = setup(&backend, &authority).start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    assert!(agent.read_head().await.starts_with("HTTP/1.1 101 "));
    agent.write("hello").await;
    assert_eq!(agent.read_to_end().await, b"HELLO");
    drop(agent);
    let call = proxy.recorder.only_call().await;
    assert_eq!(call.ended(), Some(End::Complete));
}

#[tokio::test]
async fn an_upstream_that_cannot_be_trusted_is_not_spoken_to() {
    let authority = Authority::new();
    let backend = backend(&authority, &["h2"]).await;
    let proxy = setup(&backend, &Authority::new()).start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let head = agent.read_head().await;
    assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{head}");
    assert!(
        head.contains("x-tokengauge-error: upstream_tls\r\n"),
        "{head}"
    );
    let call = proxy.recorder.only_call().await;
    assert_eq!(call.ended(), Some(End::Failed(FailureKind::Tls)));
    assert_eq!(backend.connections.load(Ordering::SeqCst), 0);
}
