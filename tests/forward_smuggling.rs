//! Requests that two readers could interpret differently are refused or rewritten to a form with one meaning. Bytes
//! that an agent hides in one request never become another.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokengauge_test_support::SOON;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokengauge_test_support::upstream::{Upstream, fields};
use tokio::io::AsyncReadExt;

/// Silence for this time means that nothing more will arrive.
const QUIET: Duration = Duration::from_millis(150);

/// HTTP/2 frame types.
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;

/// Targets of the requests that reached an upstream that reads them by RFC 9112, or the first error.
#[derive(Clone, Default)]
struct ReceivedRequests(Arc<Mutex<Vec<String>>>);

impl ReceivedRequests {
    fn add(&self, request: impl Into<String>) {
        self.0.lock().unwrap().push(request.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

async fn serve(upstream: Upstream, requests: ReceivedRequests) {
    loop {
        let connection = upstream.accept().await;
        tokio::spawn(serve_connection(connection, requests.clone()));
    }
}

async fn serve_connection(mut connection: RawConnection, requests: ReceivedRequests) {
    loop {
        let mut first = [0];
        match connection.io.peek(&mut first).await {
            Ok(length) if length > 0 => {}
            _ => return,
        }
        let head = connection.read_head().await;
        let target = head.split(' ').nth(1).unwrap_or("no target").to_owned();
        let body = match framing(&head) {
            Ok(framing) => framing,
            Err(problem) => return requests.add(format!("{problem}: {head:?}")),
        };
        match body {
            Framing::Length(length) => drop(connection.read_exact(length).await),
            Framing::Chunked => drop(connection.read_until(b"0\r\n\r\n").await),
        }
        requests.add(target);
        connection
            .write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .await;
    }
}

enum Framing {
    Length(usize),
    Chunked,
}

/// The length of the body if the head states it unambiguously.
fn framing(head: &str) -> Result<Framing, &'static str> {
    let values = |name: &str| -> Vec<String> {
        let fields = fields(head)
            .into_iter()
            .filter_map(|field| field.split_once(':'));
        let named = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim().to_owned()).collect()
    };
    if head.contains('\0') || head.replace("\r\n", "").contains(['\r', '\n']) {
        return Err("a line of two readings");
    }
    if values("host").len() != 1 {
        return Err("not one host");
    }
    match (
        &values("content-length")[..],
        &values("transfer-encoding")[..],
    ) {
        ([], []) => Ok(Framing::Length(0)),
        ([length], []) => length.parse().map(Framing::Length).map_err(|_| "no length"),
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
        _ => Err("a body of two lengths"),
    }
}

/// Returns the received bytes once a first byte was followed by silence.
async fn reply(agent: &mut RawConnection) -> String {
    let mut all = Vec::new();
    let mut some = [0; 4096];
    let mut within = SOON;
    while let Ok(Ok(length)) = tokio::time::timeout(within, agent.io.read(&mut some)).await
        && length > 0
    {
        all.extend(&some[..length]);
        within = QUIET;
    }
    String::from_utf8_lossy(&all).into_owned()
}

async fn start() -> (Proxy, ReceivedRequests) {
    let upstream = Upstream::bind().await;
    let requests = ReceivedRequests::default();
    let proxy = Setup::to(upstream.address).start().await;
    tokio::spawn(serve(upstream, requests.clone()));
    (proxy, requests)
}

#[tokio::test]
async fn requests_of_two_readings_are_refused_or_get_one() {
    let (proxy, requests) = start().await;
    let hidden = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n";
    let length = hidden.len();
    for (name, request) in [
        (
            "cl-te",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
                length + 5
            ),
        ),
        (
            "te-cl",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n{length:x}\r\n{hidden}\r\n0\r\n\r\n"
            ),
        ),
        (
            "two lengths",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: {length}\r\n\r\n{hidden}"
            ),
        ),
        (
            "list of lengths",
            format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0, {length}\r\n\r\n{hidden}"),
        ),
        (
            "signed length",
            format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: +{length}\r\n\r\n{hidden}"),
        ),
        (
            "hex length",
            format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0x{length:x}\r\n\r\n{hidden}"),
        ),
        (
            "empty length",
            format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n{hidden}"),
        ),
        (
            "huge length",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551616\r\n\r\n{hidden}"
            ),
        ),
        (
            "unknown coding",
            format!("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n{hidden}"),
        ),
        (
            "chunked not last",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{hidden}"
            ),
        ),
        (
            "chunked twice",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
            ),
        ),
        (
            "vertical tab",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0bchunked\r\nContent-Length: 4\r\n\r\n{length:x}\r\n{hidden}\r\n0\r\n\r\n"
            ),
        ),
        (
            "coding in 1.0",
            format!(
                "POST /a HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
            ),
        ),
        (
            "space before colon",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\nContent-Length: 4\r\n\r\n{length:x}\r\n{hidden}\r\n0\r\n\r\n"
            ),
        ),
        (
            "folded line",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nX: y\r\n Content-Length: {length}\r\n\r\n{hidden}"
            ),
        ),
        (
            "folded coding",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n chunked\r\nContent-Length: 4\r\n\r\n{length:x}\r\n{hidden}\r\n0\r\n\r\n"
            ),
        ),
        (
            "bare carriage return",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nX: y\rContent-Length: {length}\r\n\r\n{hidden}"
            ),
        ),
        (
            "bare line feed in a chunk size",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\nab\r\n0\r\n\r\n{hidden}"
            ),
        ),
        (
            "overflowing chunk size",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000002\r\nab\r\n0\r\n\r\n{hidden}"
            ),
        ),
        (
            "negative chunk size",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nab\r\n0\r\n\r\n{hidden}"
            ),
        ),
        (
            "hex prefix of a chunk size",
            format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n{hidden}"
            ),
        ),
        (
            "two hosts",
            "GET /a HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n".to_string(),
        ),
        ("no host", "GET /a HTTP/1.1\r\n\r\n".to_owned()),
        (
            "a tab before the target",
            "GET\t/a HTTP/1.1\r\nHost: h\r\n\r\n".to_string(),
        ),
        (
            "a space in the target",
            "GET /a HTTP/1.1 /b HTTP/1.1\r\nHost: h\r\n\r\n".to_string(),
        ),
    ] {
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write(&request).await;
        let response = String::from_utf8_lossy(&agent.read_to_end().await).into_owned();
        let reached = requests.take();
        // Chunked framing overrides a length, and the connection must then be closed (RFC 9112 §6.3).
        let both = ["cl-te", "te-cl"].contains(&name);
        let (status, expected): (_, &[&str]) = if both { ("200", &["/a"]) } else { ("400", &[]) };
        assert_eq!(reached, expected, "{name}");
        assert_eq!(statuses(&response), [status], "{name}: {response}");
        agent.closed().await;
    }
}

