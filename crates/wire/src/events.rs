//! Reads wire events by the dialect of the path, unless the first events show another dialect.

use super::emit::is_error_status;
use super::event_template::EventCache;
use super::find::{self, contains};
use super::framing::Item;
use super::json::{Object, Text, error_kind};
use super::registration::OverruledBy;
use super::repair::{repair, rewritten};
use super::usage_names::unknown_usage;
use super::{Reader, Registration, Sink, json, sniff};
use serde_json::value::RawValue;
use tokengauge_core::call::{Dialect, Event};

/// The number of events that may change the dialect, from the first.
const EVENTS_SNIFFED: u8 = 4;

pub(super) struct EventReader {
    dialect: &'static Registration,
    reader: Box<dyn Reader>,
    messages: u64,
    comments: u64,
    sniffed: u8,
    cache: EventCache,
}

impl EventReader {
    pub(super) fn new(dialect: &'static Registration) -> Self {
        EventReader::read_by(dialect, (dialect.reader)())
    }

    pub(super) fn of_socket(dialect: &'static Registration) -> Self {
        EventReader::read_by(dialect, dialect.socket_reader())
    }

    fn read_by(dialect: &'static Registration, reader: Box<dyn Reader>) -> Self {
        EventReader {
            dialect,
            reader,
            messages: 0,
            comments: 0,
            sniffed: 0,
            cache: EventCache::new(dialect.template),
        }
    }

    /// The dialect. The first events may have corrected it.
    pub(super) fn dialect(&self) -> Dialect {
        self.dialect.dialect
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    pub(super) fn comments(&self) -> u64 {
        self.comments
    }

    pub(super) fn finish(&mut self, sink: Sink<'_>) {
        self.reader.finish(sink);
    }

    pub(super) fn take(&mut self, item: Item<'_>, sink: Sink<'_>) {
        match item {
            Item::Comment => self.comments += 1,
            Item::Event { name, payload } => {
                self.message(sink);
                self.event(name, payload, sink);
            }
            Item::Error { payload } => sink(Event::Error(&error_line(payload))),
            Item::Exception(word) => {
                self.message(sink);
                sink(Event::Error(if json::is_word(word) {
                    word
                } else {
                    "exception"
                }));
            }
            Item::Unparsed => {
                self.message(sink);
                sink(Event::Unparsed);
            }
        }
    }

    fn message(&mut self, sink: Sink<'_>) {
        self.messages += 1;
        sink(Event::Message);
    }

    fn event(&mut self, name: &str, payload: &[u8], sink: Sink<'_>) {
        if payload.first() == Some(&b'[') && payload.trim_ascii() == b"[DONE]" {
            return sink(Event::End);
        }
        if self.cache.emit_cached(name, payload, sink) {
            // The event differs from the previous one only in its text, so it counts as checked.
            self.sniffed = self.sniffed.saturating_add(1);
            return;
        }
        json::reset_budget();
        self.confirm(name, payload);
        for name in unknown_usage((self.dialect.dialect, self.dialect.usage), payload) {
            sink(Event::UnknownUsage(&name));
        }
        let (cache, reader) = (&mut self.cache, &mut *self.reader);
        let generates = self.dialect.generates;
        let is_read = with_errors(generates, name, payload, sink, |sink| {
            cache.read_and_learn(reader, name, payload, sink).is_ok()
                || repaired(payload).any(|text| reader.event(name, &text, sink).is_ok())
        });
        if !is_read {
            sink(if json::is_object(payload) {
                Event::Damaged
            } else {
                Event::Skipped
            });
        }
    }

    pub(super) fn whole(&mut self, body: &[u8], sink: Sink<'_>) {
        let payload = body.trim_ascii();
        json::reset_budget();
        self.confirm("", payload);
        let valid = repair(payload);
        let payload = valid.as_deref().unwrap_or(payload);
        let is_json = |text| serde_json::from_slice::<&RawValue>(text).is_ok();
        if let Some(end) = memchr::memchr(b'\n', payload)
            && is_json(&payload[..end])
            && !is_json(payload)
            && rewritten(payload).is_none()
        {
            return self.lines(payload, sink);
        }
        self.message(sink);
        for name in unknown_usage((self.dialect.dialect, self.dialect.usage), payload) {
            sink(Event::UnknownUsage(&name));
        }
        if [&b"{}"[..], b"[]", b"null", b"\"\""].contains(&payload) {
            return sink(Event::Skipped);
        }
        let reader = &mut *self.reader;
        let mut is_silent = true;
        let mut noted = |event: Event<'_>| {
            is_silent = false;
            sink(event);
        };
        let generates = self.dialect.generates;
        let is_read = with_errors(generates, "", payload, &mut noted, |sink| {
            reader.body(payload, sink).is_ok()
                || repaired(payload).any(|text| reader.body(&text, sink).is_ok())
        });
        if is_read && is_silent && sniff::sniff("", payload) == Some(self.dialect.dialect) {
            sink(Event::Skipped);
        } else if !is_read {
            sink(if is_json(payload) {
                Event::Damaged
            } else {
                Event::Unparsed
            });
        }
    }

