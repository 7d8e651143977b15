//! Agent faults over HTTP/1, and what the backend sees of them.

use super::backend::ReceivedRequest;
use super::fixture::{
    ProxyFixture, SHORT_TIMEOUT_MS, STREAM, ask, chat, chat_about, chunk, ordinary, request,
    the_end,
};
use super::message::MessageEnd;
use super::script::{Peer, Script};
use super::upstream::{ExpectedRecord, complete, recorded};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::meter::words;
use tokio::net::TcpStream;

struct Fault {
    name: &'static str,
    agent: fn(&str) -> Script,
    backend: Script,
    recorded: ExpectedRecord,
}

fn begun() -> Script {
    let script = Script::default().send(STREAM);
    script.send(chunk(words(3))).send(chunk(words(4)))
}

/// A request whose last 40 bytes are missing.
fn part(session: &str) -> Script {
    let request = chat(session, "HTTP/1.1");
    Script::default()
        .send(&request[..request.len() - 40])
        .wait(200)
}

/// A request that the proxy needs several reads for.
fn long(session: &str) -> Script {
    Script::default().send(chat_about(session, "HTTP/1.1", &"Hi ".repeat(30_000)))
}

fn faults() -> Vec<Fault> {
    let left = |tokens| recorded("client_cancelled", None, tokens);
    let listens = || Script::default().receive_all();
    let fault = |name, agent, backend, recorded| Fault {
        name,
        agent,
        backend,
        recorded,
    };
    vec![
        fault(
            "agent resets during its request",
            |s| part(s).reset(),
            ordinary(),
            left(None),
        ),
        fault(
            "agent closes during its request",
            |s| part(s).close(),
            ordinary(),
            left(None),
        ),
        fault(
            "agent half-closes during its request",
            |s| part(s).half_close().receive_all(),
            ordinary(),
            left(None),
        ),
        fault(
            "agent closes before the response head",
            |s| request(s).wait(200).close(),
            listens(),
            left(None),
        ),
        fault(
            "agent resets before the response head",
            |s| request(s).wait(200).reset(),
            listens(),
            left(None),
        ),
        fault(
            "agent closes after a long request, before the response head",
            |s| long(s).wait(200).close(),
            listens(),
            left(None),
        ),
        fault(
            "agent closes during the response",
            |s| request(s).receive(250).wait(100).close(),
            begun().receive_all(),
            left(Some(7)),
        ),
        fault(
            "agent resets during the response",
            |s| request(s).receive(250).wait(100).reset(),
            begun().receive_all(),
            left(Some(7)),
        ),
        fault(
            "agent half-closes during the response",
            |s| request(s).receive(250).wait(100).half_close().receive_all(),
            begun().receive_all(),
            left(Some(7)),
        ),
        fault(
            "agent sends byte by byte",
            |s| Script::default().trickle(chat(s, "HTTP/1.1")).receive_all(),
            ordinary(),
            complete(10),
        ),
    ]
}

pub fn names() -> Vec<&'static str> {
    faults().iter().map(|fault| fault.name).collect()
}

async fn request_seen_by_backend(
    fixture: &ProxyFixture,
    address: SocketAddr,
    script: &Script,
) -> ReceivedRequest {
    fixture.backend.received();
    ask(address, script).await;
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(request) = fixture.backend.received().pop() {
            return request;
        }
        assert!(
            Instant::now() < end,
            "the backend saw nothing of {script:?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Asserts that the backend received an equal request with and without the proxy, up to where the request or its
/// connection broke off.
fn alike(direct: &ReceivedRequest, through: &ReceivedRequest) -> bool {
    let (one, other) = (&direct.request, &through.request);
    let broken = |received: &ReceivedRequest| {
        received.request.end != MessageEnd::Whole || received.gone.is_some()
    };
    (&one.what, &one.body) == (&other.what, &other.body) && broken(direct) == broken(through)
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_break_off() {
    let fixture = ProxyFixture::start().await;
    let mut wrong = Vec::new();
    for fault in faults() {
        let session = fault.name.replace(' ', "-");
        fixture.backend.set_script(&fault.backend);
        let script = (fault.agent)(&session);
        let direct = request_seen_by_backend(&fixture, fixture.backend.address, &script).await;
        let through = request_seen_by_backend(&fixture, fixture.proxy(), &script).await;
        let record = fixture.record(&session).await;
        fixture.returns_to_idle(fault.name).await;
        fixture.next_call_works().await;
        if !alike(&direct, &through) {
            wrong.push(format!(
                "{}:\n  direct  {direct:?}\n  through {through:?}",
                fault.name
            ));
        } else if !fault.recorded.is(&record) {
            wrong.push(format!(
                "{}: not {:?}: {record}",
                fault.name, fault.recorded
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Until something is written, a half-closed connection looks the same as a disconnect. The proxy treats it as a
/// disconnect, so that the engine does not compute for an agent that has left. nginx, Envoy, Node, Go and uvicorn
/// decide the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_half_closes_after_its_request_counts_as_gone() {
    let fixture = ProxyFixture::start().await;
    fixture
        .backend
        .set_script(&Script::default().wait(300).send(STREAM).send(the_end()));
    let script = request("half-close").wait(50).half_close().receive_all();
    assert_eq!(
        ask(fixture.backend.address, &script).await.end,
        MessageEnd::Whole
    );
    let through = ask(fixture.proxy(), &script).await;
    assert_eq!((through.what, through.end), (None, MessageEnd::Short));
    let record = fixture.record("half-close").await;
    assert!(
        recorded("client_cancelled", None, None).is(&record),
        "{record}"
    );
    fixture.returns_to_idle("a half-close").await;
    fixture.next_call_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stalls_in_its_request_gets_504() {
    let fixture = ProxyFixture::with_short_timeouts().await;
    let seen = ask(
        fixture.proxy(),
        &part("stalls").wait(SHORT_TIMEOUT_MS).receive_all(),
    )
    .await;
    assert_eq!(seen.what.as_deref(), Some("504"));
    assert_eq!(seen.error.as_deref(), Some("upstream_idle_timeout"));
    let record = fixture.record("stalls").await;
    assert!(
        recorded("timeout", Some("upstream_idle_timeout"), None).is(&record),
        "{record}"
    );
    fixture.returns_to_idle("a stalled upload").await;
    fixture.next_call_works().await;
}

/// Slowloris: heads that never end are cut off after the head timeout and delay no other agent.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_endless_heads_lose_only_their_own_connections() {
    let fixture = ProxyFixture::with_short_timeouts().await;
    let begun = Instant::now();
    let heads = (0..200).map(|number| {
        let address = fixture.proxy();
        tokio::spawn(async move {
            let mut end = Peer::new(TcpStream::connect(address).await.expect("connected"));
            let more = format!("X-{number}: 1\r\n");
            end.play(&Script::default().send("POST / HTTP/1.1\r\nHost: h\r\n"))
                .await;
            while end.gone.is_none() {
                let more = Script::default().send(&more).wait(100);
                end.play(&more).await;
            }
            end.received
        })
    });
    let heads: Vec<_> = heads.collect();
    while begun.elapsed() < Duration::from_millis(SHORT_TIMEOUT_MS - 500) {
        fixture.next_call_works().await;
    }
    for head in heads {
        assert_eq!(head.await.expect("cut off"), b"");
    }
    fixture.returns_to_idle("slow heads").await;
    fixture.next_call_works().await;
}