fn statuses(text: &str) -> Vec<&str> {
    let heads = text.split("HTTP/1.").skip(1);
    let statuses = heads.filter_map(|head| head.split(' ').nth(1));
    statuses
        .filter(|status| status.parse::<u16>().is_ok())
        .collect()
}

#[tokio::test]
async fn requests_in_a_row_on_one_connection_stay_what_they_are() {
    let (proxy, requests) = start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    let request = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab\
                   POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n\
                   GET /c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    agent.write(request).await;
    let replies = String::from_utf8_lossy(&agent.read_to_end().await).into_owned();
    assert_eq!(statuses(&replies), ["200"; 3]);
    assert_eq!(requests.take(), ["/a", "/b", "/c"]);
}

#[tokio::test]
async fn what_http2_hides_in_a_field_does_not_become_a_line_of_http1() {
    let (proxy, requests) = start().await;
    for (name, value) in [
        ("transfer-encoding", "chunked"),
        ("connection", "x-secret"),
        ("x-a", "b\r\nGET /hidden HTTP/1.1"),
        ("x-a", "b\nx-c: d"),
        ("x-a", "b\0"),
        ("host", "elsewhere"),
        ("content-length", "50"),
    ] {
        let fields = [(name, value)];
        let status = raw_http2(proxy.address, "/a", &fields).await;
        let reached = requests.take();
        match name {
            // The upstream gets the host name of the route's upstream.
            "host" => assert_eq!((status, &reached[..]), (Some(200), &["/a".to_owned()][..])),
            _ => assert_eq!((status, &reached[..]), (None, &[][..]), "{name}: {value:?}"),
        }
    }
    for target in [
        "/a b",
        "/a\r\nx: y",
        "a",
        "/a HTTP/1.1\r\nHost: h\r\n\r\nGET /hidden",
    ] {
        let status = raw_http2(proxy.address, target, &[]).await;
        assert_ne!(status, Some(200), "{target:?}");
        assert!(requests.take().is_empty(), "{target:?}");
    }
}

