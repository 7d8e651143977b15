//! A Realtime session: reads the client's events and streams responses.

use super::dialects::{self, realtime::Realtime};
use super::pace::{Pace, time_to_first_token};
use super::plan::{self, GenerationRequest};
use super::profile::{FaultKind, Profile};
use super::request::prompt_tokens;
use super::script::ScriptSource;
use super::sim_call::now;
use super::socket::ConnectionState;
use super::stream::Source;
use super::text_gen::Random;
use super::truth::{Call, ChunkTokens, Ending, Truth, TruthLog};
use super::websocket::{self, Message, Reader};
use crate::clock;
use bytes::BytesMut;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::call::Dialect;
use tokio::io::{AsyncRead, AsyncWrite};

pub struct Session {
    pub id: String,
    pub session: Option<String>,
    pub model: String,
    pub profile: Profile,
    pub ledger: Arc<TruthLog>,
    pub connection: Arc<ConnectionState>,
    pub random: Random,
    pub calls_before: u64,
    pub turns: u32,
    pub audio: bool,
    pub input_tokens: u64,
    pub tool_name: Option<String>,
}

struct Turn {
    source: ScriptSource,
    pace: Pace,
    next: usize,
    call: Arc<Call>,
}

impl Session {
    /// Serves until the client leaves or a fault ends the connection.
    pub async fn serve(mut self, io: impl AsyncRead + AsyncWrite + Unpin) {
        let (reader, mut writer) = tokio::io::split(io);
        let mut reader = Reader::new(reader);
        // The client has left, so an error could not be sent to it.
        let _ = self.converse(&mut reader, &mut writer).await;
    }

