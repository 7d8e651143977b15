//! An agent that talks over a WebSocket: several turns on one connection.

use crate::judge::{Done, Ended, Head, Known, mismatch};
use crate::kinds::Fate;
use crate::random::Random;
use crate::traffic::{Plan, Shared};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

/// Talks for one to three turns; leaves in the last where that is its fate.
pub async fn converse(
    shared: &Shared,
    plan: &Plan,
    session: &str,
    random: &mut Random,
) -> (Done, String) {
    let turns = random.between(1, 3);
    let leaves = (plan.fate == Fate::RealtimeLeft).then(|| random.between(1, 12));
    let mut heard = Vec::new();
    let talked = timeout(
        Duration::from_secs(60),
        talk(shared, plan, session, turns, leaves, &mut heard),
    );
    let (ended, why) = match talked.await {
        Ok(Ok(())) if leaves.is_some() => (Ended::Left, String::new()),
        Ok(Ok(())) => (Ended::Whole, String::new()),
        Ok(Err(error)) => (Ended::Broken, format!("{error:#}")),
        Err(_) => (Ended::Broken, "nothing more within a minute".to_owned()),
    };
    let mismatch = shared
        .book
        .with(&plan.id, |written| mismatch(&written.bytes, &heard));
    let done = Done {
        known: Known::Realtime,
        sent: 0,
        head: Some(Head {
            status: 101,
            ..Head::default()
        }),
        received: heard.len() as u64,
        mismatch,
        due: None,
        ended,
    };
    (done, why)
}

async fn talk(
    shared: &Shared,
    plan: &Plan,
    session: &str,
    turns: u64,
    leaves: Option<u64>,
    heard: &mut Vec<u8>,
) -> anyhow::Result<()> {
    let stream = TcpStream::connect(shared.proxy).await?;
    let url = format!("ws://{}/one/v1/realtime?model=realtime-soak", shared.proxy);
    let mut request = url.into_client_request()?;
    for (name, value) in [
        ("traceparent", format!("00-{}-00f067aa0ba902b7-01", plan.id)),
        ("x-tokengauge-session", session.to_owned()),
        ("x-sim-id", plan.id.clone()),
        ("x-sim", plan.behaviour.clone()),
    ] {
        request.headers_mut().insert(name, value.parse()?);
    }
    let (mut socket, _) = client_async(request, stream).await?;
    for turn in 1..=turns {
        say(
            &mut socket,
            &json!({"type": "conversation.item.create", "item": {"type": "message",
            "role": "user", "content": [{"type": "input_text", "text": "Go on, please"}]}}),
        )
        .await?;
        say(&mut socket, &json!({"type": "response.create"})).await?;
        let mut events = 0;
        while hear(&mut socket, heard).await? != "response.done" {
            events += 1;
            if turn == turns && leaves.is_some_and(|leaves| events >= leaves) {
                return Ok(());
            }
        }
    }
    if leaves.is_none() {
        socket.close(None).await?;
        while let Some(Ok(_)) = socket.next().await {}
    }
    Ok(())
}

async fn say(socket: &mut WebSocketStream<TcpStream>, event: &Value) -> anyhow::Result<()> {
    Ok(socket.send(Message::text(event.to_string())).await?)
}

/// The type of the next event; what belongs to a turn is kept, a line each.
async fn hear(
    socket: &mut WebSocketStream<TcpStream>,
    heard: &mut Vec<u8>,
) -> anyhow::Result<String> {
    loop {
        let Some(message) = socket.next().await else {
            anyhow::bail!("the connection ended in a turn");
        };
        let Message::Text(text) = message? else {
            continue;
        };
        let event: Value = serde_json::from_str(&text)?;
        // Those that the simulator says outside of a turn have an id of their own.
        let of_session = ["event_session", "event_item"].map(Value::from);
        if !of_session.contains(&event["event_id"]) {
            heard.extend_from_slice(text.as_bytes());
            heard.push(b'\n');
        }
        return Ok(event["type"].as_str().unwrap_or_default().to_owned());
    }
}
