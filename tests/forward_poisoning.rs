//! Bytes that an upstream sends after the end of a response never become part of another agent's answer, however late
//! or in however many pieces they arrive. Bytes that arrive after the next request cannot be distinguished from its
//! answer: `tests/real/test_late_bytes.py` compares this case with nginx and haproxy.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokengauge_config::ClientTls;
use tokengauge_test_support::certificates::Authority;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use tokengauge_test_support::SOON;

/// The answer for every agent other than the attacker's.
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nvictim";

/// A whole response, the beginning of one, and bytes that are not a response.
const PLANTED: [&str; 4] = [
    "HTTP/1.1 200 OK\r\nSet-Cookie: planted=1\r\nContent-Length: 7\r\n\r\nplanted",
    "HTTP/1.1 200 OK\r\nSet-Cookie: planted=1\r\nX-Rest: ",
    "HTTP/1.1 103 Early Hints\r\nLink: </planted>\r\n\r\n",
    "planted",
];

/// A complete response: the request's method, and the bytes of the upstream.
const COMPLETE: [(&str, &str); 9] = [
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n",
    ),
    ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"),
    (
        "HEAD",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ),
    ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
    (
        "GET",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
    ),
    (
        "GET",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    ),
];

/// Number of pieces of the planted bytes, and the delay before each.
const LATE: [(usize, Duration); 6] = [
    (1, Duration::ZERO),
    (1, Duration::from_millis(1)),
    (2, Duration::from_millis(5)),
    (3, Duration::from_millis(5)),
    (1, Duration::from_millis(50)),
    (3, Duration::from_millis(20)),
];

#[derive(Clone, Copy)]
struct Attack {
    response: &'static str,
    planted: &'static str,
    pieces: usize,
    each_after: Duration,
}

/// Answers the first request of each connection with the attack, and others correctly.
struct Attacker {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    attack: Attack,
    connections: Arc<AtomicUsize>,
    /// How often all planted bytes were written or refused.
    planted: Arc<AtomicUsize>,
}

impl Attacker {
    async fn serve(self) {
        while let Ok((tcp, _)) = self.listener.accept().await {
            tcp.set_nodelay(true).unwrap();
            self.connections.fetch_add(1, Ordering::SeqCst);
            let (attack, planted) = (self.attack, Arc::clone(&self.planted));
            match self.tls.clone() {
                None => tokio::spawn(converse(tcp, attack, planted)),
                Some(tls) => tokio::spawn(async move {
                    if let Ok(tls) = tls.accept(tcp).await {
                        converse(tls, attack, planted).await;
                    }
                }),
            };
        }
    }
}

async fn converse<I>(mut io: I, attack: Attack, planted: Arc<AtomicUsize>)
where
    I: AsyncReadExt + AsyncWriteExt + Unpin,
{
    let mut bytes = Vec::new();
    loop {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            match io.read_buf(&mut bytes).await {
                Ok(length) if length > 0 => continue,
                _ => return,
            }
        };
        let head: Vec<u8> = bytes.drain(..end + 4).collect();
        if !String::from_utf8_lossy(&head).contains("/attack") {
            if write(&mut io, ANSWER.as_bytes()).await.is_err() {
                return;
            }
            continue;
        }
        let _ = plant(&mut io, attack).await;
        planted.fetch_add(1, Ordering::SeqCst);
    }
}

async fn plant(io: &mut (impl AsyncWriteExt + Unpin), attack: Attack) -> std::io::Result<()> {
    let bytes = attack.planted.as_bytes();
    let mut pieces = bytes.chunks(bytes.len().div_ceil(attack.pieces).max(1));
    let mut first = attack.response.as_bytes().to_vec();
    if attack.each_after.is_zero() {
        first.extend_from_slice(pieces.next().unwrap_or_default());
    }
    write(io, &first).await?;
    for piece in pieces {
        sleep(attack.each_after).await;
        write(io, piece).await?;
    }
    Ok(())
}

