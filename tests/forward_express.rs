//! Chunks between two HTTP/1.1 sides are forwarded unchanged, framing included. Also tests side effects of reading the
//! upstream's socket directly.

use std::time::Duration;
use tokengauge_core::observer::End;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokengauge_test_support::upstream::Upstream;

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// An agent and a backend with a chunked response in progress.
async fn streaming(head: &str) -> (Upstream, Proxy, RawConnection, RawConnection) {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\n\r\n")
        .await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(format!("{head}3\r\none\r\n")).await;
    agent.read_head().await;
    assert_eq!(agent.read_exact(8).await, b"3\r\none\r\n");
    (upstream, proxy, agent, backend)
}

#[tokio::test]
async fn framing_leaves_as_it_came_however_it_is_cut() {
    const REST: &str = "0a;name=\"value\"\r\n0123456789\r\n1 \r\n!\r\n00000003\r\nend\r\n";
    for size in [1, 2, 3, 7, REST.len()] {
        let (_upstream, proxy, mut agent, mut backend) = streaming(CHUNKED).await;
        for piece in REST.as_bytes().chunks(size) {
            backend.write(piece).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(
            agent.read_exact(REST.len()).await,
            REST.as_bytes(),
            "{size}"
        );
        backend.write("0\r\n\r\n").await;
        assert_eq!(agent.read_exact(5).await, b"0\r\n\r\n");
        let call = proxy.recorder.only_call().await;
        assert_eq!(call.response(), b"one0123456789!end", "{size}");
        assert_eq!(call.ended(), Some(End::Complete));
    }
}

#[tokio::test]
async fn a_first_chunk_that_comes_in_parts_is_not_continued_as_if_it_were_framing() {
    const BODY: &str = "b\r\nhello world\r\n3\r\nabc\r\n0\r\n\r\n";
    for cut in 1..BODY.len() {
        let upstream = Upstream::bind().await;
        let proxy = Setup::to(upstream.address).start().await;
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.write(CHUNKED).await;
        agent.read_head().await;
        for piece in [&BODY[..cut], &BODY[cut..]] {
            backend.write(piece).await;
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        let raw = agent.read_until(b"0\r\n\r\n").await;
        let mut chunked = tokengauge_proxy::ChunkedDecoder::default();
        let read = chunked.read(&raw).expect("chunks");
        assert_eq!(read.payload, "hello worldabc", "cut at {cut}: {raw:?}");
        assert!(read.trailers.is_some(), "over");
    }
}

#[tokio::test]
async fn the_last_chunk_and_the_end_leave_together_and_the_connection_serves_again() {
    let (upstream, proxy, mut agent, mut backend) = streaming(CHUNKED).await;
    backend.write("3\r\ntwo\r\n0\r\n\r\n").await;
    assert_eq!(agent.read_exact(13).await, b"3\r\ntwo\r\n0\r\n\r\n");
    proxy.recorder.only_call().await;
    agent.write("GET /2 HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert!(backend.read_head().await.starts_with("GET /2 "));
    backend
        .write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .await;
    agent.read_head().await;
    assert_eq!(agent.read_exact(2).await, b"ok");
    let calls = proxy.recorder.ended_calls(2).await;
    assert_eq!(calls[1].reused(), [true]);
    drop(upstream);
}

#[tokio::test]
async fn a_connection_with_bytes_after_the_end_is_not_reused() {
    let (upstream, proxy, mut agent, mut backend) = streaming(CHUNKED).await;
    backend
        .write("0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        .await;
    assert_eq!(agent.read_exact(5).await, b"0\r\n\r\n");
    proxy.recorder.only_call().await;
    agent.write("GET /2 HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let mut other = upstream.accept().await;
    assert!(other.read_head().await.starts_with("GET /2 "));
    backend.closed().await;
}

#[tokio::test]
async fn trailers_follow_chunks_that_left_as_they_came() {
    let head = "HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (_upstream, proxy, mut agent, mut backend) = streaming(head).await;
    backend.write("3\r\ntwo\r\n").await;
    assert_eq!(agent.read_exact(8).await, b"3\r\ntwo\r\n");
    backend.write("0\r\nx-sum: 7\r\n\r\n").await;
    let end = String::from_utf8(agent.read_until(b"\r\n\r\n").await).expect("text");
    assert_eq!(end.to_ascii_lowercase(), "0\r\nx-sum: 7\r\n\r\n");
    let call = proxy.recorder.only_call().await;
    assert_eq!(call.ended(), Some(End::Complete));
}

#[tokio::test]
async fn malformed_framing_breaks_the_body_off_where_it_is_wrong() {
    for wrong in [
        "2\r\nabX\r\n",
        "zz\r\n",
        "3\nabc\r\n",
        "0\r\nno colon\r\n\r\n",
    ] {
        let (_upstream, proxy, mut agent, mut backend) = streaming(CHUNKED).await;
        backend.write("3\r\ntwo\r\n").await;
        assert_eq!(agent.read_exact(8).await, b"3\r\ntwo\r\n");
        backend.write(wrong).await;
        let rest = agent.read_to_end().await;
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{wrong:?}: {rest:?}");
        let call = proxy.recorder.only_call().await;
        assert_eq!(call.ended(), Some(End::UpstreamReset), "{wrong:?}");
    }
}

#[tokio::test]
async fn an_agent_that_reads_slowly_gets_every_byte() {
    const CHUNKS: usize = 2_000;
    const LAST: usize = 10;
    let (_upstream, proxy, mut agent, mut backend) = streaming(CHUNKED).await;
    let payload = "0123456789abcdef".repeat(256);
    let chunk = format!("1000\r\n{payload}\r\n");
    let sending = tokio::spawn({
        let chunk = chunk.clone();
        async move {
            for _ in 0..CHUNKS {
                backend.write(&chunk).await;
            }
            backend.write("0\r\n\r\n").await;
            backend
        }
    });
    for n in 0..CHUNKS - LAST {
        if n % 500 == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert!(
            agent.read_exact(chunk.len()).await == chunk.as_bytes(),
            "{n}"
        );
    }
    // Chunks that arrive together with the end of the body leave with it, as one.
    let mut rest = Vec::new();
    loop {
        let size = agent.text_until("\r\n").await;
        let size = usize::from_str_radix(size.trim_end(), 16).expect("a chunk's size");
        let data = agent.read_exact(size + 2).await;
        assert!(data.ends_with(b"\r\n"));
        rest.extend_from_slice(&data[..size]);
        if size == 0 {
            break;
        }
    }
    assert!(rest == payload.repeat(LAST).as_bytes());
    sending.await.expect("sent");
    let call = proxy.recorder.only_call().await;
    assert_eq!(call.ended(), Some(End::Complete));
    assert_eq!(call.response().len(), 3 + CHUNKS * 4096);
}

#[tokio::test]
async fn interim_responses_reach_the_agent_as_they_came() {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    for hint in [
        "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\n",
    ] {
        backend.write(hint).await;
        assert_eq!(agent.read_head().await, hint);
    }
    backend
        .write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .await;
    assert!(agent.read_head().await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(agent.read_exact(2).await, b"ok");
    let call = proxy.recorder.only_call().await;
    assert_eq!(
        (call.status(), call.ended()),
        (Some(200), Some(End::Complete))
    );
}

/// The data exceeds the buffers of both sockets, so the proxy may drop interim responses. Interim responses that arrive
/// once the agent reads again must reach it before the final response.
#[tokio::test]
async fn interim_responses_continue_once_a_slow_agent_reads() {
    const FLOOD: usize = 16 << 20;
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    let many = format!(
        "HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n",
        "y".repeat(900)
    )
    .repeat(64);
    for _ in 0..FLOOD / many.len() {
        backend.write(&many).await;
    }
    let last = tokio::spawn(async move {
        loop {
            backend
                .write("HTTP/1.1 103 Early Hints\r\nLink: </last>\r\n\r\n")
                .await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let until_last = async { while !agent.read_head().await.contains("</last>") {} };
    let reached = tokio::time::timeout(Duration::from_secs(20), until_last).await;
    last.abort();
    reached.expect("nothing that waited is left behind");
}

#[tokio::test]
async fn an_agent_of_http_1_0_gets_no_interim_response() {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("GET / HTTP/1.0\r\nHost: h\r\n\r\n").await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend
        .write("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .await;
    let head = agent.read_head().await;
    assert!(head.contains(" 200 OK\r\n"), "{head}");
}

#[tokio::test]
async fn a_response_that_begins_during_the_upload_is_forwarded_meanwhile() {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        .await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    assert_eq!(backend.read_exact(8).await, b"3\r\none\r\n");
    backend.write(format!("{CHUNKED}3\r\nONE\r\n")).await;
    agent.read_head().await;
    assert_eq!(agent.read_exact(8).await, b"3\r\nONE\r\n");
    agent.write("3\r\ntwo\r\n").await;
    assert_eq!(backend.read_exact(8).await, b"3\r\ntwo\r\n");
    backend.write("3\r\nTWO\r\n").await;
    assert_eq!(agent.read_exact(8).await, b"3\r\nTWO\r\n");
    agent.write("0\r\n\r\n").await;
    assert_eq!(backend.read_exact(5).await, b"0\r\n\r\n");
    backend.write("0\r\n\r\n").await;
    assert_eq!(agent.read_exact(5).await, b"0\r\n\r\n");
    let call = proxy.recorder.only_call().await;
    assert_eq!(call.request(), b"onetwo");
    assert_eq!(call.response(), b"ONETWO");
    assert_eq!(call.ended(), Some(End::Complete));
}

#[tokio::test]
async fn a_content_length_of_a_chunked_response_does_not_reach_the_agent() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend
        .write(format!("{head}5\r\nhello\r\n0\r\n\r\n"))
        .await;
    let head = agent.read_head().await.to_ascii_lowercase();
    assert!(!head.contains("content-length"), "{head}");
    assert_eq!(agent.read_exact(15).await, b"5\r\nhello\r\n0\r\n\r\n");
}

#[tokio::test]
async fn connections_of_an_upstream_that_closes_them_unannounced_are_not_used_again() {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    for n in 0..6 {
        agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.write(format!("{CHUNKED}3\r\none\r\n")).await;
        agent.read_head().await;
        assert_eq!(agent.read_exact(8).await, b"3\r\none\r\n");
        backend.write("0\r\n\r\n").await;
        assert_eq!(agent.read_exact(5).await, b"0\r\n\r\n");
        proxy.recorder.ended_calls(n + 1).await;
        if n < 2 {
            // The backend closes at once. The next request detects that.
            drop(backend);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        } else {
            // The proxy has stopped waiting to detect a close, so it closes the connection itself.
            backend.closed().await;
        }
    }
    let calls = proxy.recorder.ended_calls(6).await;
    assert!(calls.iter().all(|call| call.reused() == [false]));
}
