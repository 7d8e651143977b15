//! Upstream faults over HTTP/2.

use super::fixture::{ProxyFixture, SHORT_TIMEOUT_MS, Setup};
use super::frames::{
    self, CANCEL, CONTINUATION, DATA, END_HEADERS, HEADERS, INTERNAL_ERROR, PING, PUSH_PROMISE,
    data, end, field, frame, go_away, reset, response, settings,
};
use super::script::{Peer, Script};
use super::upstream::{ExpectedRecord, complete, recorded, reset as lost};
use bytes::Bytes;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokengauge_test_support::meter::{DONE, finish, words};
use tokio::net::{TcpListener, TcpStream};

/// Deadline for every response.
const WITHIN: Duration = Duration::from_secs(8);

type Behaviour = fn(u32) -> Script;

struct Fault {
    name: &'static str,
    does: Behaviour,
    through: ExpectedResponse,
    recorded: ExpectedRecord,
}

/// The response that the agent must get through the proxy, compared with the response without the proxy.
#[derive(Clone, Copy, Debug)]
enum ExpectedResponse {
    Same,
    /// The bytes are equal and the stream is reset, even if the upstream ended the connection.
    Reset,
    /// The bytes are equal up to the proxy's own flow-control window.
    Window,
    /// The proxy answers with an error response: status and `x-tokengauge-error`.
    Refused(u16, &'static str),
    /// The bytes are equal until the proxy times out and resets the stream.
    GivenUp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ObservedResponse {
    status: Option<u16>,
    error: Option<String>,
    body: Bytes,
    end: StreamEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamEnd {
    Whole,
    Reset(u32),
    Lost,
    Hung,
}

fn begun(stream: u32) -> Script {
    let script = Script::default().send(response(stream));
    script
        .send(data(stream, words(3)))
        .send(data(stream, words(4)))
}

fn the_end(stream: u32) -> Vec<u8> {
    [data(stream, finish(None)), data(stream, DONE), end(stream)].concat()
}

fn ordinary(stream: u32) -> Script {
    begun(stream).send(the_end(stream))
}

fn fault(
    name: &'static str,
    does: Behaviour,
    through: ExpectedResponse,
    recorded: ExpectedRecord,
) -> Fault {
    Fault {
        name,
        does,
        through,
        recorded,
    }
}

fn refused(name: &'static str, does: Behaviour, error: &'static str) -> Fault {
    let recorded = recorded("upstream_reset", Some(error), None);
    fault(name, does, ExpectedResponse::Refused(502, error), recorded)
}

fn faults() -> Vec<Fault> {
    use ExpectedResponse::{GivenUp, Reset, Same, Window};
    let timeout = recorded("timeout", Some("upstream_idle_timeout"), Some(7));
    vec![
        refused(
            "RST_STREAM before the response head",
            |s| Script::default().send(reset(s, INTERNAL_ERROR)),
            "upstream_reset",
        ),
        fault(
            "RST_STREAM within the body",
            |s| begun(s).wait(100).send(reset(s, INTERNAL_ERROR)),
            Same,
            lost(7),
        ),
        fault(
            "RST_STREAM with CANCEL within the body",
            |s| begun(s).wait(100).send(reset(s, CANCEL)),
            Same,
            lost(7),
        ),
        fault(
            "GOAWAY, then the rest of the stream",
            |s| {
                begun(s)
                    .send(go_away(s, 0))
                    .wait(100)
                    .send(the_end(s))
                    .close()
            },
            Same,
            complete(7),
        ),
        fault(
            "GOAWAY with an error within the body",
            |s| begun(s).wait(100).send(go_away(0, INTERNAL_ERROR)).close(),
            Reset,
            lost(7),
        ),
        refused(
            "GOAWAY before the response head",
            |_| Script::default().send(go_away(0, 0)).close(),
            "upstream_reset",
        ),
        fault(
            "connection closed within the body",
            |s| begun(s).wait(100).close(),
            Reset,
            lost(7),
        ),
        fault(
            "connection reset within the body",
            |s| begun(s).wait(100).reset(),
            Reset,
            lost(7),
        ),
        fault(
            "a flood of PING frames",
            |s| {
                begun(s)
                    .repeat(frame(PING, 0, 0, [0; 8]), 10_000)
                    .send(the_end(s))
            },
            Same,
            complete(7),
        ),
        fault(
            "a flood of SETTINGS frames",
            |s| {
                begun(s)
                    .repeat(settings(&[(3, 100)]), 10_000)
                    .send(the_end(s))
            },
            Same,
            complete(7),
        ),
        fault(
            "a flood of empty frames",
            |s| begun(s).repeat(data(s, ""), 10_000).send(the_end(s)),
            Reset,
            lost(7),
        ),
        fault(
            "more bytes than the window",
            |s| {
                begun(s)
                    .wait(100)
                    .repeat(data(s, [b'x'; 16_384]), 2_000)
                    .receive_all()
            },
            Window,
            lost(7),
        ),
        fault(
            "a frame that is too large",
            |s| {
                begun(s)
                    .wait(100)
                    .send(data(s, vec![b'x'; 70_000]))
                    .receive_all()
            },
            Reset,
            lost(7),
        ),
        fault(
            "a frame of another stream",
            |s| begun(s).wait(100).send(data(s + 100, "x")).receive_all(),
            Reset,
            lost(7),
        ),
        fault(
            "an unrequested push",
            |s| {
                begun(s)
                    .wait(100)
                    .send(frame(PUSH_PROMISE, END_HEADERS, s, [0, 0, 0, 2, 0x82]))
                    .receive_all()
            },
            Reset,
            lost(7),
        ),
        refused(
            "a header block that cannot be decoded",
            |s| {
                Script::default()
                    .send(frame(HEADERS, END_HEADERS, s, [0xff; 9]))
                    .receive_all()
            },
            "upstream_reset",
        ),
        refused(
            "a flood of CONTINUATION frames",
            |s| {
                let more = frame(CONTINUATION, 0, s, field("x-a", "b"));
                Script::default()
                    .send(frame(HEADERS, 0, s, [0x88]))
                    .repeat(more, 20_000)
                    .receive_all()
            },
            "upstream_reset",
        ),
        fault(
            "a stream that stalls without end",
            |s| begun(s).wait(SHORT_TIMEOUT_MS * 2).send(the_end(s)),
            GivenUp,
            timeout,
        ),
        fault(
            "an end without the terminator of the events",
            |s| begun(s).send(frame(DATA, 1, s, b"")),
            Same,
            recorded("upstream_reset", Some("unterminated"), Some(7)),
        ),
    ]
}

pub fn names() -> Vec<&'static str> {
    faults().iter().map(|fault| fault.name).collect()
}

/// A backend that speaks HTTP/2 by hand.
struct Backend {
    address: SocketAddr,
    does: Arc<Mutex<Behaviour>>,
}

impl Backend {
    async fn start() -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let does = Arc::new(Mutex::new(ordinary as Behaviour));
        let accepting = Arc::clone(&does);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(Peer::new(tcp), Arc::clone(&accepting)));
            }
        });
        Backend { address, does }
    }

    fn does(&self, does: Behaviour) {
        *self.does.lock().expect("no panic") = does;
    }
}

