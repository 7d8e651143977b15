//! Upstream faults over HTTP/1.

use super::fixture::{ProxyFixture, SHORT_TIMEOUT_MS, STREAM, chunk, the_end};
use super::script::Script;
use super::upstream::{
    ExpectedRecord, ExpectedResponse, Fault, all, complete, fault, recorded, refused, reset,
    uncounted,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use tokengauge_test_support::meter::{DONE, finish, words};

const EARLY: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";

/// Reasons why a body is not counted if it is too large or measuring is too slow.
const TOO_MUCH: &[&str] = &["unparsed", "lagged"];

/// An unfinished stream with 7 tokens.
fn begun() -> Script {
    let script = Script::default().send(STREAM);
    script.send(chunk(words(3))).send(chunk(words(4)))
}

fn head(fields: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{fields}\r\n")
}

/// The events of a complete stream with 7 tokens, without framing.
fn events() -> String {
    [words(3), words(4), finish(None), DONE.to_owned()].concat()
}

fn lost() -> Vec<Fault> {
    let script = Script::default;
    let half = events().len() / 2;
    vec![
        refused(
            "reset before the response head",
            script().reset(),
            "502",
            "upstream_reset",
        ),
        refused(
            "closed before the response head",
            script().close(),
            "502",
            "upstream_reset",
        ),
        refused(
            "half-closed before the response head",
            script().half_close().receive_all(),
            "502",
            "upstream_reset",
        ),
        refused(
            "reset within the response head",
            script().send(&STREAM[..40]).wait(50).reset(),
            "502",
            "upstream_reset",
        ),
        refused(
            "closed within the response head",
            script().send(&STREAM[..40]).close(),
            "502",
            "upstream_reset",
        ),
        fault(
            "reset between chunks",
            begun().wait(100).reset(),
            ExpectedResponse::Short,
            reset(7),
        ),
        fault(
            "closed between chunks",
            begun().close(),
            ExpectedResponse::Same,
            reset(7),
        ),
        fault(
            "closed within a chunk",
            begun().send(&chunk(words(9))[..30]).close(),
            ExpectedResponse::Same,
            reset(7),
        ),
        fault(
            "half-closed between chunks",
            begun().half_close().receive_all(),
            ExpectedResponse::Same,
            reset(7),
        ),
        fault(
            "half-closed after the end of the response",
            begun().send(the_end()).half_close().receive_all(),
            ExpectedResponse::Same,
            complete(7),
        ),
        fault(
            "closed within a body of known length",
            script()
                .send(head("Content-Length: 5000\r\n"))
                .send(words(3))
                .close(),
            ExpectedResponse::Same,
            reset(3),
        ),
        fault(
            "reset within a body of known length",
            script()
                .send(head("Content-Length: 5000\r\n"))
                .send(words(3))
                .wait(100)
                .reset(),
            ExpectedResponse::Short,
            reset(3),
        ),
        fault(
            "reset within a body without a length",
            script()
                .send(head("Connection: close\r\n"))
                .send(words(3))
                .wait(100)
                .reset(),
            ExpectedResponse::Short,
            reset(3),
        ),
        Fault {
            agent: "HTTP/1.0",
            ..fault(
                "reset within a body without a length for HTTP/1.0",
                script()
                    .send(head("Connection: close\r\n"))
                    .send(words(3))
                    .wait(100)
                    .reset(),
                ExpectedResponse::Same,
                reset(3),
            )
        },
        Fault {
            agent: "HTTP/1.0",
            ..fault(
                "closed between chunks for HTTP/1.0",
                begun().close(),
                ExpectedResponse::Reset,
                reset(7),
            )
        },
        fault(
            "closed within a body without a length",
            script()
                .send(head("Connection: close\r\n"))
                .send(&events()[..half])
                .close(),
            ExpectedResponse::Same,
            recorded("upstream_reset", Some("unterminated"), Some(3)),
        ),
    ]
}

fn slow() -> Vec<Fault> {
    let endless = Script::default()
        .repeat(EARLY, 1_000)
        .wait(SHORT_TIMEOUT_MS * 2)
        .close();
    let whole = [STREAM.as_bytes(), &chunk(words(3)), &the_end()].concat();
    // With one event before the stall and one after it, a slow machine cannot add another gap.
    let stalls = [STREAM.as_bytes(), &chunk(words(7))].concat();
    let goes_on = [chunk(words(5)), the_end()].concat();
    let stall = Script::default().send(stalls).wait(SHORT_TIMEOUT_MS / 2);
    vec![
        fault(
            "a stall, then the rest of the stream",
            stall.send(goes_on),
            ExpectedResponse::Same,
            ExpectedRecord {
                stalls: 1,
                ..complete(12)
            },
        ),
        fault(
            "a stall, then a close",
            begun().wait(500).close(),
            ExpectedResponse::Same,
            reset(7),
        ),
        fault(
            "a stall without end",
            begun().wait(SHORT_TIMEOUT_MS * 2).send(the_end()),
            ExpectedResponse::GivenUp,
            recorded("timeout", Some("upstream_idle_timeout"), Some(7)),
        ),
        refused(
            "only interim responses",
            endless,
            "504",
            "upstream_head_timeout",
        ),
        refused(
            "no response head",
            Script::default()
                .wait(SHORT_TIMEOUT_MS * 2)
                .send(whole.clone()),
            "504",
            "upstream_head_timeout",
        ),
        fault(
            "a response sent byte by byte",
            Script::default().trickle(whole),
            ExpectedResponse::Same,
            complete(3),
        ),
    ]
}

fn framing() -> Vec<Fault> {
    let bad = |name, framing: &[u8]| {
        let does = begun().send(framing).send(the_end()).wait(100).close();
        fault(name, does, ExpectedResponse::Short, reset(7))
    };
    vec![
        bad("an invalid chunk size", b"xyz\r\n"),
        bad("a negative chunk size", b"-5\r\nhello\r\n"),
        bad(
            "a chunk size beyond 64 bits",
            b"10000000000000005\r\nhello\r\n",
        ),
        bad("a chunk longer than its size", b"3\r\nhello\r\n"),
        fault(
            "an incomplete chunk",
            begun().send("ffffffffffffff\r\n: a\n\n").close(),
            ExpectedResponse::Same,
            reset(7),
        ),
        fault(
            "chunk extensions",
            begun()
                .send("5;name=value;other=\"quoted\"\r\n: a\n\n\r\n")
                .send(the_end()),
            ExpectedResponse::Same,
            complete(7),
        ),
        fault(
            "a chunk extension without end",
            begun().send("5;").repeat("x", 100_000).close(),
            ExpectedResponse::Same,
            reset(7),
        ),
        fault(
            "trailers",
            Script::default()
                .send(STREAM.replace("\r\n\r\n", "\r\nTrailer: x-sum, x-more\r\n\r\n"))
                .send(chunk(words(7)))
                .send(chunk(finish(None)))
                .send("0\r\nx-sum: 7\r\nx-more: 8\r\n\r\n"),
            ExpectedResponse::Same,
            complete(7),
        ),
        fault(
            "trailers without end",
            begun()
                .send(chunk(finish(None)))
                .send("0\r\n")
                .repeat("x-sum: 7\r\n", 5_000)
                .close(),
            ExpectedResponse::Same,
            recorded("upstream_reset", Some("upstream_reset"), Some(7)),
        ),
        refused(
            "two Content-Length fields",
            Script::default()
                .send(head("Content-Length: 5\r\nContent-Length: 6\r\n"))
                .send("hello!")
                .close(),
            "502",
            "upstream_protocol",
        ),
        refused(
            "a response that is not HTTP",
            Script::default()
                .send("SSH-2.0-OpenSSH_9.9\r\n\r\n")
                .close(),
            "502",
            "upstream_protocol",
        ),
    ]
}

fn floods() -> Vec<Fault> {
    let many: String = (0..101)
        .map(|number| format!("X-{number}: 1\r\n"))
        .collect();
    let large = format!("X-Large: {}\r\n", "x".repeat(70_000));
    let chunked = "Transfer-Encoding: chunked\r\n";
    let after = |fields: &str| {
        let head = head(&format!("{fields}{chunked}"));
        Script::default()
            .send(head)
            .send(chunk(words(3)))
            .send(the_end())
    };
    let storm = Script::default().repeat(EARLY, 5_000);
    let storm = Script([storm.0, begun().send(the_end()).0].concat());
    let event = begun().send(chunk(
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"",
    ));
    let event = event.repeat(chunk(vec![b'x'; 60_000]), 400);
    vec![
        fault(
            "a storm of interim responses",
            storm,
            ExpectedResponse::Interim(5_000),
            complete(7),
        ),
        fault(
            "99 header fields",
            after(&many[..many.find("X-97").unwrap_or_default()]),
            ExpectedResponse::Same,
            complete(3),
        ),
        refused(
            "a flood of header fields",
            after(&many),
            "502",
            "upstream_protocol",
        ),
        refused(
            "a response head that is too large",
            after(&large),
            "502",
            "upstream_protocol",
        ),
        fault(
            "an event of 24 MB",
            event.send(chunk("\"}}]}\n\n")).send(the_end()),
            ExpectedResponse::Same,
            uncounted(TOO_MUCH),
        ),
    ]
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).expect("in memory");
    encoder.finish().expect("in memory")
}