    /// Reads a body of JSON lines that was not declared as such.
    fn lines(&mut self, body: &[u8], sink: Sink<'_>) {
        for line in body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
            if !line.is_empty() {
                self.take(
                    Item::Event {
                        name: "",
                        payload: line,
                    },
                    sink,
                );
            }
        }
        self.reader.finish(sink);
    }

    /// Lets the first events override the dialect of the path.
    fn confirm(&mut self, name: &str, payload: &[u8]) {
        if self.sniffed >= EVENTS_SNIFFED || self.dialect.overruled_by == OverruledBy::None {
            return;
        }
        self.sniffed += 1;
        if name.is_empty() && sniff::confirms(self.dialect, payload) {
            self.sniffed = EVENTS_SNIFFED;
            return;
        }
        let Some(seen) = sniff::sniff(name, payload) else {
            return;
        };
        self.sniffed = EVENTS_SNIFFED;
        if sniff::overrules(seen, self.dialect) {
            self.dialect = seen.into();
            self.reader = (self.dialect.reader)();
            self.cache = EventCache::new(self.dialect.template);
        }
    }
}

/// Repaired versions of a payload that a reader refused.
pub(super) fn repaired(payload: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    [repair, rewritten, |payload: &[u8]| {
        rewritten(&repair(payload)?)
    }]
    .into_iter()
    .filter_map(|by: fn(&[u8]) -> Option<Vec<u8>>| by(payload))
}

/// Reads an event or a body with `read`, which returns whether it could. If the path `generates`,
/// errors in other formats than the dialect's own are also emitted, because gateways and engines
/// have other formats. Returns whether something was read or was an error.
pub(super) fn with_errors(
    generates: bool,
    name: &str,
    payload: &[u8],
    sink: Sink<'_>,
    read: impl FnOnce(Sink<'_>) -> bool,
) -> bool {
    let (mut has_error, mut is_silent) = (false, true);
    let is_read = read(&mut |event| {
        has_error |= matches!(event, Event::Error(_));
        is_silent &= matches!(event, Event::ResponseId(_) | Event::Model(_));
        sink(event);
    });
    let foreign = || {
        let bare = || bare_error(payload).filter(|_| generates);
        let silent = || is_silent.then(|| failure(payload).or_else(bare)).flatten();
        foreign_error(name, payload).or_else(silent)
    };
    let foreign = (!has_error).then(foreign).flatten();
    if let Some(kind) = &foreign {
        sink(Event::Error(kind));
    }
    is_read || foreign.is_some()
}

/// The kind of an error: by the name of the event, by a member `error`, or by a member that marks
/// the object as an error.
fn foreign_error(name: &str, payload: &[u8]) -> Option<String> {
    #[derive(Default, serde::Deserialize)]
    struct Members<'a> {
        #[serde(borrow, default, deserialize_with = "json::error")]
        error: Option<&'a RawValue>,
        #[serde(borrow, default)]
        object: Text<'a>,
        #[serde(borrow, default)]
        r#type: Text<'a>,
    }
    let is_named = name.eq_ignore_ascii_case("error");
    if !is_named && !contains(payload, &find::ERROR) {
        return None;
    }
    let members: Members<'_> = json::parse(payload).unwrap_or_default();
    let is_error = is_named || &*members.object == "error" || &*members.r#type == "error";
    // Events of other types may contain an `error` that did not end the response.
    let is_typed = !is_error && !members.r#type.is_empty();
    let error = members.error.filter(|_| !is_typed);
    let kind = match error {
        Some(error) => error_kind(error).into_owned(),
        None if is_error => {
            let whole = serde_json::from_slice::<&RawValue>(payload).ok();
            whole.map_or("error".into(), |whole| error_kind(whole).into_owned())
        }
        None => return None,
    };
    Some(kind)
}

