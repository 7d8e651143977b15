//! Strict parsing of request bodies that a limit depends on. A body is accepted only if every
//! upstream reads it alike. Content that one server accepts and another refuses, such as duplicate
//! keys, `NaN` or UTF-16, is refused.

use super::encoding::Encoding;
use super::json::Text;
use super::{DIALECTS, DecodeError, Limits, buffer};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use tokengauge_core::call::Dialect;
use tokengauge_core::memory::{Buffer, Memory};
use tokengauge_core::observer::UnreadableBody;

/// Maximum number of members of an object on a configured path.
const MAX_MEMBERS: usize = 1024;
/// Members in which some APIs name the model.
const MODEL_IDS: [&str; 2] = ["modelid", "model_id"];
/// Members in which gateways take further models, such as fallbacks.
const FURTHER_MODELS: [&str; 6] = [
    "models",
    "fallbacks",
    "fallback_models",
    "context_window_fallbacks",
    "content_policy_fallbacks",
    "preset",
];

/// Members of APIs that take a model but may use a default model.
const WITH_MODELS: [&str; 5] = ["input", "prompt", "messages", "documents", "input_type"];

/// The encoding and the media type of a body, from the request head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyHead {
    encoding: Option<Box<str>>,
    refused: Option<UnreadableBody>,
}

impl BodyHead {
    /// Reads `headers`. `forms_too` tells whether the server reads forms as JSON.
    pub fn of(headers: &HeaderMap, forms_too: bool) -> BodyHead {
        BodyHead {
            refused: joined(headers, &CONTENT_TYPE)
                .is_some_and(|media| !reads_as_json(&media, forms_too))
                .then_some(UnreadableBody::MediaType),
            encoding: content_encoding(headers),
        }
    }

    /// Calls `read` with the decoded body, at most `limit` bytes.
    ///
    /// # Errors
    /// Returns why the body cannot be read.
    pub fn read<T>(
        &self,
        body: &[u8],
        memory: &Arc<Memory>,
        limit: usize,
        read: impl FnOnce(&[u8]) -> Result<T, UnreadableBody>,
    ) -> Result<T, UnreadableBody> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let Some(encoding) = &self.encoding else {
            return read(body);
        };
        // A server that ignores the encoding would read this body as JSON.
        if body.trim_ascii_start().first() == Some(&b'{') {
            return Err(UnreadableBody::Encoding);
        }
        let decoded = decoded(encoding, body, memory, limit).map_err(unreadable)?;
        read(decoded.as_slice())
    }
}

/// The content encodings of a body, in lower case and in the order of application. `None` if the
/// body is not encoded.
pub fn content_encoding(headers: &HeaderMap) -> Option<Box<str>> {
    let names = joined(headers, &CONTENT_ENCODING)?;
    let coded = |name: &str| !matches!(name.trim(), "" | "identity");
    let encoded = names.split(',').any(coded);
    encoded.then(|| names.into_boxed_str())
}

/// Decodes a complete body to at most `limit` bytes.
///
/// # Errors
/// Returns an error if an encoding is unknown, the bytes do not match it, the result is longer than
/// `limit`, or `memory` is exhausted.
pub fn decoded(
    encoding: &str,
    body: &[u8],
    memory: &Arc<Memory>,
    limit: usize,
) -> Result<Buffer, DecodeError> {
    let limits = Limits {
        body_bytes: limit,
        decoded_bytes: limit as u64,
        ..Limits::default()
    };
    let mut decoded = buffer(memory, limit);
    let mut decoder =
        Encoding::new(Some(encoding), &limits, memory)?.ok_or(DecodeError::Encoding)?;
    decoder.push(body, &mut |bytes| Ok(decoded.extend(bytes)?))?;
    Ok(decoded)
}

fn unreadable(broken: DecodeError) -> UnreadableBody {
    match broken {
        DecodeError::Memory => UnreadableBody::NoMemory,
        DecodeError::TooLarge => UnreadableBody::TooLong,
        DecodeError::Encoding | DecodeError::Framing => UnreadableBody::Encoding,
    }
}

/// The values of all lines of a header field, joined to one list.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines = headers.get_all(name).iter();
    let texts: Vec<_> = lines
        .map(|line| String::from_utf8_lossy(line.as_bytes()).to_ascii_lowercase())
        .collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

