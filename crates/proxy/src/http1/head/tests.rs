use super::super::write_buffer::WriteBuffer;
use super::super::write_response::{BodySize, ResponseContext, write_response};
use super::*;

const LIMIT: usize = 64 * 1024;

fn request(text: &str) -> Result<RequestHead, HeadError> {
    let parsed = parse_request(text.as_bytes(), LIMIT)?;
    let (head, length) = parsed.expect("a whole head");
    assert_eq!(length, text.len());
    Ok(head)
}

fn response(text: &str, method: &Method) -> Result<ResponseHead, HeadError> {
    let parsed = parse_response(text.as_bytes(), method, LIMIT)?;
    let (head, length) = parsed.expect("a whole head");
    assert_eq!(length, text.len());
    Ok(head)
}

#[test]
fn a_request_is_read_with_its_names_its_values_and_their_order() {
    let head = request(
        "POST /v1/chat?x=%20 HTTP/1.1\r\nHost: h\r\nX-B:  2 \r\nx-a: \u{e9}\r\nX-b: 3\r\nEmpty:\r\n\
         Content-Length: 4\r\n\r\n",
    )
    .expect("good");
    assert_eq!(head.parts.method, Method::POST);
    assert_eq!(head.parts.uri, "/v1/chat?x=%20");
    let fields: Vec<_> = head.parts.headers.iter().collect();
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    assert_eq!(
        fields,
        [
            ("host", &b"h"[..]),
            ("x-b", b"2"),
            ("x-b", b"3"),
            ("x-a", "\u{e9}".as_bytes()),
            ("empty", b""),
            ("content-length", b"4"),
        ]
    );
    let x_b = HeaderName::from_static("x-b");
    assert_eq!(head.names.original(&x_b, 0), b"X-B");
    assert_eq!(head.names.original(&x_b, 1), b"X-b");
    assert_eq!(head.body, BodyLength::Known(4));
    assert!(head.keep_alive);
}

#[test]
fn a_head_that_is_cut_anywhere_is_not_whole() {
    let text = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n";
    for cut in 0..text.len() {
        let parsed = parse_request(&text.as_bytes()[..cut], LIMIT);
        assert!(matches!(parsed, Ok(None)), "{cut}");
    }
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
    for cut in 0..text.len() {
        let parsed = parse_response(&text.as_bytes()[..cut], &Method::GET, LIMIT);
        assert!(matches!(parsed, Ok(None)), "{cut}");
    }
}

#[test]
fn where_the_body_of_a_request_ends_has_one_reading() {
    for (fields, expected) in [
        ("", Some((BodyLength::Known(0), true))),
        ("Content-Length: 5", Some((BodyLength::Known(5), true))),
        (
            "Content-Length: 5\r\nContent-Length: 5",
            Some((BodyLength::Known(5), true)),
        ),
        ("Content-Length: 5\r\nContent-Length: 6", None),
        ("Content-Length: 5, 5", None),
        ("Content-Length: +5", None),
        ("Content-Length: 0x5", None),
        ("Content-Length:", None),
        ("Content-Length: 18446744073709551616", None),
        (
            "Transfer-Encoding: chunked",
            Some((BodyLength::Chunked, true)),
        ),
        (
            "Transfer-Encoding: gzip, Chunked",
            Some((BodyLength::Chunked, true)),
        ),
        ("Transfer-Encoding: xchunked", None),
        ("Transfer-Encoding: chunked, identity", None),
        ("Transfer-Encoding: chunked;a=b", None),
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            Some((BodyLength::Chunked, false)),
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            Some((BodyLength::Chunked, false)),
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip",
            None,
        ),
    ] {
        let line = match fields {
            "" => String::new(),
            fields => format!("{fields}\r\n"),
        };
        let head = request(&format!("POST / HTTP/1.1\r\nHost: h\r\n{line}\r\n"));
        let read = head.as_ref().ok().map(|head| (head.body, head.keep_alive));
        assert_eq!(read, expected, "{fields}");
        if let Ok(head) = head {
            let chunked = head.body == BodyLength::Chunked;
            let lengths = head.parts.headers.get_all(CONTENT_LENGTH).iter().count();
            assert!(lengths <= 1 && !(chunked && lengths > 0), "{fields}");
        }
    }
    let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert!(request(old).is_err());
}

