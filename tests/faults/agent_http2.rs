//! What an agent does wrong over HTTP/2.

use super::frames::{
    ACK, CANCEL, CONTINUATION, DATA, END_HEADERS, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, PING,
    PREFACE, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, data, end, field, frame, frames,
    request, reset, settings,
};
use super::play::{End, Play};
use super::world::{STREAM, World, chunk};
use std::time::{Duration, Instant};
use tokengauge_test_support::PATIENCE;
use tokio::net::TcpStream;

/// What is sent too much of.
struct Flood {
    name: &'static str,
    play: Play,
    told: Told,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    /// It goes on: the next request is answered.
    Served,
    /// It ends with this code.
    GoAway(u32),
}

fn opened() -> Play {
    let hello = Play::default().send(PREFACE).send(settings(&[]));
    hello.send(frame(SETTINGS, ACK, 0, b""))
}

fn floods() -> Vec<Flood> {
    let flood = |name, play, told| Flood { name, play, told };
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
            "agent h2 rapid reset",
            opened().send(resets),
            Told::GoAway(ENHANCE_YOUR_CALM),
        ),
        flood(
            "agent h2 ping flood",
            opened().repeat(frame(PING, 0, 0, [0; 8]), 50_000),
            Told::Served,
        ),
        flood(
            "agent h2 settings flood",
            opened().repeat(settings(&[(4, 65_535)]), 50_000),
            Told::Served,
        ),
        flood(
            "agent h2 window flood",
            opened().repeat(frame(WINDOW_UPDATE, 0, 0, [0, 0, 0, 1]), 50_000),
            Told::Served,
        ),
        flood(
            "agent h2 priority flood",
            opened().repeat(frame(PRIORITY, 0, 1, [0, 0, 0, 3, 1]), 50_000),
            Told::Served,
        ),
        flood(
            "agent h2 flood of unknown frames",
            opened().repeat(frame(0xbb, 0, 0, b"what"), 50_000),
            Told::Served,
        ),
        flood(
            "agent h2 flood of empty frames",
            opened().send(open).repeat(data(1, ""), 50_000).send(end(1)),
            Told::GoAway(ENHANCE_YOUR_CALM),
        ),
        flood(
            "agent h2 continuation flood",
            opened().send(endless).repeat(more, 50_000),
            Told::GoAway(ENHANCE_YOUR_CALM),
        ),
    ]
}

/// What the floods are called.
pub fn names() -> Vec<&'static str> {
    floods().iter().map(|flood| flood.name).collect()
}

/// What became of a connection after a flood.
async fn told(world: &World, flood: &Flood) -> Option<Told> {
    let mut end = End::new(TcpStream::connect(world.proxy()).await.expect("connected"));
    end.play(&flood.play).await;
    end.play(&Play::default().send(request(20_001, "flood")))
        .await;
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let goes_on = end.hear().await;
        for (kind, _, stream, payload) in frames(&end.heard) {
            match kind {
                GOAWAY => return payload.get(7).map(|code| Told::GoAway(u32::from(*code))),
                HEADERS if stream == 20_001 => {
                    assert_eq!(payload.first(), Some(&0x88), "status 200");
                    return Some(Told::Served);
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
    let world = World::start().await;
    let mut wrong = Vec::new();
    for flood in floods() {
        let before = world.records("flood").await.len();
        let (told, ()) = tokio::join!(told(&world, &flood), world.next_call_works());
        world.rests(flood.name).await;
        world.next_call_works().await;
        if told != Some(flood.told) {
            wrong.push(format!("{}: {told:?}, not {:?}", flood.name, flood.told));
        }
        let records = world.records("flood").await;
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
    let world = World::start().await;
    world.backend.plays(&Play::default().send(STREAM).listen());
    let requests: Vec<u8> = (0..150)
        .flat_map(|number| request(2 * number + 1, "many"))
        .collect();
    let mut agent = End::new(TcpStream::connect(world.proxy()).await.expect("connected"));
    agent.play(&opened().wait(50).send(requests)).await;
    let count = |heard: &[u8], kind: u8| {
        let frames = frames(heard);
        let these = frames.iter().filter(|frame| frame.0 == kind);
        these
            .filter(|frame| kind != RST_STREAM || frame.3.last() == Some(&REFUSED))
            .count()
    };
    while count(&agent.heard, HEADERS) + count(&agent.heard, RST_STREAM) < 150 {
        assert!(agent.hear().await, "{} came", agent.heard.len());
    }
    assert_eq!(
        (
            count(&agent.heard, HEADERS),
            count(&agent.heard, RST_STREAM)
        ),
        (100, 50)
    );
    drop(agent);
    world.rests("many streams").await;
    world.next_call_works().await;
    let records = world.recorded("many", 100).await;
    assert!(
        records
            .iter()
            .all(|record| record["outcome"] == "client_cancelled")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_agent_that_opens_no_window_holds_its_own_stream_alone() {
    let world = World::start().await;
    world.backend.plays(
        &Play::default()
            .send(STREAM)
            .repeat(chunk([b'x'; 1000]), 100)
            .listen(),
    );
    let mut agent = End::new(TcpStream::connect(world.proxy()).await.expect("connected"));
    let shut = Play::default().send(PREFACE).send(settings(&[(4, 0)]));
    agent.play(&shut.send(request(1, "shut")).wait(200)).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(500) {
        world.next_call_works().await;
    }
    agent
        .play(&Play::default().send(frame(PING, 0, 0, [0; 8])))
        .await;
    while !frames(&agent.heard).iter().any(|frame| frame.0 == PING) {
        assert!(agent.hear().await);
    }
    let heard = frames(&agent.heard);
    assert!(heard.iter().any(|frame| frame.0 == HEADERS));
    assert!(
        heard
            .iter()
            .all(|frame| frame.0 != DATA || frame.3.is_empty())
    );
    agent.play(&Play::default().reset()).await;
    drop(agent);
    assert_eq!(world.record("shut").await["outcome"], "client_cancelled");
    world.rests("a shut window").await;
    world.next_call_works().await;
}

/// A reset of a stream overtakes what waits to be written to it.
#[tokio::test(flavor = "multi_thread")]
async fn an_http2_agent_gets_what_came_before_a_body_broke_off() {
    let world = World::start().await;
    let does = Play::default().send(STREAM).send(chunk("hello"));
    for (number, does) in [does.clone().close(), does.send("zz\r\n").close()]
        .iter()
        .enumerate()
    {
        let session = format!("broken-{number}");
        world.backend.plays(does);
        let mut agent = End::new(TcpStream::connect(world.proxy()).await.expect("connected"));
        agent.play(&opened().send(request(1, &session))).await;
        while !frames(&agent.heard)
            .iter()
            .any(|frame| frame.0 == RST_STREAM)
        {
            assert!(agent.hear().await, "{:?}", frames(&agent.heard));
        }
        let heard = frames(&agent.heard);
        let content: Vec<u8> = heard
            .iter()
            .filter(|frame| frame.0 == DATA)
            .flat_map(|frame| frame.3.to_vec())
            .collect();
        assert!(heard.iter().any(|frame| frame.0 == HEADERS));
        assert_eq!(content, b"hello", "{number}");
        drop(agent);
        assert_eq!(world.record(&session).await["outcome"], "upstream_reset");
        world.rests(&session).await;
    }
    world.next_call_works().await;
}