async fn write(io: &mut (impl AsyncWriteExt + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    io.write_all(bytes).await?;
    io.flush().await
}

struct PoisoningFixture {
    proxy: Proxy,
    connections: Arc<AtomicUsize>,
    planted: Arc<AtomicUsize>,
}

impl PoisoningFixture {
    async fn start(attack: Attack, tls: Option<&Tls>) -> PoisoningFixture {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut setup = Setup::to(listener.local_addr().unwrap());
        let tls = tls.map(|tls| {
            setup.scheme = http::uri::Scheme::HTTPS;
            setup.tls = ClientTls {
                ca: Some(tls.authority.file.clone()),
                ..ClientTls::default()
            };
            tls.acceptor.clone()
        });
        let (connections, planted) = (Arc::default(), Arc::default());
        let attacker = Attacker {
            listener,
            tls,
            attack,
            connections: Arc::clone(&connections),
            planted: Arc::clone(&planted),
        };
        tokio::spawn(attacker.serve());
        PoisoningFixture {
            proxy: setup.start().await,
            connections,
            planted,
        }
    }

    /// One agent gets the attack. Another agent sends a request once the attack was sent.
    async fn play(&self, method: &str, what: &str) {
        let mut attacked = RawConnection::connect(self.proxy.address).await;
        let head = format!("{method} /attack HTTP/1.1\r\nHost: h\r\n\r\n");
        attacked.write(head).await;
        attacked.read_head().await;
        let end = Instant::now() + SOON;
        while self.planted.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < end, "{what}: the upstream is not done");
            sleep(Duration::from_millis(1)).await;
        }
        // Written bytes arrive at once, because they only cross the loopback interface.
        sleep(Duration::from_millis(2)).await;
        self.victim(what).await;
    }

    async fn victim(&self, what: &str) {
        let mut victim = RawConnection::connect(self.proxy.address).await;
        victim
            .write("GET /victim HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            .await;
        let response = String::from_utf8(victim.read_to_end().await).unwrap();
        assert!(
            response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nvictim"),
            "{what}: {response:?}"
        );
        assert!(!response.contains("planted"), "{what}: {response:?}");
    }
}

struct Tls {
    authority: Authority,
    acceptor: TlsAcceptor,
}

impl Tls {
    fn new() -> Tls {
        let authority = Authority::new();
        let (certificate, key) = authority.issue("upstream", "127.0.0.1");
        let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Tls {
            authority,
            acceptor: TlsAcceptor::from(Arc::new(config)),
        }
    }
}

fn attacks() -> impl Iterator<Item = (&'static str, Attack)> {
    COMPLETE.into_iter().flat_map(|(method, response)| {
        PLANTED.into_iter().flat_map(move |planted| {
            LATE.into_iter().map(move |(pieces, each_after)| {
                let attack = Attack {
                    response,
                    planted,
                    pieces,
                    each_after,
                };
                (method, attack)
            })
        })
    })
}

