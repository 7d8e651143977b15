//! What an agent does wrong over HTTP/1: what the backend sees of it.

use super::backend::Visit;
use super::message::Ending;
use super::play::{End, Play};
use super::upstream::{Recorded, complete, recorded};
use super::world::{
    GIVES_UP, STREAM, World, ask, chat, chat_about, chunk, ordinary, request, the_end,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokengauge_test_support::PATIENCE;
use tokengauge_test_support::meter::words;
use tokio::net::TcpStream;

struct Fault {
    name: &'static str,
    /// What the agent does, for a session.
    agent: fn(&str) -> Play,
    backend: Play,
    recorded: Recorded,
}

fn begun() -> Play {
    let play = Play::default().send(STREAM);
    play.send(chunk(words(3))).send(chunk(words(4)))
}

/// A request of which 40 bytes are missing.
fn part(session: &str) -> Play {
    let request = chat(session, "HTTP/1.1");
    Play::default()
        .send(&request[..request.len() - 40])
        .wait(200)
}

/// A request that the proxy reads in several pieces.
fn long(session: &str) -> Play {
    Play::default().send(chat_about(session, "HTTP/1.1", &"Hi ".repeat(30_000)))
}

fn faults() -> Vec<Fault> {
    let left = |tokens| recorded("client_cancelled", None, tokens);
    let listens = || Play::default().listen();
    let fault = |name, agent, backend, recorded| Fault {
        name,
        agent,
        backend,
        recorded,
    };
    vec![
        fault(
            "agent resets amid its request",
            |s| part(s).reset(),
            ordinary(),
            left(None),
        ),
        fault(
            "agent closes amid its request",
            |s| part(s).close(),
            ordinary(),
            left(None),
        ),
        fault(
            "agent half-closes amid its request",
            |s| part(s).half_close().listen(),
            ordinary(),
            left(None),
        ),
        fault(
            "agent closes before the head",
            |s| request(s).wait(200).close(),
            listens(),
            left(None),
        ),
        fault(
            "agent resets before the head",
            |s| request(s).wait(200).reset(),
            listens(),
            left(None),
        ),
        fault(
            "agent closes behind a long request, before the head",
            |s| long(s).wait(200).close(),
            listens(),
            left(None),
        ),
        fault(
            "agent closes amid the response",
            |s| request(s).hear(250).wait(100).close(),
            begun().listen(),
            left(Some(7)),
        ),
        fault(
            "agent resets amid the response",
            |s| request(s).hear(250).wait(100).reset(),
            begun().listen(),
            left(Some(7)),
        ),
        fault(
            "agent half-closes amid the response",
            |s| request(s).hear(250).wait(100).half_close().listen(),
            begun().listen(),
            left(Some(7)),
        ),
        fault(
            "agent sends byte by byte",
            |s| Play::default().trickle(chat(s, "HTTP/1.1")).listen(),
            ordinary(),
            complete(10),
        ),
    ]
}

/// What the faults are called.
pub fn names() -> Vec<&'static str> {
    faults().iter().map(|fault| fault.name).collect()
}

/// What the backend saw of an agent.
async fn visit(world: &World, address: SocketAddr, play: &Play) -> Visit {
    world.backend.visits();
    ask(address, play).await;
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(visit) = world.backend.visits().pop() {
            return visit;
        }
        assert!(Instant::now() < end, "the backend saw nothing of {play:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The same request; where it or the connection broke off, it does in both.
fn alike(direct: &Visit, through: &Visit) -> bool {
    let (one, other) = (&direct.request, &through.request);
    let broken = |visit: &Visit| visit.request.end != Ending::Whole || visit.gone.is_some();
    (&one.what, &one.body) == (&other.what, &other.body) && broken(direct) == broken(through)
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_break_off() {
    let world = World::start().await;
    let mut wrong = Vec::new();
    for fault in faults() {
        let session = fault.name.replace(' ', "-");
        world.backend.plays(&fault.backend);
        let play = (fault.agent)(&session);
        let direct = visit(&world, world.backend.address, &play).await;
        let through = visit(&world, world.proxy(), &play).await;
        let record = world.record(&session).await;
        world.rests(fault.name).await;
        world.next_call_works().await;
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

/// A half-closed connection cannot be distinguished from one whose agent is gone until something
/// is written: it counts as gone, or the engine would go on for nobody until its first
/// token. nginx, Envoy, Node, Go and uvicorn decide the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_half_closes_behind_its_request_counts_as_gone() {
    let world = World::start().await;
    world
        .backend
        .plays(&Play::default().wait(300).send(STREAM).send(the_end()));
    let play = request("half-close").wait(50).half_close().listen();
    assert_eq!(ask(world.backend.address, &play).await.end, Ending::Whole);
    let through = ask(world.proxy(), &play).await;
    assert_eq!((through.what, through.end), (None, Ending::Short));
    let record = world.record("half-close").await;
    assert!(
        recorded("client_cancelled", None, None).is(&record),
        "{record}"
    );
    world.rests("a half-close").await;
    world.next_call_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stalls_in_its_request_is_told_so() {
    let world = World::impatient().await;
    let seen = ask(world.proxy(), &part("stalls").wait(GIVES_UP).listen()).await;
    assert_eq!(seen.what.as_deref(), Some("504"));
    assert_eq!(seen.error.as_deref(), Some("upstream_idle_timeout"));
    let record = world.record("stalls").await;
    assert!(
        recorded("timeout", Some("upstream_idle_timeout"), None).is(&record),
        "{record}"
    );
    world.rests("a stalled upload").await;
    world.next_call_works().await;
}

/// Slowloris: heads that never end. Each is cut off when its time is over, and nobody
/// waits for them.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_heads_without_end_cost_their_own_connections_alone() {
    let world = World::impatient().await;
    let begun = Instant::now();
    let heads = (0..200).map(|number| {
        let address = world.proxy();
        tokio::spawn(async move {
            let mut end = End::new(TcpStream::connect(address).await.expect("connected"));
            let more = format!("X-{number}: 1\r\n");
            end.play(&Play::default().send("POST / HTTP/1.1\r\nHost: h\r\n"))
                .await;
            while end.gone.is_none() {
                let more = Play::default().send(&more).wait(100);
                end.play(&more).await;
            }
            end.heard
        })
    });
    let heads: Vec<_> = heads.collect();
    while begun.elapsed() < Duration::from_millis(GIVES_UP - 500) {
        world.next_call_works().await;
    }
    for head in heads {
        assert_eq!(head.await.expect("cut off"), b"");
    }
    world.rests("slow heads").await;
    world.next_call_works().await;
}
