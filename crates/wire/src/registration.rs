//! The registration of a dialect: a [`Registration`] in the module of the dialect, and an entry in
//! [`DIALECTS`](crate::DIALECTS).

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

/// Everything that depends on the dialect of a call. [`Registration::new`] sets defaults that fit
/// most dialects, and modules override the others.
pub struct Registration {
    /// The dialect, from which its name in records and configuration is derived.
    pub dialect: Dialect,
    /// Recognises requests by method, path and query.
    pub detect: fn(&Target<'_>) -> Option<Detected>,
    /// Makes a reader of one response.
    pub reader: fn() -> Box<dyn Reader>,

    /// Names of wire events that no other dialect has.
    pub event_names: &'static [&'static str],
    /// Values of the member `object` that no other dialect has.
    pub objects: &'static [&'static str],
    /// Values of the member `type` that no other dialect has.
    pub types: &'static [&'static str],
    /// Recognises an event or a body by its members.
    pub has_members: fn(&Members<'_>) -> bool,
    /// The dialects that override this one if a response looks like them.
    pub overruled_by: OverruledBy,
    /// Whether a JSON array is a stream of its elements instead of one body.
    pub array_is_stream: bool,
    /// How events differ from each other. `None` if the fast path cannot be used.
    pub template: Option<&'static Template>,

    /// Whether a request without `stream` asks for a stream; `None` if the body does not decide.
    pub default_stream: Option<bool>,
    /// Whether a request is one body, not messages on a connection.
    pub request_in_body: bool,
    /// Whether only the path decides the model, whatever the body contains.
    pub model_in_path: bool,
    /// Whether a request must name a model.
    pub needs_model: bool,
    /// The member that identifies requests of an API that takes no model.
    pub modelless: Option<ModellessMember>,
    /// Whether `stream_options.include_usage` asks for the usage of a stream.
    pub takes_usage_option: bool,
    /// Makes the body of an error from the proxy in the vendor's format.
    pub error_body: fn(&OwnError<'_>) -> Value,

    /// The names of the members of usage.
    pub usage: &'static [&'static UsageNames],
    /// Whether anything is generated. Embeddings and rankings do not count.
    pub generates: bool,
    /// Whether a complete stream ends with a terminator or a finish reason.
    pub ends_streams: bool,
    /// Which output tokens are not text.
    pub beyond_text: BeyondText,
    /// Whether providers stream a summary instead of the reasoning.
    pub summarises_reasoning: bool,

    /// The protocol over a WebSocket that carries several responses. `None` if there is none.
    pub socket: Option<&'static SocketProtocol>,
}

/// The dialects as which a response may be read although its path indicates another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverruledBy {
    /// All dialects.
    All,
    /// All dialects except this one.
    AllBut(Dialect),
    /// No dialect. The members of a response are not checked.
    None,
}

/// Whether output tokens may be something other than text, such as speech, images or token ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeyondText {
    /// All output is text.
    Never,
    /// A response is entirely text or entirely something else.
    WholeAnswers,
    /// A response may contain text and something else.
    Mixed,
}

impl Registration {
    /// The defaults of a dialect that `R` reads. They recognise no request or response.
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

    /// Makes a reader of the server's messages on a WebSocket.
    pub(super) fn socket_reader(&self) -> Box<dyn Reader> {
        let own = self.socket.and_then(|socket| socket.reader);
        own.unwrap_or(self.reader)()
    }
}

fn boxed<R: Reader + Default + 'static>() -> Box<dyn Reader> {
    Box::<R>::default()
}

/// Unknown dialects are forwarded without being measured.
static UNKNOWN: Registration = Registration {
    request_in_body: false,
    needs_model: false,
    generates: false,
    ends_streams: false,
    ..Registration::new::<NullReader>(Dialect::Unknown)
};

impl From<Dialect> for &'static Registration {
    /// The entry in [`DIALECTS`], or the registration for unknown dialects.
    fn from(dialect: Dialect) -> Self {
        DIALECTS.registration(dialect)
    }
}

/// A table of dialects. The first one that recognises a path or an event is used.
pub struct Dialects(&'static [&'static Registration]);

impl Dialects {
    /// A table with these registrations.
    pub const fn new(registrations: &'static [&'static Registration]) -> Dialects {
        Dialects(registrations)
    }

    /// All registrations in their order.
    pub fn iter(&self) -> impl Iterator<Item = &'static Registration> + use<> {
        self.0.iter().copied()
    }

    /// The registration of a dialect.
    pub fn registration(&self, dialect: Dialect) -> &'static Registration {
        let mut all = self.iter();
        all.find(|registration| registration.dialect == dialect)
            .unwrap_or(&UNKNOWN)
    }

    /// Detects the dialect of a request by the end of its path, because prefixes differ between
    /// providers. The first event of the response may override it.
    pub fn detect(&self, method: &Method, uri: &Uri) -> Detected {
        Target::read(method, uri, false, |target| self.detected(target))
    }

    /// Detects the dialect of a WebSocket upgrade request by the end of its path.
    pub fn detect_socket(&self, method: &Method, uri: &Uri) -> Detected {
        Target::read(method, uri, true, |target| self.detected(target))
    }

    fn detected(&self, target: &Target<'_>) -> Detected {
        let found = self.iter().find_map(|dialect| (dialect.detect)(target));
        found.unwrap_or_default()
    }
}
