//! The registration of a dialect: one [`Registration`] in the dialect's module, and one line in
//! the table [`DIALECTS`](crate::DIALECTS).

use super::detect::{Detected, Target};
use super::event_template::Template;
use super::members::Members;
use super::own_error::{OwnError, openai_error};
use super::socket_protocol::SocketProtocol;
use super::strict::ModellessMember;
use super::usage_names::{self, UsageNames};
use super::{DIALECTS, NullReader, Reader};
use http::{Method, Uri};
use serde_json::Value;
use tokengauge_core::call::Dialect;

/// Everything that depends on the dialect of a call. [`Registration::new`] has the defaults that
/// fit most dialects; a module overrides what is different in its own.
pub struct Registration {
    /// Its identity, from which its name in records and configuration is derived.
    pub dialect: Dialect,
    /// Recognises its requests by method, path and query.
    pub detect: fn(&Target<'_>) -> Option<Detected>,
    /// Makes a reader of one response.
    pub reader: fn() -> Box<dyn Reader>,

    /// Names of wire events that no other dialect has.
    pub event_names: &'static [&'static str],
    /// Values of the member `object` that no other dialect has.
    pub objects: &'static [&'static str],
    /// Values of the member `type` that no other dialect has.
    pub types: &'static [&'static str],
    /// Recognises an event or a body by which members it has.
    pub has_members: fn(&Members<'_>) -> bool,
    /// Other dialects: a response that looks like one of them is read as that one.
    pub overruled_by: OverruledBy,
    /// Whether a JSON array is a stream of its elements, and not one body.
    pub array_is_stream: bool,
    /// How its events repeat each other; `None` where they do not.
    pub template: Option<&'static Template>,

    /// Whether a request without `stream` asks for a stream; `None` if the body does not decide.
    pub default_stream: Option<bool>,
    /// Whether a request is one body, and not messages on a connection.
    pub request_in_body: bool,
    /// Whether the path alone decides on the model, whatever the body says.
    pub model_in_path: bool,
    /// Whether a request has to name a model.
    pub needs_model: bool,
    /// The member that identifies requests of an API that takes no model.
    pub modelless: Option<ModellessMember>,
    /// Whether `stream_options.include_usage` asks for the usage of a stream.
    pub takes_usage_option: bool,
    /// The body of the proxy's own errors, in the vendor's format.
    pub error_body: fn(&OwnError<'_>) -> Value,

    /// The names under which it reports usage.
    pub usage: &'static [&'static UsageNames],
    /// Whether it generates anything: embeddings and rankings do not count as generated.
    pub generates: bool,
    /// Whether a complete stream ends with a terminator or a finish reason.
    pub ends_streams: bool,
    /// Which of its output tokens are not text.
    pub beyond_text: BeyondText,
    /// Whether providers stream a summary of the reasoning in place of the reasoning.
    pub summarises_reasoning: bool,

    /// How it works over a WebSocket that carries several answers; `None` if it has none.
    pub socket: Option<&'static SocketProtocol>,
}

/// The dialects that a response may be read as although its path says another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverruledBy {
    /// All of them.
    All,
    /// All but one.
    AllBut(Dialect),
    /// None: what a response looks like is not checked.
    None,
}

/// Whether output tokens may be something other than text: speech, pictures, bare ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeyondText {
    /// All of them are text.
    Never,
    /// An answer is text, or something else.
    WholeAnswers,
    /// An answer has both.
    Mixed,
}

impl Registration {
    /// A dialect that is read by `R` and recognised by nothing yet.
    pub const fn new<R: Reader + Default + 'static>(dialect: Dialect) -> Registration {
        Registration {
            dialect,
            detect: |_| None,
            reader: boxed::<R>,
            event_names: &[],
            objects: &[],
            types: &[],
            has_members: |_| false,
            overruled_by: OverruledBy::All,
            array_is_stream: false,
            template: None,
            default_stream: None,
            request_in_body: true,
            model_in_path: false,
            needs_model: true,
            modelless: None,
            takes_usage_option: false,
            error_body: openai_error,
            usage: &[usage_names::CHAT],
            generates: true,
            ends_streams: true,
            beyond_text: BeyondText::Never,
            summarises_reasoning: false,
            socket: None,
        }
    }

    /// A fresh reader of what comes over a WebSocket.
    pub(super) fn socket_reader(&self) -> Box<dyn Reader> {
        let own = self.socket.and_then(|socket| socket.reader);
        own.unwrap_or(self.reader)()
    }
}

fn boxed<R: Reader + Default + 'static>() -> Box<dyn Reader> {
    Box::<R>::default()
}

/// Unknown dialects are forwarded, not measured.
static UNKNOWN: Registration = Registration {
    request_in_body: false,
    needs_model: false,
    generates: false,
    ends_streams: false,
    ..Registration::new::<NullReader>(Dialect::Unknown)
};

impl From<Dialect> for &'static Registration {
    /// Its entry in [`DIALECTS`], or the one for unknown dialects.
    fn from(dialect: Dialect) -> Self {
        DIALECTS.registration(dialect)
    }
}

/// A table of dialects, in the order in which they are tried on a path and on an event: the
/// first that recognises it has it.
pub struct Dialects(&'static [&'static Registration]);

impl Dialects {
    /// A table of these.
    pub const fn new(registrations: &'static [&'static Registration]) -> Dialects {
        Dialects(registrations)
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &'static Registration> + use<> {
        self.0.iter().copied()
    }

    /// What is registered for a dialect.
    pub fn registration(&self, dialect: Dialect) -> &'static Registration {
        let mut all = self.iter();
        all.find(|registration| registration.dialect == dialect)
            .unwrap_or(&UNKNOWN)
    }

    /// Reads the dialect off a path. Its end decides: prefixes vary from provider to
    /// provider. What the first event of the response says wins over it.
    pub fn detect(&self, method: &Method, uri: &Uri) -> Detected {
        Target::read(method, uri, false, |target| self.detected(target))
    }

    /// The same for a request that becomes a WebSocket.
    pub fn detect_socket(&self, method: &Method, uri: &Uri) -> Detected {
        Target::read(method, uri, true, |target| self.detected(target))
    }

    fn detected(&self, target: &Target<'_>) -> Detected {
        let found = self.iter().find_map(|dialect| (dialect.detect)(target));
        found.unwrap_or_default()
    }
}