fn contents() -> Vec<Fault> {
    let zipped = |body: &[u8]| {
        let head = head("Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n");
        Script::default()
            .send(head)
            .send(chunk(body))
            .send("0\r\n\r\n")
    };
    let good = gzip(events().as_bytes());
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle..middle + 8].fill(0xff);
    let bomb = gzip(&[b"data: ".as_slice(), &vec![b'x'; 32 << 20]].concat());
    let mut garbled = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"".to_vec();
    garbled.extend_from_slice(b" \xff\xfe\xc3\x28\xed\xa0\x80\"}}]}\n\n");
    let noise: Vec<u8> = (0..60_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    vec![
        fault("gzip", zipped(&good), ExpectedResponse::Same, complete(7)),
        fault(
            "corrupted gzip",
            zipped(&bad),
            ExpectedResponse::Same,
            uncounted(&["unparsed"]),
        ),
        fault(
            "truncated gzip",
            zipped(&good[..good.len() / 2]),
            ExpectedResponse::Same,
            recorded("upstream_reset", Some("unterminated"), Some(0)),
        ),
        fault(
            "a gzip bomb",
            zipped(&bomb),
            ExpectedResponse::Same,
            uncounted(TOO_MUCH),
        ),
        fault(
            "invalid UTF-8",
            begun().send(chunk(garbled)).send(the_end()),
            ExpectedResponse::Same,
            complete(11),
        ),
        fault(
            "binary noise instead of events",
            begun()
                .send(chunk(noise))
                .send(chunk("\n\n"))
                .send(the_end()),
            ExpectedResponse::Same,
            complete(7),
        ),
    ]
}

pub fn names() -> Vec<&'static str> {
    let all = [lost(), slow(), framing(), floods(), contents()];
    all.iter().flatten().map(|fault| fault.name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_an_upstream_loses() {
    all(&ProxyFixture::start().await, lost()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_that_take_their_time() {
    all(&ProxyFixture::with_short_timeouts().await, slow()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_whose_framing_is_wrong() {
    all(&ProxyFixture::start().await, framing()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_that_send_too_much() {
    all(&ProxyFixture::start().await, floods()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_that_cannot_be_read() {
    all(&ProxyFixture::start().await, contents()).await;
}
