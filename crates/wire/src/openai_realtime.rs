//! OpenAI Realtime over WebSocket: the messages of the server. Each response of the connection is a
//! turn and counts as a choice.

use super::detect::{Detected, Target, percent_decoded};
use super::event_template::Template;
use super::json::{Object, Text, parse, parse_text};
use super::openai_responses::{EmittedTexts, Response, StreamEvent};
use super::openai_usage::ResponseIdentity;
use super::registration::{BeyondText, OverruledBy};
use super::socket_protocol::SocketProtocol;
use super::usage_names;
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use tokengauge_core::call::{Dialect, Event, Operation};

pub(super) static REGISTRATION: Registration = Registration {
    detect,
    types: &["session.created", "session.updated"],
    // Events of the Realtime API and of the Responses API have the same names.
    overruled_by: OverruledBy::AllBut(Dialect::OpenaiResponses),
    template: Some(&Template {
        unread: &["\"event_id\":"],
        ..Template::PLAIN
    }),
    request_in_body: false,
    beyond_text: BeyondText::Mixed,
    socket: Some(&SocketProtocol::RESPONSE_CREATE),
    usage: &[usage_names::RESPONSES],
    ..Registration::new::<Realtime>(Dialect::OpenaiRealtime)
};

/// Detects `…/realtime?model=`, or `deployment=` on Azure. If the query names several models, the
/// model is unknown.
fn detect(target: &Target<'_>) -> Option<Detected> {
    let [.., "realtime"] = target.path() else {
        return None;
    };
    let found = Detected::new(Dialect::OpenaiRealtime, Operation::Realtime).stream(true);
    let pairs = target
        .query()
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    let named = pairs.filter(|(key, _)| matches!(&*percent_decoded(key), "model" | "deployment"));
    let mut models: Vec<_> = named.map(|(_, value)| percent_decoded(value)).collect();
    models.dedup();
    Some(match &models[..] {
        [model] => found.model(model),
        _ => found,
    })
}

/// Reads the messages of the server.
#[derive(Default)]
pub struct Realtime {
    identity: ResponseIdentity,
    texts: EmittedTexts,
    turn: u32,
    in_turn: bool,
}

#[derive(Deserialize)]
struct Session<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
}

impl Reader for Realtime {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: StreamEvent<'_> = parse(payload)?;
        match &*event.r#type {
            "session.created" | "session.updated" => {
                let raw = event.session.ok_or(Malformed)?;
                let session: Object<Session<'_>> = serde_json::from_str(raw.get())?;
                let session = session.0.ok_or(Malformed)?;
                if !session.id.is_empty() {
                    sink(Event::Session(&session.id));
                }
                self.identity.note("", &session.model, sink);
            }
            "response.created" => self.begin(sink),
            "response.done" => {
                let raw = event.response.ok_or(Malformed)?;
                let response = parse_text(raw.get())?;
                if let Some(usage) = &event.usage.0 {
                    usage.give(sink);
                }
                self.end(&response, sink);
            }
            "error" => sink(Event::Error(&event.error_word())),
            kind if kind.starts_with("response.") => {
                self.texts.read(self.turn, &event, sink)?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Realtime {
    fn begin(&mut self, sink: Sink<'_>) {
        self.in_turn = true;
        sink(Event::TurnStarted);
    }

    fn end(&mut self, response: &Response<'_>, sink: Sink<'_>) {
        if !self.in_turn {
            self.begin(sink);
        }
        self.identity.note(&response.id, &response.model, sink);
        self.identity.service_tier(&response.service_tier, sink);
        self.texts.copies(self.turn, response, sink);
        response.outcome(self.turn, sink);
        sink(Event::TurnEnded);
        self.in_turn = false;
        self.turn = self.turn.saturating_add(1);
        self.texts = EmittedTexts::default();
    }
}