    async fn converse<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        reader: &mut Reader<R>,
        writer: &mut W,
    ) -> io::Result<()> {
        self.tell(writer, "session.created").await?;
        let mut turn: Option<Turn> = None;
        loop {
            let due = turn
                .as_ref()
                .map_or_else(clock::now, |turn| turn.pace.due());
            tokio::select! {
                message = reader.next() => match message {
                    None => return websocket::write(writer, [websocket::close()]).await,
                    Some(Message::Ping(payload)) => {
                        websocket::write(writer, [websocket::pong(payload)]).await?;
                    }
                    Some(Message::Text(text)) => self.hear(&text, writer, &mut turn).await?,
                },
                () = tokio::time::sleep_until(due.into()), if turn.is_some() => {
                    if let Some(current) = &mut turn && current.speak(&self.connection, writer).await? {
                        turn = None;
                    }
                }
            }
        }
    }

    async fn hear<W: AsyncWrite + Unpin>(
        &mut self,
        text: &[u8],
        writer: &mut W,
        turn: &mut Option<Turn>,
    ) -> io::Result<()> {
        let event: Value = serde_json::from_slice(text).unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "session.update" => {
                self.update(&event["session"]);
                self.tell(writer, "session.updated").await
            }
            "conversation.item.create" => {
                self.input_tokens += prompt_tokens(&event["item"]);
                let item = &event["item"];
                for kind in ["conversation.item.added", "conversation.item.done"] {
                    say(
                        writer,
                        &json!({"type": kind, "event_id": "event_item", "item": item}),
                    )
                    .await?;
                }
                Ok(())
            }
            "response.create" if turn.is_none() => {
                self.update(&event["response"]);
                *turn = Some(self.begin(writer).await?);
                Ok(())
            }
            "response.cancel" => {
                *turn = None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn update(&mut self, session: &Value) {
        if let Some(modalities) = session["output_modalities"].as_array() {
            self.audio = modalities.iter().any(|modality| modality == "audio");
        }
        if let Some(name) = session["tools"][0]["name"].as_str() {
            self.tool_name = Some(name.to_owned());
        }
    }

    async fn tell<W: AsyncWrite + Unpin>(&self, writer: &mut W, kind: &str) -> io::Result<()> {
        let session = json!({
            "type": "realtime", "object": "realtime.session", "id": format!("sess_{}", self.id),
            "model": self.model, "output_modalities": [if self.audio { "audio" } else { "text" }],
            "instructions": "", "tools": [], "tool_choice": "auto", "max_output_tokens": "inf",
        });
        say(
            writer,
            &json!({"type": kind, "event_id": "event_session", "session": session}),
        )
        .await
    }

    async fn begin<W: AsyncWrite + Unpin>(&mut self, writer: &mut W) -> io::Result<Turn> {
        let asked = self.connection.last_read();
        self.turns += 1;
        let mut truth = Truth::begun(self.id.clone(), Dialect::OpenaiRealtime, asked);
        truth.turn = Some(self.turns);
        truth.session = self.session.clone();
        truth.model = Some(self.model.clone());
        truth.streamed = true;
        truth.status = 101;
        truth.concurrency = self.ledger.in_flight() + 1;
        let call = Call::begin(Arc::clone(&self.ledger), truth);
        let mut profile = self.profile.clone();
        dialects::restrict(&mut profile, super::route::Shape::Realtime, &self.model);
        let wanted = GenerationRequest {
            model: self.model.clone(),
            choices: 1,
            tool_name: self.tool_name.clone(),
            input_tokens: self.input_tokens.max(1),
            cached_tokens: None,
            reports_usage: true,
        };
        let planned = Arc::new(plan::response(&profile, &wanted, now(), &mut self.random));
        let ttft = time_to_first_token(
            &profile,
            wanted.input_tokens,
            call.concurrency(),
            self.calls_before,
        );
        let mut pace = Pace::new(&profile, asked + ttft, self.random.clone());
        let plan = plan::plan(&profile, &planned, false);
        pace.delay(plan.steps.first().map_or(Duration::ZERO, |step| step.pause));
        let script = Box::new(Realtime::new(Arc::clone(&planned), self.audio));
        let mut turn = Turn {
            source: ScriptSource {
                script,
                planned,
                plan,
            },
            pace,
            next: 0,
            call,
        };
        let mut out = BytesMut::new();
        turn.source.open(&mut out);
        turn.write(writer, &out, ChunkTokens::default()).await?;
        Ok(turn)
    }
}

impl Turn {
    /// Writes everything that is due. Returns whether the response is complete.
    async fn speak<W: AsyncWrite + Unpin>(
        &mut self,
        connection: &ConnectionState,
        writer: &mut W,
    ) -> io::Result<bool> {
        let mut out = BytesMut::new();
        if let Some((position, _)) = self.source.step(self.next) {
            let pause = self
                .source
                .step(self.next + 1)
                .map_or(Duration::ZERO, |(_, pause)| pause);
            self.pace.advance(position, pause, self.call.concurrency());
            let carried = self.source.chunk(self.next, &mut out);
            self.next += 1;
            self.write(writer, &out, carried).await?;
            let more = self.source.step(self.next).is_some() || self.source.fault().is_some();
            if more {
                return Ok(false);
            }
            out.clear();
        }
        let (ending, torn) = match self.source.fault() {
            None => {
                let summary = self.source.close(&mut out);
                self.call.note(|truth| truth.complete(summary));
                (Ending::Complete, false)
            }
            Some(FaultKind::Error(kind)) => {
                let kind = self.source.error(kind.as_deref(), &mut out);
                self.call.note(|truth| truth.error_type = Some(kind));
                (Ending::ErrorEvent, false)
            }
            Some(FaultKind::Close) => (Ending::Closed, true),
            Some(FaultKind::Reset) => {
                connection.reset();
                (Ending::Reset, true)
            }
        };
        self.call.note(|truth| truth.outcome = ending);
        if torn {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        self.write(writer, &out, ChunkTokens::default()).await?;
        Ok(true)
    }

    /// Sends every line as a separate message, all in one write.
    async fn write<W: AsyncWrite + Unpin>(
        &mut self,
        writer: &mut W,
        lines: &[u8],
        carried: ChunkTokens,
    ) -> io::Result<()> {
        self.call.handed_over(lines);
        let lines_of = lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        websocket::write(writer, lines_of.map(websocket::text)).await?;
        self.call.wrote(clock::now(), &carried, lines.len() as u64);
        Ok(())
    }
}

async fn say<W: AsyncWrite + Unpin>(writer: &mut W, event: &Value) -> io::Result<()> {
    websocket::write(writer, [websocket::text(event.to_string().as_bytes())]).await
}
