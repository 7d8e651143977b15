//! HTTP/2 on either side or on both sides.

use crate::process::Process;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_core::observer::{End, FailureKind};
use tokengauge_test_support::agent::{self, AnyBody, none, whole};
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::port::HeldPort;
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokengauge_test_support::recorder::ObserverEvent;
use tokengauge_test_support::upstream::Upstream;
use tokengauge_test_support::{TIMEOUT, eventually, soon};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};

/// An HTTP/2 upstream with counters.
struct Backend {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    /// Bytes of requests that arrived after the response.
    uploaded: Arc<AtomicUsize>,
    stop_listening: Arc<Notify>,
    _tasks: JoinSet<()>,
}

/// Counts a request until its response body is dropped.
struct OpenRequest(Arc<AtomicUsize>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Backend {
    async fn start(streams: u32) -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Backend::start_on(listener, streams)
    }

    fn start_on(listener: TcpListener, streams: u32) -> Backend {
        let address = listener.local_addr().unwrap();
        let (connections, open) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let uploaded = Arc::<AtomicUsize>::default();
        let (counted, opened) = (Arc::clone(&connections), Arc::clone(&open));
        let received = Arc::clone(&uploaded);
        let stop_listening = Arc::<Notify>::default();
        let stop = Arc::clone(&stop_listening);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            loop {
                let (tcp, _) = tokio::select! {
                    accepted = listener.accept() => accepted.unwrap(),
                    () = stop.notified() => break,
                };
                counted.fetch_add(1, Ordering::SeqCst);
                let (open, uploaded) = (Arc::clone(&opened), Arc::clone(&received));
                let service = service_fn(move |request| {
                    respond(request, Arc::clone(&open), Arc::clone(&uploaded))
                });
                let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                server
                    .max_concurrent_streams(streams)
                    .auto_date_header(false);
                let connection = server.serve_connection(TokioIo::new(tcp), service);
                serving.spawn(async move { drop(connection.await) });
            }
            drop(listener);
            serving.join_all().await;
        });
        Backend {
            address,
            connections,
            open,
            uploaded,
            stop_listening,
            _tasks: tasks,
        }
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// `/echo` returns head and body, `/silent` never answers, `/hang` sends one piece and then stalls, `/break` sends one
/// piece and then breaks off, `/early` answers at once and reads the request afterwards.
async fn respond(
    request: Request<Incoming>,
    open: Arc<AtomicUsize>,
    uploaded: Arc<AtomicUsize>,
) -> Result<Response<AnyBody>, Infallible> {
    open.fetch_add(1, Ordering::SeqCst);
    let guard = OpenRequest(open);
    let path = request.uri().path().to_owned();
    let target = format!("{:?} {}", request.version(), request.uri());
    let mut response = Response::builder().header("x-target", target);
    for (name, value) in request.headers() {
        response = response.header(format!("x-got-{name}"), value);
    }
    if path == "/silent" {
        std::future::pending::<()>().await;
    }
    let body = match path.as_str() {
        "/early" => {
            tokio::spawn(count_bytes(request.into_body(), uploaded));
            whole("done")
        }
        "/echo" => request.into_body().map_err(Into::into).boxed(),
        _ => TruncatedBody {
            _guard: guard,
            breaks: (path == "/break").then(|| Box::pin(sleep(Duration::from_millis(50)))),
            sent: false,
        }
        .boxed(),
    };
    Ok(response.body(body).unwrap())
}

async fn count_bytes(mut body: Incoming, count: Arc<AtomicUsize>) {
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        count.fetch_add(bytes, Ordering::SeqCst);
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Sends one piece, and then stalls or breaks off.
struct TruncatedBody {
    _guard: OpenRequest,
    breaks: Option<Pin<Box<Sleep>>>,
    sent: bool,
}

impl Body for TruncatedBody {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        if !self.sent {
            self.sent = true;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"piece")))));
        }
        match &mut self.breaks {
            Some(timer) => timer
                .as_mut()
                .poll(cx)
                .map(|()| Some(Err("as the test wants it".into()))),
            None => Poll::Pending,
        }
    }
}

async fn proxy(backend: &Backend) -> Proxy {
    Setup::to(backend.address).http2().start().await
}

