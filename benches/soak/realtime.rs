//! A Realtime session over a WebSocket: several turns on one connection.

use crate::random::Random;
use crate::scenarios::Scenario;
use crate::traffic::{Plan, Shared};
use crate::verify::{CallEnd, Expected, ReceivedCall, ReceivedHead, mismatch};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

/// Runs a session of one to three turns. With [`Scenario::RealtimeLeft`] the agent disconnects during the last turn.
pub async fn converse(
    shared: &Shared,
    plan: &Plan,
    session: &str,
    random: &mut Random,
) -> (ReceivedCall, String) {
    let turns = random.between(1, 3);
    let leaves = (plan.scenario == Scenario::RealtimeLeft).then(|| random.between(1, 12));
    let mut heard = Vec::new();
    let talked = timeout(
        Duration::from_secs(60),
        talk(shared, plan, session, turns, leaves, &mut heard),
    );
    let (ended, why) = match talked.await {
        Ok(Ok(())) if leaves.is_some() => (CallEnd::Cancelled, String::new()),
        Ok(Ok(())) => (CallEnd::Complete, String::new()),
        Ok(Err(error)) => (CallEnd::Truncated, format!("{error:#}")),
        Err(_) => (
            CallEnd::Truncated,
            "nothing more within a minute".to_owned(),
        ),
    };
    let mismatch = shared
        .sent_calls
        .with(&plan.id, |written| mismatch(&written.bytes, &heard));
    let done = ReceivedCall {
        expected: Expected::Realtime,
        sent: 0,
        head: Some(ReceivedHead {
            status: 101,
            ..ReceivedHead::default()
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

/// Returns the type of the next event, and appends events of a turn to `heard`, one per line.
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
        // Events of the simulator outside of a turn have these ids.
        let of_session = ["event_session", "event_item"].map(Value::from);
        if !of_session.contains(&event["event_id"]) {
            heard.extend_from_slice(text.as_bytes());
            heard.push(b'\n');
        }
        return Ok(event["type"].as_str().unwrap_or_default().to_owned());
    }
}