async fn no_later_request_is_poisoned(tls: Option<Tls>) {
    let mut playing = tokio::task::JoinSet::new();
    let tls = tls.map(Arc::new);
    for (method, attack) in attacks() {
        let what = format!(
            "{method} {:?} + {:?} in {} pieces after {:?}",
            attack.response, attack.planted, attack.pieces, attack.each_after
        );
        let tls = tls.clone();
        playing.spawn(async move {
            let fixture = PoisoningFixture::start(attack, tls.as_deref()).await;
            fixture.play(method, &what).await;
            assert_eq!(fixture.planted.load(Ordering::SeqCst), 1, "{what}");
            let connections = fixture.connections.load(Ordering::SeqCst);
            assert_eq!(connections, 2, "{what}: the connection was used again");
        });
        if playing.len() >= 12 {
            playing.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(played) = playing.join_next().await {
        played.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_after_a_response_reach_no_other_agent() {
    no_later_request_is_poisoned(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_after_a_response_reach_no_other_agent_over_tls() {
    no_later_request_is_poisoned(Some(Tls::new())).await;
}

/// Bytes of a TLS record that follows the response and is cut: its beginning arrives before the next request, its end
/// after it.
async fn half_a_record(tls: Arc<Tls>, cut: CutPosition, with_response: bool) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut setup = Setup::to(listener.local_addr().unwrap());
    setup.scheme = http::uri::Scheme::HTTPS;
    setup.tls.ca = Some(tls.authority.file.clone());
    let connections: Arc<AtomicUsize> = Arc::default();
    let planted: Arc<AtomicUsize> = Arc::default();
    let fixture = PoisoningFixture {
        proxy: setup.start().await,
        connections: Arc::clone(&connections),
        planted: Arc::clone(&planted),
    };
    let upstream = tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tcp.set_nodelay(true).unwrap();
            connections.fetch_add(1, Ordering::SeqCst);
            let (tls, planted) = (Arc::clone(&tls), Arc::clone(&planted));
            tokio::spawn(async move {
                let mut tls = tls.acceptor.accept(tcp).await.unwrap();
                let mut request = [0; 1024];
                let read = tls.read(&mut request).await.unwrap_or(0);
                if !String::from_utf8_lossy(&request[..read]).contains("/attack") {
                    let _ = write(&mut tls, ANSWER.as_bytes()).await;
                    let _ = tls.read(&mut request).await;
                    return;
                }
                let (tcp, session) = tls.get_mut();
                let mut records = |text: &str| {
                    use std::io::Write;
                    let mut bytes = Vec::new();
                    session.writer().write_all(text.as_bytes()).unwrap();
                    while session.wants_write() {
                        session.write_tls(&mut bytes).unwrap();
                    }
                    bytes
                };
                let (mut first, record) = (records(COMPLETE[0].1), records(PLANTED[0]));
                let (beginning, end) = record.split_at(cut.of(record.len()));
                if with_response {
                    first.extend_from_slice(beginning);
                }
                tcp.write_all(&first).await.unwrap();
                if !with_response {
                    sleep(Duration::from_millis(5)).await;
                    let _ = tcp.write_all(beginning).await;
                }
                planted.fetch_add(1, Ordering::SeqCst);
                // The next request on this connection, or its end.
                let _ = tcp.readable().await;
                let _ = tcp.write_all(end).await;
                sleep(SOON).await;
            });
        }
    });
    let what = format!("{cut:?}, with the response: {with_response}");
    fixture.play("GET", &what).await;
    assert_eq!(fixture.connections.load(Ordering::SeqCst), 2, "{what}");
    upstream.abort();
}

#[derive(Clone, Copy, Debug)]
enum CutPosition {
    Behind(usize),
    Before(usize),
}

impl CutPosition {
    fn of(self, length: usize) -> usize {
        match self {
            CutPosition::Behind(bytes) => bytes,
            CutPosition::Before(bytes) => length - bytes,
        }
    }
}

#[tokio::test]
async fn half_a_record_after_a_response_reaches_no_other_agent() {
    let tls = Arc::new(Tls::new());
    for cut in [1, 4, 5, 20]
        .map(CutPosition::Behind)
        .into_iter()
        .chain([CutPosition::Before(1)])
    {
        for with_response in [false, true] {
            half_a_record(Arc::clone(&tls), cut, with_response).await;
        }
    }
}

/// One agent has already sent its next request on the connection.
#[tokio::test]
async fn bytes_after_a_response_do_not_answer_a_pipelined_request() {
    for (method, response) in COMPLETE {
        let attack = Attack {
            response,
            planted: PLANTED[0],
            pieces: 1,
            each_after: Duration::ZERO,
        };
        let fixture = PoisoningFixture::start(attack, None).await;
        let mut agent = RawConnection::connect(fixture.proxy.address).await;
        agent
            .write(format!(
                "{method} /attack HTTP/1.1\r\nHost: h\r\n\r\n\
                 GET /victim HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
            ))
            .await;
        let both = String::from_utf8(agent.read_to_end().await).unwrap();
        assert!(both.ends_with("\r\n\r\nvictim"), "{response:?}: {both:?}");
        assert!(!both.contains("planted"), "{response:?}: {both:?}");
    }
}

/// Without an attack, the connection also serves the next agent. Otherwise the tests above would pass for a proxy that
/// keeps no connection.
#[tokio::test]
async fn a_connection_whose_response_was_read_to_its_end_is_used_again() {
    for tls in [None, Some(Tls::new())] {
        for (method, response) in COMPLETE {
            let attack = Attack {
                response,
                planted: "",
                pieces: 1,
                each_after: Duration::ZERO,
            };
            let fixture = PoisoningFixture::start(attack, tls.as_ref()).await;
            fixture.play(method, response).await;
            fixture.victim(response).await;
            let connections = fixture.connections.load(Ordering::SeqCst);
            assert_eq!(connections, 1, "{method} {response:?}");
        }
    }
}