async fn serve(mut end: Peer, does: Arc<Mutex<Behaviour>>) {
    let hello = Script::default()
        .receive(frames::PREFACE.len())
        .send(settings(&[]))
        .send(frame(frames::SETTINGS, frames::ACK, 0, b""));
    let (mut goes_on, mut answered) = (end.play(&hello).await, 0);
    while goes_on {
        if let Some(stream) = asked(&end.received, answered) {
            let now = *does.lock().expect("no panic");
            goes_on = end.play(&now(stream)).await && end.gone.is_none();
            answered = stream;
        } else {
            goes_on = end.receive_without_timeout().await;
        }
    }
}

/// The next stream whose request is complete.
fn asked(received: &[u8], answered: u32) -> Option<u32> {
    let frames = frames::frames(received.get(frames::PREFACE.len()..)?);
    let ended =
        |kind: u8, flags: u8| matches!(kind, DATA | HEADERS) && flags & frames::END_STREAM != 0;
    let mut streams = frames
        .iter()
        .filter(|(kind, flags, _, _)| ended(*kind, *flags));
    let next = streams.find(|(_, _, stream, _)| *stream > answered)?;
    Some(next.2)
}

/// Sends a chat over its own connection.
async fn ask(address: SocketAddr, session: &str) -> ObservedResponse {
    let tcp = TcpStream::connect(address).await.expect("connected");
    let (mut send, connection) = h2::client::Builder::new()
        .enable_push(false)
        .handshake(tcp)
        .await
        .expect("begun");
    let connection = tokio::spawn(connection);
    let request = http::Request::post("http://backend/v1/chat/completions")
        .header("x-tokengauge-session", session)
        .header("content-type", "application/json")
        .body(())
        .expect("a request");
    let (response, mut body) = send.send_request(request, false).expect("sent");
    body.send_data(Bytes::from_static(b"{\"stream\":true}"), true)
        .expect("sent");
    let mut seen = ObservedResponse {
        status: None,
        error: None,
        body: Bytes::new(),
        end: StreamEnd::Whole,
    };
    let read = tokio::time::timeout(WITHIN, read(response, &mut seen)).await;
    connection.abort();
    if read.is_err() {
        seen.end = StreamEnd::Hung;
    }
    seen
}

