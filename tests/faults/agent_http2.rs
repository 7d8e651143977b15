//! Agent faults over HTTP/2.

use super::fixture::{ProxyFixture, STREAM, chunk};
use super::frames::{
    ACK, CANCEL, CONTINUATION, DATA, END_HEADERS, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, PING,
    PREFACE, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, data, end, field, frame, frames,
    request, reset, settings,
};
use super::script::{Peer, Script};
use std::time::{Duration, Instant};
use tokengauge_test_support::TIMEOUT;
use tokio::net::TcpStream;

struct Flood {
    name: &'static str,
    script: Script,
    outcome: ConnectionOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ConnectionOutcome {
    /// The connection stays open and answers the next request.
    Served,
    /// The connection ends with GOAWAY and this error code.
    GoAway(u32),
}

fn opened() -> Script {
    let hello = Script::default().send(PREFACE).send(settings(&[]));
    hello.send(frame(SETTINGS, ACK, 0, b""))
}

fn floods() -> Vec<Flood> {
    let flood = |name, script, outcome| Flood {
        name,
        script,
        outcome,
    };
    let pair = |number: u32| {
        let stream = 2 * number + 1;
        [request(stream, "flood"), reset(stream, CANCEL)].concat()
    };
    let resets: Vec<u8> = (0..5_000).flat_map(pair).collect();
    let open = frame(HEADERS, END_HEADERS, 1, block("flood"));
    let endless = frame(HEADERS, 0, 1, block("flood"));
    let more = frame(CONTINUATION, 0, 1, field("x-a", "b"));
    vec![
        flood(
            "agent resets streams rapidly",
            opened().send(resets),
            ConnectionOutcome::GoAway(ENHANCE_YOUR_CALM),
        ),
        flood(
            "agent sends a flood of PING frames",
            opened().repeat(frame(PING, 0, 0, [0; 8]), 50_000),
            ConnectionOutcome::Served,
        ),
        flood(
            "agent sends a flood of SETTINGS frames",
            opened().repeat(settings(&[(4, 65_535)]), 50_000),
            ConnectionOutcome::Served,
        ),
        flood(
            "agent sends a flood of WINDOW_UPDATE frames",
            opened().repeat(frame(WINDOW_UPDATE, 0, 0, [0, 0, 0, 1]), 50_000),
            ConnectionOutcome::Served,
        ),
        flood(
            "agent sends a flood of PRIORITY frames",
            opened().repeat(frame(PRIORITY, 0, 1, [0, 0, 0, 3, 1]), 50_000),
            ConnectionOutcome::Served,
        ),
        flood(
            "agent sends a flood of unknown frames",
            opened().repeat(frame(0xbb, 0, 0, b"what"), 50_000),
            ConnectionOutcome::Served,
        ),
        flood(
            "agent sends a flood of empty frames",
            opened().send(open).repeat(data(1, ""), 50_000).send(end(1)),
            ConnectionOutcome::GoAway(ENHANCE_YOUR_CALM),
        ),
        flood(
            "agent sends a flood of CONTINUATION frames",
            opened().send(endless).repeat(more, 50_000),
            ConnectionOutcome::GoAway(ENHANCE_YOUR_CALM),
        ),
    ]
}

pub fn names() -> Vec<&'static str> {
    floods().iter().map(|flood| flood.name).collect()
}

