//! Arbitrary bytes of an agent: the upstream gets only unambiguous requests, all below the route's own path and for the
//! route's own host. Nothing hangs.

use super::proxy::{Between, TIMEOUT};
use std::cell::RefCell;
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::{Duration, timeout};

/// Silence for this time means that nothing more will arrive.
const QUIET: Duration = Duration::from_millis(3);
const LAST: &[u8] = b"GET /open/last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

thread_local! {
    static BETWEEN: Between = Between::start(8);
}

pub fn run(input: &[u8]) {
    let [cut, written @ ..] = input else { return };
    // hyper handles HTTP/2, and other tests cover what it hides in fields.
    if written.starts_with(b"PRI") {
        return;
    }
    BETWEEN.with(|between| {
        let reached = Rc::new(RefCell::new(Vec::new()));
        let length = usize::from(*cut).max(1).max(written.len() / 16);
        let local = LocalSet::new();
        let both = local.run_until(async {
            tokio::select! {
                () = upstream(between, &reached) => {}
                () = agent(between, written, length) => {}
            }
        });
        let ended = between
            .runtime
            .block_on(async { timeout(TIMEOUT, both).await });
        ended.expect("nothing hangs");
        let host = between.upstream_address.to_string();
        for connection in reached.borrow().iter() {
            let bytes = connection.borrow();
            all_are_requests_of_one_reading(&bytes, &host);
        }
    });
}

type Bytes = Rc<RefCell<Vec<u8>>>;

async fn upstream(between: &Between, reached: &RefCell<Vec<Bytes>>) {
    loop {
        let (socket, _) = between.upstream.accept().await.expect("a connection");
        let bytes = Bytes::default();
        reached.borrow_mut().push(Rc::clone(&bytes));
        tokio::task::spawn_local(converse(socket, bytes));
    }
}

/// Answers every complete request.
async fn converse(mut socket: TcpStream, bytes: Bytes) {
    let (mut at, mut buffer) = (0, Vec::new());
    loop {
        buffer.clear();
        if socket.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
            return;
        }
        bytes.borrow_mut().extend_from_slice(&buffer);
        loop {
            let next = request(&bytes.borrow()[at..]);
            let Ok(Some((length, ..))) = next else { break };
            at += length;
            if socket.write_all(ANSWER).await.is_err() {
                return;
            }
        }
    }
}

async fn agent(between: &Between, written: &[u8], length: usize) {
    let mut socket = TcpStream::connect(between.proxy).await.expect("connected");
    let mut said = Vec::new();
    let (mut read, mut write) = socket.split();
    let writing = async {
        for piece in written.chunks(length).chain([LAST]) {
            if write.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    writing.await;
    while let Ok(Ok(length)) = timeout(QUIET, read.read_buf(&mut said)).await {
        if length == 0 {
            break;
        }
    }
}

fn all_are_requests_of_one_reading(bytes: &[u8], host: &str) {
    let mut at = 0;
    loop {
        match request(&bytes[at..]) {
            Err(problem) => panic!("{problem}: {:?}", String::from_utf8_lossy(bytes)),
            Ok(None) => return,
            Ok(Some((length, target, to))) => {
                let below = target.strip_prefix("/base").unwrap_or("elsewhere");
                let below = below.is_empty() || below.starts_with(['/', '?']);
                let path = target.split('?').next().unwrap_or_default();
                let climbs = path.split('/').any(|part| part == "..");
                assert!(below && !climbs, "{target}");
                assert_eq!(to, host, "{target}");
                at += length;
            }
        }
    }
}

/// The first request's length, target and host, parsed strictly by RFC 9112; `None` if it is incomplete.
fn request(bytes: &[u8]) -> Result<Option<(usize, String, String)>, &'static str> {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        let tail = bytes.contains(&0);
        return if tail { Err("a NUL") } else { Ok(None) };
    };
    let head = String::from_utf8_lossy(&bytes[..end]);
    if head.contains('\0') || head.replace("\r\n", "").contains(['\r', '\n']) {
        return Err("a line of two readings");
    }
    let mut lines = head.split("\r\n");
    let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let &[_, target, "HTTP/1.1"] = &first[..] else {
        return Err("no request line");
    };
    let (mut hosts, mut lengths, mut codings) = (Vec::new(), Vec::new(), Vec::new());
    for line in lines {
        let (name, value) = line.split_once(':').ok_or("no colon")?;
        if name.is_empty() || name.contains([' ', '\t']) {
            return Err("no field name");
        }
        match name.to_ascii_lowercase().as_str() {
            "host" => hosts.push(value.trim().to_owned()),
            "content-length" => lengths.push(value.trim()),
            "transfer-encoding" => codings.push(value.trim()),
            _ => {}
        }
    }
    let [host] = &hosts[..] else {
        return Err("not one host");
    };
    let begin = end + 4;
    let body = match (&lengths[..], &codings[..]) {
        ([], []) => Some(0),
        ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            let length: usize = length.parse().map_err(|_| "no length")?;
            (bytes.len() - begin >= length).then_some(length)
        }
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => chunked(&bytes[begin..])?,
        _ => return Err("a body of two lengths"),
    };
    Ok(body.map(|body| (begin + body, target.to_owned(), host.clone())))
}

/// The length of a chunked body in the only unambiguous form.
fn chunked(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    let mut at = 0;
    loop {
        let Some(end) = find(&bytes[at..], b"\r\n") else {
            return Ok(None);
        };
        let line = str::from_utf8(&bytes[at..at + end]).map_err(|_| "no size")?;
        if line.is_empty() || !line.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("no size");
        }
        let size = usize::from_str_radix(line, 16).map_err(|_| "no size")?;
        at += end + 2;
        if size == 0 {
            // Trailers, and the empty line after them.
            if bytes[at..].starts_with(b"\r\n") {
                return Ok(Some(at + 2));
            }
            return Ok(find(&bytes[at..], b"\r\n\r\n").map(|end| at + end + 4));
        }
        let Some(behind) = bytes.get(at + size..at + size + 2) else {
            return Ok(None);
        };
        if behind != b"\r\n" {
            return Err("a chunk without an end");
        }
        at += size + 2;
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