#[test]
fn what_two_readers_could_take_for_different_requests_is_refused() {
    for text in [
        "GET / HTTP/1.1\r\nX : y\r\n\r\n",
        "GET / HTTP/1.1\r\nX: y\r\n z\r\n\r\n",
        "GET / HTTP/1.1\r\n X: y\r\n\r\n",
        "GET / HTTP/1.1\r\nX: y\rZ: a\r\n\r\n",
        "GET / HTTP/1.1\r\nX: y\0\r\n\r\n",
        "GET / HTTP/1.1\r\nX: y\u{1}\r\n\r\n",
        "GET / HTTP/1.1\r\nX: y\u{7f}\r\n\r\n",
        "GET / HTTP/1.1\r\nX\r\n\r\n",
        "GET / HTTP/1.1\r\nX Y: z\r\n\r\n",
        "GET / HTTP/1.1\r\n: z\r\n\r\n",
        "GET\t/ HTTP/1.1\r\n\r\n",
        "GET /a /b HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.2\r\n\r\n",
        "GET / HTTP/2.0\r\n\r\n",
        "GET / http/1.1\r\n\r\n",
        "GET /\u{1} HTTP/1.1\r\n\r\n",
        "G(T / HTTP/1.1\r\n\r\n",
        "GET foo bar\r\n\r\n",
    ] {
        let error = parse_request(text.as_bytes(), LIMIT).expect_err(text);
        assert_eq!(error.status(), StatusCode::BAD_REQUEST, "{text:?}");
    }
}

#[test]
fn heads_are_bounded_in_bytes_fields_and_target() {
    let fields = |count: usize| "X: y\r\n".repeat(count);
    let head = |count| format!("GET / HTTP/1.1\r\n{}\r\n", fields(count));
    assert!(request(&head(MAX_FIELDS)).is_ok());
    assert_eq!(
        request(&head(MAX_FIELDS + 1)).expect_err("many").status(),
        431
    );
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(LIMIT));
    assert_eq!(request(&long).expect_err("long").status(), 431);
    let target = format!("GET /{} HTTP/1.1\r\n\r\n", "y".repeat(MAX_TARGET));
    let error = parse_request(target.as_bytes(), 2 * LIMIT).expect_err("long");
    assert_eq!(error.status(), 414);
}

#[test]
fn a_connection_stays_open_as_its_version_and_the_head_say() {
    for (version, field, keep_alive) in [
        ("1.1", "X: y", true),
        ("1.1", "Connection: close", false),
        ("1.1", "Connection: x, Close", false),
        ("1.1", "Connection: close\r\nConnection: keep-alive", false),
        ("1.0", "X: y", false),
        ("1.0", "Connection: Keep-Alive", true),
        ("1.0", "Connection: keep-alive, close", false),
    ] {
        let head = request(&format!("GET / HTTP/{version}\r\n{field}\r\n\r\n")).expect("good");
        assert_eq!(head.keep_alive, keep_alive, "{version} {field}");
    }
}