/// Whether a body of this media type is read as JSON in UTF-8, not as a form. Other media types do
/// not matter, because many servers ignore them.
fn reads_as_json(media: &str, forms_too: bool) -> bool {
    let forms = [
        ("application/x-www-form-urlencoded", forms_too),
        ("multipart/", false),
    ];
    media.split([';', ',']).map(str::trim).all(|part| {
        let charset = part.strip_prefix("charset=").unwrap_or_default();
        let utf8 = matches!(charset.trim_matches('"'), "utf-8" | "utf8" | "us-ascii");
        let is_form = |(form, as_json): &(&str, bool)| part.starts_with(form) && !as_json;
        (utf8 || !part.contains("charset")) && !forms.iter().any(is_form)
    })
}

/// How readers that all accept a body may differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Whether readers could find different models.
    pub model: bool,
    /// Models in members that only some readers use.
    pub names: Vec<String>,
    /// The members that identify APIs without a model.
    pub modelless: Modelless,
    own: Vec<String>,
}

/// The member that identifies the requests of an API without a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModellessMember {
    /// The member `inputs`.
    Inputs,
    /// The member `texts`.
    Texts,
}

/// Which members of APIs with and without a model a body has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modelless {
    inputs: bool,
    texts: bool,
    others: bool,
}

impl Modelless {
    fn note(&mut self, key: &str) {
        self.inputs |= key == "inputs";
        self.texts |= key == "texts";
        self.others |= WITH_MODELS
            .iter()
            .any(|name| equals_ignoring_case(key, name));
    }

    /// Whether the request belongs to an API without a model: text-generation-inference or
    /// text-embeddings-inference.
    pub fn of(self, dialect: Dialect) -> bool {
        let own = match DIALECTS.registration(dialect).modelless {
            Some(ModellessMember::Inputs) => self.inputs,
            Some(ModellessMember::Texts) => self.texts,
            None => false,
        };
        own && !self.others
    }
}

/// Finds where readers of one JSON object may differ: a `model` that is duplicated, in another case
/// or not a string, further models, and duplicates of the members `configured`.
///
/// # Errors
/// Returns an error if some readers would not accept the body at all, or a member of `configured`
/// is duplicated.
pub fn differences(body: &[u8], configured: &[&str]) -> Result<Differences, UnreadableBody> {
    let reading = Members {
        configured,
        nested: false,
    };
    read(body, reading).map_err(|_| UnreadableBody::Malformed)
}

fn read(body: &[u8], members: Members<'_>) -> serde_json::Result<Differences> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let found = reader.deserialize_map(members)?;
    reader.end()?;
    Ok(found)
}

#[derive(Clone, Copy)]
struct Members<'c> {
    configured: &'c [&'c str],
    nested: bool,
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Differences;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Differences, A::Error> {
        let mut found = Differences::default();
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<Text<'de>>()? {
            if !self.nested {
                found.modelless.note(&key);
            }
            let known = self.configured.iter().find(|known| ***known == *key);
            if known.is_some_and(|known| !seen.insert(*known)) {
                return Err(A::Error::custom("twice"));
            }
            let member = Member::of(&key).filter(|member| !self.nested || !member.is_object());
            if known.is_none() && member.is_none() {
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = entries.next_value::<&RawValue>()?.get();
            if known.is_some() {
                let mut reader = serde_json::Deserializer::from_str(value);
                let unique = UniqueMembers.deserialize(&mut reader);
                unique.map_err(|_| A::Error::custom("twice, or too many"))?;
            }
            if let Some(member) = member.filter(|_| value != "null") {
                found.take(member, &key, value).map_err(A::Error::custom)?;
            } else if member == Some(Member::Model) {
                found.own.push(String::new());
                found.model |= *key != *"model";
            }
        }
        found.model |= found.own.len() > 1;
        Ok(found)
    }
}