struct WithTrailer(Vec<Frame<Bytes>>);

impl Body for WithTrailer {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        Poll::Ready(self.0.pop().map(Ok))
    }
}

fn with_trailer() -> AnyBody {
    let mut trailers = HeaderMap::new();
    for name in ["content-digest", "x-sum", "x-api-key", "cookie"] {
        trailers.insert(name, "1".parse().unwrap());
    }
    WithTrailer(vec![
        Frame::trailers(trailers),
        Frame::data(Bytes::from_static(b"data")),
    ])
    .boxed()
}

/// Answers every request with this status, and sends a body after it.
async fn backend_that_adds_a_body() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(tcp).await.unwrap();
                while let Some(Ok((request, mut response))) = connection.accept().await {
                    let status = request.uri().path().trim_start_matches('/');
                    let head = Response::builder().status(status).body(()).unwrap();
                    let mut body = response.send_response(head, false).unwrap();
                    let _ = body.send_data(Bytes::from_static(b"of another"), true);
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_body_after_a_response_without_one_does_not_reach_the_agent() {
    let backend = backend_that_adds_a_body().await;
    let proxy = Setup::to(backend).http2().start().await;
    let mut agent = agent::http2(proxy.address).await;
    for (method, status, expected) in [
        ("GET", 200, "of another"),
        ("GET", 204, ""),
        ("GET", 304, ""),
        ("HEAD", 200, ""),
        ("POST", 204, ""),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://agent.example/{status}"))
            .body(whole(""));
        let response = agent.send_request(request.unwrap()).await.unwrap();
        assert_eq!(response.status().as_u16(), status);
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), expected, "{method}, {status}");
    }
    let mut agent = RawConnection::connect(proxy.address).await;
    for status in [204, 304] {
        let request = format!("GET /{status} HTTP/1.1\r\nHost: h\r\n\r\n");
        agent.write(request).await;
        assert!(
            agent
                .read_head()
                .await
                .starts_with(&format!("HTTP/1.1 {status} "))
        );
    }
}

#[tokio::test]
async fn http2_to_http2_keeps_everything_trailers_too() {
    let backend = Backend::start(100).await;
    let proxy = proxy(&backend).await;
    let mut agent = agent::http2(proxy.address).await;
    let request = Request::post("http://agent.example/echo?q=%3a")
        .header("x-mine", "1")
        .header("te", "trailers")
        .body(with_trailer());
    let response = soon("a head", agent.send_request(request.unwrap()))
        .await
        .unwrap();
    let header = |name: &str| {
        response
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(
        header("x-target"),
        Some(format!("HTTP/2.0 http://{}/echo?q=%3a", backend.address))
    );
    assert_eq!(header("x-got-x-mine").as_deref(), Some("1"));
    assert_eq!(header("x-got-te").as_deref(), Some("trailers"));
    assert_eq!(header("x-got-host"), None);
    let body = soon("a body", response.into_body().collect())
        .await
        .unwrap();
    let trailers = body.trailers().unwrap();
    assert_eq!(
        (&trailers["content-digest"], trailers.len()),
        (&"1".parse().unwrap(), 1)
    );
    assert_eq!(body.to_bytes(), "data");
    let call = proxy.recorder.only_call().await;
    assert_eq!(
        (call.request(), call.response()),
        (b"data".to_vec(), b"data".to_vec())
    );
    let trailers = call.find(|seen| match seen {
        ObserverEvent::Trailers(trailers) => trailers.get("content-digest").cloned(),
        _ => None,
    });
    assert_eq!(trailers.expect("told"), "1");
    assert_eq!(call.ended(), Some(End::Complete));
    assert!(call.sent().is_some());
}

#[tokio::test]
async fn http1_to_http2() {
    let backend = Backend::start(100).await;
    let proxy = proxy(&backend).await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("POST /echo HTTP/1.1\r\nHost: h\r\nX-Mine: 1\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nbody").await;
    let head = agent.read_head().await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains(&format!(
            "x-target: HTTP/2.0 http://{}/echo\r\n",
            backend.address
        )),
        "{head}"
    );
    assert!(
        head.contains("x-got-x-mine: 1\r\n")
            && !head.contains("x-got-host")
            && !head.contains("x-got-connection"),
        "{head}"
    );
    agent.read_until(b"body").await;
    assert_eq!(
        proxy.recorder.only_call().await.ended(),
        Some(End::Complete)
    );
}