#[test]
fn where_the_body_of_a_response_ends_has_one_reading() {
    let get = Method::GET;
    for (text, method, expected) in [
        (
            "200 OK\r\nContent-Length: 5",
            &get,
            Some(BodyLength::Known(5)),
        ),
        (
            "200 OK\r\nContent-Length: 5, 5",
            &get,
            Some(BodyLength::Known(5)),
        ),
        ("200 OK\r\nContent-Length: 5, 6", &get, None),
        ("200 OK\r\nContent-Length: +5", &get, None),
        ("200 OK\r\nContent-Length: 18446744073709551615", &get, None),
        ("200 OK\r\nX: y", &get, Some(BodyLength::UntilClose)),
        (
            "200 OK\r\nTransfer-Encoding: chunked",
            &get,
            Some(BodyLength::Chunked),
        ),
        (
            "200 OK\r\nTransfer-Encoding: gzip",
            &get,
            Some(BodyLength::UntilClose),
        ),
        (
            "204 No Content\r\nContent-Length: 5",
            &get,
            Some(BodyLength::Known(0)),
        ),
        (
            "304 Not Modified\r\nContent-Length: 5",
            &get,
            Some(BodyLength::Known(0)),
        ),
        (
            "101 Switching Protocols\r\nX: y",
            &get,
            Some(BodyLength::Known(0)),
        ),
        (
            "200 OK\r\nContent-Length: 5",
            &Method::HEAD,
            Some(BodyLength::Known(0)),
        ),
    ] {
        let head = response(&format!("HTTP/1.1 {text}\r\n\r\n"), method);
        assert_eq!(head.ok().map(|head| head.body), expected, "{text}");
    }
    let old = response(
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        &get,
    );
    assert!(old.is_err());
}

#[test]
fn an_unusual_reason_is_kept() {
    let reason = |text| response(text, &Method::GET).expect("good").reason;
    assert_eq!(reason("HTTP/1.1 200 OK\r\n\r\n"), None);
    assert_eq!(
        reason("HTTP/1.1 200 Fine\r\n\r\n").as_deref(),
        Some(&b"Fine"[..])
    );
    assert_eq!(reason("HTTP/1.1 200 \r\n\r\n").as_deref(), Some(&b""[..]));
    assert_eq!(
        reason("HTTP/1.1 299 Odd\r\n\r\n").as_deref(),
        Some(&b"Odd"[..])
    );
}

fn rewritten(text: &str, size: BodySize, context: &ResponseContext) -> (String, String) {
    let ResponseHead {
        mut parts,
        names,
        reason,
        ..
    } = response(text, &context.method).expect("good");
    headers::remove_hop_by_hop(&mut parts.headers, false, false);
    let mut out = WriteBuffer::default();
    let head = write_response(
        &mut parts,
        &names,
        reason.as_ref(),
        size,
        context,
        out.text(),
    );
    let text = String::from_utf8(out.text().clone()).expect("text");
    (text, format!("{:?} last={}", head.encoder, head.last))
}