/// The kind of a failure in a vendor's envelope in which the reader found nothing. Zhipu and
/// Cloudflare have `"success": false`, Baidu has `error_code`, MiniMax has `base_resp`.
fn failure(payload: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Envelope<'a> {
        success: Option<&'a RawValue>,
        #[serde(borrow, default)]
        code: Text<'a>,
        #[serde(borrow, default)]
        error_code: Text<'a>,
        #[serde(borrow, default)]
        base_resp: Object<BaseResponse<'a>>,
    }
    #[derive(serde::Deserialize)]
    struct BaseResponse<'a> {
        #[serde(borrow, default)]
        status_code: Text<'a>,
    }
    let members = [&find::SUCCESS, &find::ERROR_CODE, &find::BASE_RESP];
    if !members.iter().any(|member| contains(payload, member)) {
        return None;
    }
    let envelope: Envelope<'_> = json::parse(payload).ok()?;
    let is_code = |code: &str| json::is_word(code) && code != "0";
    let status = envelope.base_resp.0.unwrap_or(BaseResponse {
        status_code: Text::default(),
    });
    let codes = [&*envelope.error_code, &*status.status_code];
    let code = codes.into_iter().find(|code| is_code(code));
    let refused = || {
        let refused = envelope.success?.get() == "false";
        let code = Some(&*envelope.code).filter(|code| is_code(code));
        refused.then(|| code.unwrap_or("error"))
    };
    code.or_else(refused).map(str::to_owned)
}

/// The kind of an error without a member `error`: the code or status of a failure with a message,
/// or FastAPI's `detail`.
fn bare_error(payload: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Bare<'a> {
        #[serde(borrow, default)]
        r#type: Text<'a>,
        #[serde(borrow, default)]
        code: Text<'a>,
        #[serde(borrow, default)]
        status: Text<'a>,
        #[serde(borrow, default, rename = "statusCode")]
        status_code: Text<'a>,
        #[serde(borrow, default)]
        message: Text<'a>,
        #[serde(borrow, default)]
        msg: Text<'a>,
        #[serde(borrow, default, deserialize_with = "json::error")]
        detail: Option<&'a RawValue>,
    }
    const FAILED: [&str; 4] = ["error", "fail", "failed", "failure"];
    let members = [&find::MESSAGE, &find::MSG, &find::DETAIL];
    if !members.iter().any(|member| contains(payload, member)) {
        return None;
    }
    let bare: Bare<'_> = json::parse(payload).ok()?;
    // Events of other types may contain a message that did not end the response.
    let is_typed = !bare.r#type.is_empty() && !bare.r#type.to_lowercase().ends_with("error");
    let has_message = !bare.message.is_empty() || !bare.msg.is_empty() || bare.detail.is_some();
    if is_typed || !has_message {
        return None;
    }
    let statuses = [&bare.status, &bare.status_code].map(|status| &**status);
    let failed = |word: &&str| {
        is_error_status(word) || FAILED.iter().any(|known| word.eq_ignore_ascii_case(known))
    };
    let code = &*bare.code;
    if !code.is_empty() {
        let kind = if json::is_word(code) { code } else { "error" };
        return (!is_no_failure(code)).then(|| kind.to_owned());
    }
    let status = statuses.into_iter().find(failed);
    let detail = bare
        .detail
        .filter(|_| statuses.iter().all(|status| status.is_empty()));
    status.or(detail.map(|_| "error")).map(str::to_owned)
}

/// Whether a code means success: a status below 400, or a word or a number for success.
fn is_no_failure(code: &str) -> bool {
    json::is_success(code)
        || ["0", "20000"].contains(&code)
        || matches!(code.as_bytes(), [b'1' | b'3', b'0'..=b'9', b'0'..=b'9'])
}

fn error_line(payload: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct ErrorLine<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    let line: Option<ErrorLine<'_>> = json::parse(payload).ok();
    let error = line.and_then(|line| line.error);
    error.map_or_else(
        || "error".into(),
        |error| json::error_kind(error).into_owned(),
    )
}

#[cfg(test)]
mod tests;