/// An HTTP/2 upload may continue after its response. Its bytes are not a late request head.
#[tokio::test]
async fn an_upload_outlives_its_response_and_the_head_timeout() {
    let backend = Backend::start(100).await;
    let head_timeout = Duration::from_millis(500);
    let proxy = Setup::to(backend.address)
        .http2()
        .limits(|limits| limits.head_timeout = head_timeout)
        .start()
        .await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 20\r\n\r\n")
        .await;
    agent.read_head().await;
    agent.read_until(b"done").await;
    for sent in 1..=20 {
        sleep(head_timeout / 5).await;
        agent.write("x").await;
        let uploaded = || backend.uploaded.load(Ordering::SeqCst);
        eventually("the byte arrives", || uploaded() == sent).await;
    }
    agent
        .write("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody")
        .await;
    agent.read_until(b"body").await;
}

/// The upstream responds before it has the whole request, and the agent breaks off the request.
#[tokio::test]
async fn an_upload_that_breaks_off_during_the_response_is_the_agents_fault() {
    for (rest, end) in [
        (None, End::ClientCancelled),
        (Some("zz\r\n"), End::Failed(FailureKind::BadRequest)),
    ] {
        let backend = Backend::start(100).await;
        let proxy = proxy(&backend).await;
        let mut agent = RawConnection::connect(proxy.address).await;
        agent
            .write("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            .await;
        agent.read_until(b"1\r\na\r\n").await;
        match rest {
            Some(rest) => agent.write(rest).await,
            None => drop(agent),
        }
        let call = &proxy.recorder.ended_calls(1).await[0];
        assert_eq!(call.ended(), Some(end), "{rest:?}");
    }
}

#[tokio::test]
async fn http2_to_http1() {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = agent::http2(proxy.address).await;
    let request = Request::post("http://agent.example/v1//x?q")
        .header("x-mine", "1")
        .header("cookie", "a=1")
        .header("cookie", "b=2");
    let sending = agent.send_request(request.body(whole("hello")).unwrap());
    let serving = async {
        let mut backend = upstream.accept().await;
        let head = backend.read_head().await;
        assert_eq!(backend.read_exact(5).await, b"hello");
        backend.write("HTTP/1.1 200 OK\r\nX-Y: z\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nTrailer: x-took\r\n\r\n2\r\nok\r\n0\r\nx-took: 5\r\n\r\n").await;
        head
    };
    let (response, head) = tokio::join!(sending, serving);
    assert!(head.starts_with("POST /v1//x?q HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains(&format!("host: {}\r\n", upstream.address))
            && head.contains("content-length: 5\r\n"),
        "{head}"
    );
    assert!(head.contains("cookie: a=1; b=2\r\n"), "{head}");
    let response = response.unwrap();
    assert_eq!(
        (response.status(), &response.headers()["x-y"]),
        (StatusCode::OK, &"z".parse().unwrap())
    );
    assert!(
        !response.headers().contains_key("transfer-encoding")
            && !response.headers().contains_key("connection")
    );
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-took"], "5");
    assert_eq!(body.to_bytes(), "ok");
    assert_eq!(
        proxy.recorder.only_call().await.ended(),
        Some(End::Complete)
    );
}

#[tokio::test]
async fn many_streams_share_a_connection_and_too_many_open_another() {
    let backend = Backend::start(10).await;
    let proxy = proxy(&backend).await;
    let mut agent = agent::http2(proxy.address).await;
    let mut bodies = Vec::new();
    for _ in 0..25 {
        let request = Request::get("http://h/hang").body(none()).unwrap();
        let mut body = soon("a head", agent.send_request(request))
            .await
            .unwrap()
            .into_body();
        assert_eq!(
            soon("a piece", body.frame())
                .await
                .unwrap()
                .unwrap()
                .into_data()
                .unwrap(),
            "piece"
        );
        bodies.push(body);
    }
    assert_eq!(backend.connections.load(Ordering::SeqCst), 3);
    drop(bodies);
    eventually("the upstream hears that they left", || backend.open() == 0).await;
    let calls = proxy.recorder.ended_calls(25).await;
    assert!(
        calls
            .iter()
            .all(|call| call.ended() == Some(End::ClientCancelled))
    );
}

#[tokio::test]
async fn a_request_beyond_the_streams_of_all_connections_waits_for_one_to_end() {
    let backend = Backend::start(2).await;
    let mut setup = Setup::to(backend.address).http2();
    setup.max_connections = Some(2);
    setup.max_pending = 1;
    let proxy = setup.start().await;
    let mut agent = agent::http2(proxy.address).await;
    let hangs = || Request::get("http://h/hang").body(none()).unwrap();
    let mut bodies = Vec::new();
    for _ in 0..4 {
        let response = soon("a head", agent.send_request(hangs())).await.unwrap();
        assert_eq!(response.status(), 200);
        bodies.push(response.into_body());
    }
    let waiting = tokio::spawn(agent.send_request(hangs()));
    eventually("one waits", || proxy.forwarder.upstreams()[0].pending == 1).await;
    let refused = soon("a refusal", agent.send_request(hangs())).await;
    assert_eq!(refused.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(backend.connections.load(Ordering::SeqCst), 2);
    bodies.pop();
    let response = soon("its turn", waiting).await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    let figures = &proxy.forwarder.upstreams()[0];
    assert_eq!((figures.open, figures.pending, figures.refused), (2, 0, 1));
    assert_eq!(backend.connections.load(Ordering::SeqCst), 2);
}

/// The program with two traffic threads, each of which serves one of two agents.
async fn two_threads(backend: &Backend, upstream: &str) -> (Process, TempDir, [RawConnection; 2]) {
    let url = format!("http://{}", backend.address);
    let upstream = format!("protocol = \"http2\"\n{upstream}");
    let (process, folder) = Process::start_threads(2, &url, &upstream).await;
    let address = process.addresses()[0];
    let agents = [
        RawConnection::connect(address).await,
        RawConnection::connect(address).await,
    ];
    (process, folder, agents)
}

#[tokio::test]
async fn each_thread_opens_a_connection_once_another_threads_is_busy() {
    let backend = Backend::start(10).await;
    let (_process, _folder, mut agents) = two_threads(&backend, "").await;
    let connections = || backend.connections.load(Ordering::SeqCst);
    for agent in &mut agents {
        agent.get("/u/echo").await;
        agent.read_head().await;
        // The proxy answers this itself once the stream has ended.
        agent.get("/none").await;
        agent.text_until("404").await;
        agent.read_head().await;
    }
    assert_eq!(connections(), 1, "the first connection is idle");
    for (agent, expected) in agents.iter_mut().zip([1, 2]) {
        agent.get("/u/hang").await;
        agent.text_until("piece").await;
        assert_eq!(connections(), expected);
    }
}

/// A call does not fail while an open connection has room for it.
#[tokio::test]
async fn a_thread_that_cannot_connect_shares_the_busy_connection_of_another() {
    let backend = Backend::start(10).await;
    let (_process, _folder, mut agents) = two_threads(&backend, "").await;
    agents[0].get("/u/hang").await;
    agents[0].text_until("piece").await;
    backend.stop_listening.notify_one();
    let refuses = async || TcpStream::connect(backend.address).await.is_err();
    let end = Instant::now() + TIMEOUT;
    while !refuses().await {
        assert!(Instant::now() < end, "it still listens");
    }
    for _ in 0..2 {
        agents[1].get("/u/echo").await;
        let head = agents[1].read_head().await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
}

#[tokio::test]
async fn threads_share_a_busy_connection_at_the_connection_limit() {
    let backend = Backend::start(10).await;
    let (_process, _folder, mut agents) =
        two_threads(&backend, "max_connections = 1\nmax_pending = 0").await;
    for agent in &mut agents {
        agent.get("/u/hang").await;
        agent.text_until("piece").await;
    }
    assert_eq!(backend.connections.load(Ordering::SeqCst), 1);
}

/// An upgrade waits for its own connection. Requests that need only a stream do not wait.
#[tokio::test]
async fn a_request_that_waits_for_a_connection_does_not_delay_those_that_need_a_stream() {
    let backend = Backend::start(10).await;
    let mut setup = Setup::to(backend.address).http2();
    setup.max_connections = Some(1);
    setup.max_pending = 1;
    let proxy = setup.start().await;
    let mut agent = agent::http2(proxy.address).await;
    let hangs = || Request::get("http://h/hang").body(none()).unwrap();
    let held = soon("a head", agent.send_request(hangs())).await.unwrap();
    let mut upgrade = RawConnection::connect(proxy.address).await;
    upgrade
        .write("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    eventually("it waits", || proxy.forwarder.upstreams()[0].pending == 1).await;
    for _ in 0..5 {
        let response = soon("a head", agent.send_request(hangs())).await.unwrap();
        assert_eq!(response.status(), 200);
    }
    let figures = &proxy.forwarder.upstreams()[0];
    assert_eq!((figures.open, figures.pending, figures.refused), (1, 1, 0));
    drop(held);
}

#[tokio::test]
async fn an_agent_that_leaves_resets_the_upstreams_stream() {
    let backend = Backend::start(10).await;
    let proxy = proxy(&backend).await;
    for (count, path) in ["/hang", "/silent"].into_iter().enumerate() {
        let mut agent = RawConnection::connect(proxy.address).await;
        agent
            .write(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"))
            .await;
        eventually("the request arrives", || backend.open() == 1).await;
        drop(agent);
        eventually("the upstream hears that the agent left", || {
            backend.open() == 0
        })
        .await;
        let calls = proxy.recorder.ended_calls(count + 1).await;
        assert_eq!(calls[count].ended(), Some(End::ClientCancelled));
    }
    assert_eq!(backend.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_http2_stream_that_breaks_is_seen_to_break() {
    let backend = Backend::start(10).await;
    let proxy = proxy(&backend).await;
    let mut http1 = RawConnection::connect(proxy.address).await;
    http1.write("GET /break HTTP/1.1\r\nHost: h\r\n\r\n").await;
    http1.read_head().await;
    assert_eq!(
        http1.read_to_end().await,
        b"5\r\npiece\r\n",
        "no terminal chunk"
    );
    let mut http2 = agent::http2(proxy.address).await;
    let request = Request::get("http://h/break").body(none()).unwrap();
    let response = soon("a head", http2.send_request(request)).await.unwrap();
    assert!(
        soon("a break", response.into_body().collect())
            .await
            .is_err()
    );
    let calls = proxy.recorder.ended_calls(2).await;
    assert!(
        calls
            .iter()
            .all(|call| call.ended() == Some(End::UpstreamReset))
    );
}

#[tokio::test]
async fn a_lost_http1_upstream_resets_only_the_agents_stream() {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = agent::http2(proxy.address).await;
    for n in 0..2 {
        let request = Request::get("http://h/").body(none()).unwrap();
        let sending = agent.send_request(request);
        let serving = async {
            let mut backend = upstream.accept().await;
            backend.read_head().await;
            backend
                .write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
                .await;
            backend
        };
        let (response, backend) = tokio::join!(sending, serving);
        let mut body = response.unwrap().into_body();
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            "a"
        );
        drop(backend);
        assert!(soon("the break", body.frame()).await.unwrap().is_err());
        let calls = proxy.recorder.ended_calls(n + 1).await;
        assert_eq!(calls[n].ended(), Some(End::UpstreamReset));
    }
}

#[tokio::test]
async fn an_upstream_that_went_away_is_connected_to_again() {
    let held = HeldPort::take();
    let backend = Backend::start_on(held.listen(), 10);
    let proxy = proxy(&backend).await;
    let mut agent = RawConnection::connect(proxy.address).await;
    let request = "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n";
    agent.write(request).await;
    agent.read_head().await;
    drop(backend);
    soon("the end of the listener", async {
        while TcpStream::connect(held.address).await.is_ok() {}
    })
    .await;
    agent.write(request).await;
    let head = agent.read_head().await;
    assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{head}");
    proxy.recorder.ended_calls(2).await;
}