#[test]
fn response_heads_leave_as_hyper_writes_them() {
    let context = |method: &Method, version, keep_alive| ResponseContext {
        method: method.clone(),
        version,
        keep_alive,
        trailers: false,
    };
    let new = context(&Method::GET, Version::HTTP_11, true);
    for (came, size, context, left, framed) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Type: a\r\nTransfer-Encoding: chunked\r\nX-b: 1\r\n\r\n",
            BodySize::Unknown,
            new.clone(),
            "HTTP/1.1 200 OK\r\nContent-Type: a\r\nX-b: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Chunked([]) last=false",
        ),
        (
            "HTTP/1.0 200 Fine\r\nContent-Length: 5\r\nX: y\r\n\r\n",
            BodySize::Known(5),
            new.clone(),
            "HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nX: y\r\n\r\n",
            "Length(5) last=false",
        ),
        (
            "HTTP/1.1 200 OK\r\nX: y\r\n\r\n",
            BodySize::Known(5),
            context(&Method::GET, Version::HTTP_11, false),
            "HTTP/1.1 200 OK\r\nX: y\r\nconnection: close\r\ncontent-length: 5\r\n\r\n",
            "Length(5) last=true",
        ),
        (
            "HTTP/1.1 200 OK\r\nX: y\r\n\r\n",
            BodySize::Unknown,
            context(&Method::GET, Version::HTTP_10, false),
            "HTTP/1.0 200 OK\r\nX: y\r\n\r\n",
            "UntilClose last=true",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
            BodySize::Known(2),
            context(&Method::GET, Version::HTTP_10, true),
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nconnection: keep-alive\r\n\r\n",
            "Length(2) last=false",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
            BodySize::None,
            context(&Method::HEAD, Version::HTTP_11, true),
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
            "Length(0) last=false",
        ),
        (
            "HTTP/1.1 304 Not Modified\r\nX: y\r\n\r\n",
            BodySize::None,
            new.clone(),
            "HTTP/1.1 304 Not Modified\r\nX: y\r\n\r\n",
            "Length(0) last=false",
        ),
        (
            "HTTP/1.1 200 OK\r\nX: y\r\n\r\n",
            BodySize::None,
            new.clone(),
            "HTTP/1.1 200 OK\r\nX: y\r\ncontent-length: 0\r\n\r\n",
            "Length(0) last=false",
        ),
        (
            "HTTP/1.1 299 Odd\r\nTrailer: x-a\r\nTrailer: x-b\r\n\r\n",
            BodySize::Unknown,
            new.clone(),
            "HTTP/1.1 299 Odd\r\nTrailer: x-a, x-b\r\ntransfer-encoding: chunked\r\n\r\n",
            "Chunked([\"x-a\", \"x-b\"]) last=false",
        ),
    ] {
        let (head, framing) = rewritten(came, size, &context);
        assert_eq!((&head[..], &framing[..]), (left, framed), "{came:?}");
    }
}

/// The status that hyper returns for a head, or `None` if it waits for more bytes.
async fn hyper_status(head: &[u8]) -> Option<u16> {
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::timeout;
    /// The clock is paused, so this passes as soon as hyper waits for more bytes.
    const SILENT: std::time::Duration = std::time::Duration::from_millis(20);
    let (mut agent, io) = duplex(4 * LIMIT);
    let service = service_fn(|_| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .max_header_size(LIMIT)
        .max_buf_size(LIMIT)
        .serve_connection(TokioIo::new(io), service);
    let ask = async move {
        let mut response = [0; 64];
        agent.write_all(head).await.expect("room");
        let answered = timeout(SILENT, agent.read(&mut response)).await;
        if let Ok(length) = answered {
            length.expect("open");
        }
        response
    };
    let (_, response) = tokio::join!(serving, ask);
    let status = response.split(|byte| *byte == b' ').nth(1)?;
    std::str::from_utf8(status).ok()?.parse().ok()
}

fn our_status(head: &[u8]) -> Option<u16> {
    match parse_request(head, LIMIT) {
        Ok(Some(_)) => Some(200),
        Ok(None) => None,
        Err(error) => Some(error.status().as_u16()),
    }
}

#[tokio::test(start_paused = true)]
async fn heads_are_refused_as_hyper_refuses_them() {
    const HEADS: [&str; 4] = [
        "GET /a?b HTTP/1.1\r\nHost: h\r\nX-A: b\r\n\r\n",
        "POST http://h/ HTTP/1.0\r\nConnection: close\r\nContent-Length: 12\r\n\r\n",
        "PUT * HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
    ];
    for head in HEADS.map(str::as_bytes) {
        assert_eq!(our_status(head), hyper_status(head).await);
        for place in 0..head.len() {
            for byte in *b"\0\t\r\n :,;=x1\x7f\x80\xff" {
                let mut other = head.to_vec();
                other[place] = byte;
                let ours = our_status(&other);
                let text = String::from_utf8_lossy(&other);
                assert_eq!(ours, hyper_status(&other).await, "{text:?}");
            }
            let mut shorter = head.to_vec();
            shorter.remove(place);
            let text = String::from_utf8_lossy(&shorter);
            assert_eq!(
                our_status(&shorter),
                hyper_status(&shorter).await,
                "{text:?}"
            );
        }
    }
}