impl Differences {
    /// Records a member that concerns models and is not `null`.
    fn take(&mut self, member: Member, key: &str, value: &str) -> serde_json::Result<()> {
        let text = || serde_json::from_str::<Text<'_>>(value).map(|text| text.to_string());
        let nested = || {
            let members = Members {
                configured: &[],
                nested: true,
            };
            let object = value.starts_with('{');
            object.then(|| read(value.as_bytes(), members)).transpose()
        };
        match member {
            Member::Model => {
                let text = text()?;
                // Some readers accept a list or an object.
                self.model |= key != "model" || value.starts_with(['[', '{']);
                self.own.push(text);
            }
            Member::ModelId => {
                let text = text()?;
                self.model |= text.is_empty();
                self.names.push(text);
            }
            Member::FurtherModels => self.model = true,
            Member::Session => {
                let session = nested()?.unwrap_or_default();
                self.model |= session.model;
                self.names
                    .extend(session.own.into_iter().chain(session.names));
            }
            Member::Extra => {
                let extra = nested()?.unwrap_or_default();
                self.model |= extra.model || !extra.own.is_empty() || !extra.names.is_empty();
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Model,
    /// Names the model in some APIs.
    ModelId,
    FurtherModels,
    /// An object with the model of a future session.
    Session,
    /// An object in which gateways nest members.
    Extra,
}

impl Member {
    fn of(key: &str) -> Option<Member> {
        let is = |name: &&str| equals_ignoring_case(key, name);
        if equals_ignoring_case(key, "model") {
            Some(Member::Model)
        } else if MODEL_IDS.iter().any(is) {
            Some(Member::ModelId)
        } else if FURTHER_MODELS.iter().any(is) {
            Some(Member::FurtherModels)
        } else if equals_ignoring_case(key, "session") {
            Some(Member::Session)
        } else {
            equals_ignoring_case(key, "extra_body").then_some(Member::Extra)
        }
    }

    fn is_object(self) -> bool {
        matches!(self, Member::Session | Member::Extra)
    }
}

/// Whether a case-insensitive reader takes `key` for `name`, which is in lower case. Go's
/// `encoding/json` also folds two non-ASCII characters.
fn equals_ignoring_case(key: &str, name: &str) -> bool {
    let plain = |sign: char| match sign {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    key.chars().map(plain).eq(name.chars())
}

/// A value in which no object has duplicate members.
struct UniqueMembers;

impl<'de> DeserializeSeed<'de> for UniqueMembers {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueMembers {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<Text<'de>>()? {
            if seen.len() >= MAX_MEMBERS || !seen.insert(key.to_string()) {
                return Err(A::Error::custom("twice, or too many"));
            }
            entries.next_value_seed(UniqueMembers)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn model_of(body: &str) -> Result<bool, UnreadableBody> {
        let found = differences(body.as_bytes(), &["metadata"])?;
        Ok(!found.model)
    }

    #[test]
    fn a_model_counts_only_where_no_reader_finds_another() {
        for plain in [
            r#"{"model":"a","messages":[{"model":"b","Model":"c"}]}"#,
            r#" {"mod\u0065l":"a","models":null,"metadata":{"a":{"b":1},"c":[{"d":1,"d":2}]}} "#,
            r#"{"model":"a","extra_body":{"top_k":1},"session":"s"}"#,
            "{}",
        ] {
            assert_eq!(model_of(plain), Ok(true), "{plain}");
        }
        for several in [
            r#"{"model":"a","model":"b"}"#,
            r#"{"model":"a","mod\u0065l":"b"}"#,
            r#"{"model":"a","Model":"b"}"#,
            r#"{"MODEL":"b"}"#,
            r#"{"model":"a","models":["b"]}"#,
            r#"{"model":"a","fallback\u017f":["b"]}"#,
            r#"{"model":{"id":"b"}}"#,
            r#"{"model":"a","extra_body":{"model":"b"}}"#,
            r#"{"model":"a","extra_body":{"models":["b"]}}"#,
            r#"{"session":{"model":"a","Model":"b"}}"#,
            r#"{"modelId":["b"]}"#,
        ] {
            assert_eq!(model_of(several), Ok(false), "{several}");
        }
    }

    #[test]
    fn models_in_other_places_are_named_too() {
        for body in [
            r#"{"modelId":"b"}"#,
            r#"{"model":"a","MODEL_ID":"b"}"#,
            r#"{"session":{"type":"realtime","model":"b"}}"#,
            r#"{"session":{"model_id":"b","session":{"model":"c"}}}"#,
        ] {
            let found = differences(body.as_bytes(), &["session"]).expect("it is read");
            assert_eq!(
                (found.names, found.model),
                (vec!["b".to_owned()], false),
                "{body}"
            );
        }
    }

    #[test]
    fn what_some_servers_refuse_and_others_read_is_not_read() {
        for body in [
            r#"{"model":"a","x":NaN}"#,
            r#"{"model":"a","x":-Infinity}"#,
            "\u{feff}{\"model\":\"a\"}",
            r#"{"model":"a"} trailing"#,
            r#"{"model":"a"}{"model":"b"}"#,
            r#"{"model":"a",}"#,
            r#"{/* no */"model":"a"}"#,
            r#"{'model':'a'}"#,
            r#"[{"model":"a"}]"#,
            "{\"model\":\"a\"",
            "\0{\0}",
            "",
            r#"{"metadata":{"t":1},"metadata":{"t":2}}"#,
            r#"{"metadata":{"t":{"a":1,"\u0061":2}}}"#,
        ] {
            assert_eq!(model_of(body), Err(UnreadableBody::Malformed), "{body}");
        }
    }

    #[test]
    fn the_head_says_how_the_body_is_written() {
        let of = |name: HeaderName, value: &'static str| {
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
            BodyHead::of(&headers, false)
        };
        for plain in [
            "application/json",
            "text/plain",
            "application/vnd.x+json; v=1",
            "Application/JSON; Charset=\"UTF-8\"",
            "application/json; platform=x",
        ] {
            assert_eq!(of(CONTENT_TYPE, plain), BodyHead::default(), "{plain}");
        }
        for other in [
            "application/json; charset=utf-16",
            "application/json; charset=utf-8; charset=utf-7",
            "application/json; charset =utf-7",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "multipart/mixed",
            "application/json, application/x-www-form-urlencoded",
        ] {
            assert_eq!(
                of(CONTENT_TYPE, other).refused,
                Some(UnreadableBody::MediaType),
                "{other}"
            );
        }
        assert_eq!(of(CONTENT_ENCODING, "Identity"), BodyHead::default());
        let memory = Memory::unbounded();
        let read = |encoding, body: &[u8]| {
            let read = |decoded: &[u8]| Ok(decoded.to_vec());
            of(CONTENT_ENCODING, encoding).read(body, &memory, 1000, read)
        };
        // Raw deflate: one stored block with the content `hi`.
        assert_eq!(read("deflate", b"\x01\x02\0\xfd\xffhi"), Ok(b"hi".to_vec()));
        assert_eq!(read("gzip", b"{}"), Err(UnreadableBody::Encoding));
        assert_eq!(read("compress", b"x"), Err(UnreadableBody::Encoding));
    }

    use proptest::prelude::*;

    /// The models that servers read from these members: the first or the last member with a name,
    /// in exact or any case.
    fn readings(members: &[(&str, u8)]) -> Vec<Option<u8>> {
        let plain = |name: &str| name.replace("\\u0065", "e");
        let of = |fits: &dyn Fn(&str) -> bool| {
            let found = members.iter().filter(|(name, _)| fits(&plain(name)));
            let values: Vec<_> = found.map(|(_, value)| *value).collect();
            [values.first().copied(), values.last().copied()]
        };
        let exact = of(&|name| name == "model");
        let any = of(&|name| name.eq_ignore_ascii_case("model"));
        [exact, any].concat()
    }

    proptest! {
        #[test]
        fn a_model_that_is_returned_is_the_one_of_every_reader(
            members in prop::collection::vec(
                (prop::sample::select(vec!["model", "Model", "MODEL", "mod\\u0065l", "x", "user"]), 0..3u8),
                0..5,
            )
        ) {
            let text = members.iter().map(|(name, value)| format!("\"{name}\":\"m{value}\""));
            let body = format!("{{{}}}", text.collect::<Vec<_>>().join(","));
            let found = differences(body.as_bytes(), &[]).expect("it is an object");
            let facts = crate::request_facts(tokengauge_core::call::Dialect::OpenaiChat, body.as_bytes());
            if let (false, Some(facts)) = (found.model, facts) {
                for reading in readings(&members) {
                    prop_assert_eq!(reading.map(|model| format!("m{model}")), facts.model.clone());
                }
            }
        }

        #[test]
        fn no_bytes_are_too_odd(body in prop::collection::vec(any::<u8>(), 0..64)) {
            let head = BodyHead { encoding: Some("gzip, br".into()), refused: None };
            let _ = differences(&body, &["metadata"]);
            let _ = head.read(&body, &Memory::unbounded(), 1000, |_| Ok(()));
        }
    }
}