/// Returns how the connection ended after a flood. `None` means that it closed without GOAWAY.
async fn connection_outcome(fixture: &ProxyFixture, flood: &Flood) -> Option<ConnectionOutcome> {
    let mut end = Peer::new(
        TcpStream::connect(fixture.proxy())
            .await
            .expect("connected"),
    );
    end.play(&flood.script).await;
    end.play(&Script::default().send(request(20_001, "flood")))
        .await;
    let until = Instant::now() + TIMEOUT;
    while Instant::now() < until {
        let goes_on = end.receive().await;
        for (kind, _, stream, payload) in frames(&end.received) {
            match kind {
                GOAWAY => {
                    return payload
                        .get(7)
                        .map(|code| ConnectionOutcome::GoAway(u32::from(*code)));
                }
                HEADERS if stream == 20_001 => {
                    assert_eq!(payload.first(), Some(&0x88), "status 200");
                    return Some(ConnectionOutcome::Served);
                }
                _ => {}
            }
        }
        if !goes_on {
            return None;
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_flood_http2() {
    let fixture = ProxyFixture::start().await;
    let mut wrong = Vec::new();
    for flood in floods() {
        let before = fixture.records("flood").await.len();
        let (outcome, ()) = tokio::join!(
            connection_outcome(&fixture, &flood),
            fixture.next_call_works()
        );
        fixture.returns_to_idle(flood.name).await;
        fixture.next_call_works().await;
        if outcome != Some(flood.outcome) {
            wrong.push(format!(
                "{}: {outcome:?}, not {:?}",
                flood.name, flood.outcome
            ));
        }
        let records = fixture.records("flood").await;
        let new = &records[..records.len() - before];
        let outcomes = ["complete", "client_cancelled"];
        let odd = new
            .iter()
            .find(|record| !outcomes.iter().any(|known| record["outcome"] == *known));
        wrong.extend(odd.map(|record| format!("{}: {record}", flood.name)));
        if new.len() > 200 {
            wrong.push(format!("{}: {} calls went through", flood.name, new.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_http2_streams_than_allowed_are_refused_and_the_others_served() {
    const REFUSED: u8 = 7;
    let fixture = ProxyFixture::start().await;
    fixture
        .backend
        .set_script(&Script::default().send(STREAM).receive_all());
    let requests: Vec<u8> = (0..150)
        .flat_map(|number| request(2 * number + 1, "many"))
        .collect();
    let mut agent = Peer::new(
        TcpStream::connect(fixture.proxy())
            .await
            .expect("connected"),
    );
    agent.play(&opened().wait(50).send(requests)).await;
    let count = |received: &[u8], kind: u8| {
        let frames = frames(received);
        let these = frames.iter().filter(|frame| frame.0 == kind);
        these
            .filter(|frame| kind != RST_STREAM || frame.3.last() == Some(&REFUSED))
            .count()
    };
    while count(&agent.received, HEADERS) + count(&agent.received, RST_STREAM) < 150 {
        assert!(agent.receive().await, "{} came", agent.received.len());
    }
    assert_eq!(
        (
            count(&agent.received, HEADERS),
            count(&agent.received, RST_STREAM)
        ),
        (100, 50)
    );
    drop(agent);
    fixture.returns_to_idle("many streams").await;
    fixture.next_call_works().await;
    let records = fixture.recorded("many", 100).await;
    assert!(
        records
            .iter()
            .all(|record| record["outcome"] == "client_cancelled")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_agent_with_a_closed_window_delays_only_its_own_stream() {
    let fixture = ProxyFixture::start().await;
    fixture.backend.set_script(
        &Script::default()
            .send(STREAM)
            .repeat(chunk([b'x'; 1000]), 100)
            .receive_all(),
    );
    let mut agent = Peer::new(
        TcpStream::connect(fixture.proxy())
            .await
            .expect("connected"),
    );
    let shut = Script::default().send(PREFACE).send(settings(&[(4, 0)]));
    agent.play(&shut.send(request(1, "shut")).wait(200)).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(500) {
        fixture.next_call_works().await;
    }
    agent
        .play(&Script::default().send(frame(PING, 0, 0, [0; 8])))
        .await;
    while !frames(&agent.received).iter().any(|frame| frame.0 == PING) {
        assert!(agent.receive().await);
    }
    let received = frames(&agent.received);
    assert!(received.iter().any(|frame| frame.0 == HEADERS));
    assert!(
        received
            .iter()
            .all(|frame| frame.0 != DATA || frame.3.is_empty())
    );
    agent.play(&Script::default().reset()).await;
    drop(agent);
    assert_eq!(fixture.record("shut").await["outcome"], "client_cancelled");
    fixture.returns_to_idle("a shut window").await;
    fixture.next_call_works().await;
}

/// The reset of a stream can overtake bytes that are still queued for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_http2_agent_gets_the_bytes_before_a_body_broke_off() {
    let fixture = ProxyFixture::start().await;
    let does = Script::default().send(STREAM).send(chunk("hello"));
    for (number, does) in [does.clone().close(), does.send("zz\r\n").close()]
        .iter()
        .enumerate()
    {
        let session = format!("broken-{number}");
        fixture.backend.set_script(does);
        let mut agent = Peer::new(
            TcpStream::connect(fixture.proxy())
                .await
                .expect("connected"),
        );
        agent.play(&opened().send(request(1, &session))).await;
        while !frames(&agent.received)
            .iter()
            .any(|frame| frame.0 == RST_STREAM)
        {
            assert!(agent.receive().await, "{:?}", frames(&agent.received));
        }
        let received = frames(&agent.received);
        let content: Vec<u8> = received
            .iter()
            .filter(|frame| frame.0 == DATA)
            .flat_map(|frame| frame.3.to_vec())
            .collect();
        assert!(received.iter().any(|frame| frame.0 == HEADERS));
        assert_eq!(content, b"hello", "{number}");
        drop(agent);
        assert_eq!(fixture.record(&session).await["outcome"], "upstream_reset");
        fixture.returns_to_idle(&session).await;
    }
    fixture.next_call_works().await;
}