/// The status of a GET over HTTP/2 whose head is written byte by byte, because no library would send it. `None` means
/// that the stream or connection ended, 0 a status outside HPACK's static table.
async fn raw_http2(address: SocketAddr, target: &str, fields: &[(&str, &str)]) -> Option<u16> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).expect("short");
        [&[length][..], text.as_bytes()].concat()
    };
    // :method GET, :scheme http, :path, :authority h; fields as literals
    let mut head = [&[0x82, 0x86, 0x04][..], &text(target), &[0x41, 1, b'h']].concat();
    for (name, value) in fields {
        head.extend([&[0][..], &text(name), &text(value)].concat());
    }
    let length = u8::try_from(head.len()).expect("short");
    let mut agent = RawConnection::connect(address).await;
    agent
        .write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await;
    agent
        .write([&[0, 0, length, 1, 5, 0, 0, 0, 1], &head[..]].concat())
        .await;
    loop {
        let frame = agent.read_exact(9).await;
        let length = usize::from(frame[1]) << 8 | usize::from(frame[2]);
        let payload = agent.read_exact(length).await;
        match (frame[3], payload.first()) {
            (HEADERS, Some(0x88)) => return Some(200),
            (HEADERS, Some(0x8c)) => return Some(400),
            (HEADERS, _) => return Some(0),
            (RST_STREAM | GOAWAY, _) => return None,
            _ => {}
        }
    }
}

#[tokio::test]
async fn what_an_upstream_hides_in_a_field_does_not_become_another_response() {
    let hidden = "HTTP/1.1 200 OK\r\nSet-Cookie: planted\r\nContent-Length: 0\r\n\r\n";
    for (name, response) in [
        (
            "bare carriage return",
            "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: planted\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ),
        (
            "nul",
            "HTTP/1.1 200 OK\r\nX: a\0Set-Cookie: planted\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ),
        (
            "folded line",
            "HTTP/1.1 200 OK\r\nX: a\r\n Set-Cookie: planted\r\nContent-Length: 0\r\n\r\n"
                .to_owned(),
        ),
        (
            "space before colon",
            "HTTP/1.1 200 OK\r\nSet-Cookie : planted\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ),
        (
            "no status",
            "HTTP/1.1 OK\r\nSet-Cookie: planted\r\n\r\n".to_owned(),
        ),
        (
            "two lengths",
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: {}\r\n\r\n{hidden}",
                hidden.len()
            ),
        ),
        (
            "a signed length",
            format!("HTTP/1.1 200 OK\r\nContent-Length: +0\r\n\r\n{hidden}"),
        ),
        (
            "more than the length",
            format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n{hidden}"),
        ),
        (
            "more than the last chunk",
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        ),
        (
            "more than no content",
            format!("HTTP/1.1 204 No Content\r\n\r\n{hidden}"),
        ),
    ] {
        let upstream = Upstream::bind().await;
        let proxy = Setup::to(upstream.address).start().await;
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write("GET /a HTTP/1.1\r\nHost: h\r\n\r\n").await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.write(response).await;
        let first = reply(&mut agent).await;
        assert_eq!(statuses(&first).len(), 1, "{name}: {first}");
        assert!(!first.contains("\nSet-Cookie"), "{name}: {first}");
        // Hidden bytes are not an answer to the next request either.
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write("GET /b HTTP/1.1\r\nHost: h\r\n\r\n").await;
        let mut backend = upstream.accept().await;
        assert!(backend.read_head().await.starts_with("GET /b "), "{name}");
        backend
            .write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .await;
        let second = reply(&mut agent).await;
        assert!(
            second.ends_with("ok") && !second.contains("planted"),
            "{name}: {second}"
        );
    }
}