async fn read(pending: h2::client::ResponseFuture, seen: &mut ObservedResponse) {
    let response = match pending.await {
        Ok(response) => response,
        Err(error) => {
            seen.end = ending(&error);
            return;
        }
    };
    seen.status = Some(response.status().as_u16());
    let error = response.headers().get("x-tokengauge-error");
    seen.error = error.map(|error| error.to_str().expect("text").to_owned());
    let (mut body, mut content) = (response.into_body(), Vec::new());
    while let Some(piece) = body.data().await {
        match piece {
            Ok(piece) => {
                let _ = body.flow_control().release_capacity(piece.len());
                content.extend_from_slice(&piece);
            }
            Err(error) => {
                seen.end = ending(&error);
                break;
            }
        }
    }
    seen.body = content.into();
}

fn ending(error: &h2::Error) -> StreamEnd {
    match error.reason() {
        Some(reason) if error.is_reset() && error.is_remote() => StreamEnd::Reset(reason.into()),
        _ => StreamEnd::Lost,
    }
}

impl ExpectedResponse {
    fn holds(self, direct: &ObservedResponse, through: &ObservedResponse) -> bool {
        match self {
            ExpectedResponse::Same => through == direct,
            ExpectedResponse::Reset => {
                let reset =
                    matches!(through.end, StreamEnd::Reset(_)) && direct.end != StreamEnd::Whole;
                reset && (through.status, &through.body) == (direct.status, &direct.body)
            }
            ExpectedResponse::Window => {
                let (one, other) = (&direct.body, &through.body);
                let reset =
                    matches!(through.end, StreamEnd::Reset(_)) && direct.end != StreamEnd::Whole;
                reset && (one.starts_with(other) || other.starts_with(one))
            }
            ExpectedResponse::Refused(status, error) => {
                let refused = through.status == Some(status) && direct.status.is_none();
                refused
                    && through.error.as_deref() == Some(error)
                    && through.end == StreamEnd::Whole
            }
            ExpectedResponse::GivenUp => {
                let reset = matches!(through.end, StreamEnd::Reset(_));
                reset && direct.body.starts_with(&through.body)
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_that_break_http2() {
    let backend = Backend::start().await;
    let url = format!("http://{}", backend.address);
    let fixture = ProxyFixture::with_upstream(|setup: &mut Setup| {
        setup.url = url;
        setup.timeout_ms = SHORT_TIMEOUT_MS;
        setup.upstream = "protocol = \"http2\"\n".to_owned();
    });
    let fixture = fixture.await;
    let whole = ask(backend.address, "whole").await;
    assert_eq!((whole.status, whole.end), (Some(200), StreamEnd::Whole));
    let mut wrong = Vec::new();
    for fault in faults() {
        let name = fault.name;
        let session = name.replace([' ', ',', '\''], "-");
        backend.does(fault.does);
        let direct = ask(backend.address, &session).await;
        let through = ask(fixture.proxy(), &session).await;
        let record = fixture.record(&session).await;
        backend.does(ordinary);
        fixture.returns_to_idle(name).await;
        assert_eq!(ask(fixture.proxy(), "next").await, whole, "after {name}");
        if !fault.through.holds(&direct, &through) {
            wrong.push(format!(
                "{name}: not {:?}:\n  direct  {direct:?}\n  through {through:?}",
                fault.through
            ));
        } else if !fault.recorded.is(&record) {
            wrong.push(format!("{name}: not {:?}: {record}", fault.recorded));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
