//! The generation settings in a request: temperature, seed, limits. They are read only for spans,
//! so that strange settings do not affect the measurement.

use super::super::json::Text;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use tokengauge_core::call::{GenerationSettings, OutputType};

/// Maximum number of stop sequences that are kept, and maximum number of characters of each.
const MAX_STOPS: usize = 8;
const MAX_STOP: usize = 64;

const TEMPERATURE: &[&str] = &["temperature"];
const TOP_P: &[&str] = &["top_p", "topP", "p"];
const TOP_K: &[&str] = &["top_k", "topK", "k"];
const SEED: &[&str] = &["seed", "random_seed"];
const FREQUENCY_PENALTY: &[&str] = &["frequency_penalty", "frequencyPenalty"];
const PRESENCE_PENALTY: &[&str] = &["presence_penalty", "presencePenalty"];
const MAX_TOKENS: &[&str] = &[
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "maxOutputTokens",
    "maxTokens",
    "max_tokens_to_sample",
    "max_new_tokens",
    "num_predict",
];
const STOPS: &[&str] = &["stop", "stop_sequences", "stopSequences"];
const MIME: &[&str] = &["responseMimeType", "response_mime_type"];
const FORMAT: &[&str] = &[
    "response_format",
    "output_format",
    "format",
    "text",
    "output_config",
];
const MODALITIES: &[&str] = &["modalities", "responseModalities"];
const ENCODING: &[&str] = &["encoding_format"];
const DIMENSIONS: &[&str] = &["dimensions", "outputDimensionality", "output_dimension"];
/// Objects that may contain the settings instead of the body itself.
const WITHIN: &[&str] = &[
    "generationConfig",
    "generation_config",
    "inferenceConfig",
    "options",
    "parameters",
];
/// Code Assist's envelope.
const ENVELOPE: &[&str] = &["request"];
const NAMES: &[&[&str]] = &[
    TEMPERATURE,
    TOP_P,
    TOP_K,
    SEED,
    FREQUENCY_PENALTY,
    PRESENCE_PENALTY,
    MAX_TOKENS,
    STOPS,
    MIME,
    FORMAT,
    MODALITIES,
    ENCODING,
    DIMENSIONS,
    WITHIN,
    ENVELOPE,
];

/// Reads the settings in a complete request body. Values that are not understood are omitted.
pub fn generation_settings(body: &[u8]) -> Option<GenerationSettings> {
    let top: Members<'_> = serde_json::from_slice(body).ok()?;
    let envelope: Option<Members<'_>> = top.read(ENVELOPE);
    let mut all: Vec<Members<'_>> = [Some(top), envelope].into_iter().flatten().collect();
    for at in 0..all.len() {
        let within = WITHIN.iter().filter_map(|name| all[at].read(&[name]));
        let within: Vec<Members<'_>> = within.collect();
        all.extend(within);
    }
    let all = All(&all);
    Some(GenerationSettings {
        temperature: all.number(TEMPERATURE),
        top_p: all.number(TOP_P),
        top_k: all.number(TOP_K),
        seed: all.read(SEED),
        frequency_penalty: all.number(FREQUENCY_PENALTY),
        presence_penalty: all.number(PRESENCE_PENALTY),
        max_tokens: all.count(MAX_TOKENS),
        stop_sequences: all.stops(),
        output_type: all.output_type(),
        encoding_format: all
            .read::<Text<'_>>(ENCODING)
            .and_then(|text| super::word(&text)),
        dimensions: all.count(DIMENSIONS),
    })
}

/// The members of an object with one of [`NAMES`]. Only the last of equal names is kept.
struct Members<'a>(Vec<(&'static str, &'a RawValue)>);

impl<'a> Members<'a> {
    fn read<T: Deserialize<'a>>(&self, names: &[&str]) -> Option<T> {
        let found = names.iter().filter_map(|name| {
            let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
            serde_json::from_str(value.get()).ok()
        });
        { found }.next()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(key) = entries.next_key::<Text<'de>>()? {
            let known = NAMES.iter().copied().flatten().find(|name| ***name == *key);
            let Some(name) = known else {
                entries.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = entries.next_value()?;
            members.retain(|(known, _)| known != name);
            members.push((*name, value));
        }
        Ok(Members(members))
    }
}

/// The body, and the objects in it that may contain settings.
struct All<'s, 'a>(&'s [Members<'a>]);

impl<'a> All<'_, 'a> {
    fn read<T: Deserialize<'a>>(&self, names: &[&str]) -> Option<T> {
        self.0.iter().find_map(|members| members.read(names))
    }

    fn number(&self, names: &[&str]) -> Option<f64> {
        self.read(names).filter(|number: &f64| number.is_finite())
    }

    /// Some clients send -1 for an unlimited count.
    fn count(&self, names: &[&str]) -> Option<i64> {
        self.read(names).filter(|count| *count > 0)
    }

    fn stops(&self) -> Vec<String> {
        let one = || self.read::<String>(STOPS).map(|stop| vec![stop]);
        let several = self.read::<Vec<String>>(STOPS).or_else(one);
        let kept = several.unwrap_or_default().into_iter().take(MAX_STOPS);
        kept.map(|stop| stop.chars().take(MAX_STOP).collect())
            .collect()
    }

    fn output_type(&self) -> Option<OutputType> {
        let modalities: Vec<String> = self.read(MODALITIES).unwrap_or_default();
        let wants = |what: &str| modalities.iter().any(|one| one.eq_ignore_ascii_case(what));
        if wants("audio") {
            return Some(OutputType::Speech);
        }
        if wants("image") {
            return Some(OutputType::Image);
        }
        let mime = self.read::<String>(MIME);
        let mime = mime.as_deref().and_then(|mime| match mime {
            "application/json" | "text/x.enum" => Some(OutputType::Json),
            "text/plain" => Some(OutputType::Text),
            _ => None,
        });
        mime.or_else(|| self.read::<Format>(FORMAT)?.output_type())
    }
}

/// The response format: a word, an object with a `type`, an object with a `format`, or a schema.
#[derive(Deserialize)]
#[serde(untagged)]
enum Format {
    Word(String),
    Within { format: Box<Format> },
    Typed { r#type: String },
}

impl Format {
    fn output_type(&self) -> Option<OutputType> {
        let word = match self {
            Format::Within { format } => return format.output_type(),
            Format::Word(word) | Format::Typed { r#type: word } => word.as_str(),
        };
        match word {
            "text" => Some(OutputType::Text),
            // A schema in Ollama's format begins with the type of its value.
            "json" | "json_object" | "json_schema" | "object" | "array" => Some(OutputType::Json),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(body: &str) -> GenerationSettings {
        generation_settings(body.as_bytes()).expect("an object")
    }

    #[test]
    fn settings_are_found_in_every_dialects_place() {
        let openai = r#"{"model":"m","messages":[{"role":"user","content":"temperature"}],"temperature":0.5,
            "top_p":0.9,"seed":7,"max_completion_tokens":100,"frequency_penalty":0.1,"presence_penalty":-1,
            "stop":["\n","END"],"response_format":{"type":"json_schema","json_schema":{"type":"x"}}}"#;
        let expected = GenerationSettings {
            temperature: Some(0.5),
            top_p: Some(0.9),
            seed: Some(7),
            max_tokens: Some(100),
            frequency_penalty: Some(0.1),
            presence_penalty: Some(-1.0),
            stop_sequences: vec!["\n".to_owned(), "END".to_owned()],
            output_type: Some(OutputType::Json),
            ..GenerationSettings::default()
        };
        assert_eq!(settings(openai), expected);
        let gemini = r#"{"contents":[],"generationConfig":{"temperature":1,"topP":0.9,"topK":40,"seed":7,
            "maxOutputTokens":100,"stopSequences":["END"],"responseMimeType":"application/json"}}"#;
        let expected = GenerationSettings {
            temperature: Some(1.0),
            top_p: Some(0.9),
            top_k: Some(40.0),
            seed: Some(7),
            max_tokens: Some(100),
            stop_sequences: vec!["END".to_owned()],
            output_type: Some(OutputType::Json),
            ..GenerationSettings::default()
        };
        assert_eq!(settings(gemini), expected);
        let code_assist = format!(r#"{{"model":"g","request":{gemini}}}"#);
        assert_eq!(settings(&code_assist), expected);
        for body in [
            r#"{"max_tokens":5}"#,
            r#"{"max_output_tokens":5,"text":{"format":{"type":"text"}}}"#,
            r#"{"inferenceConfig":{"maxTokens":5}}"#,
            r#"{"options":{"num_predict":5}}"#,
            r#"{"parameters":{"max_new_tokens":5}}"#,
        ] {
            assert_eq!(settings(body).max_tokens, Some(5), "{body}");
        }
    }

    #[test]
    fn the_kind_of_output_is_known_where_the_request_says() {
        for (body, output) in [
            (
                r#"{"text":{"format":{"type":"json_schema"}}}"#,
                OutputType::Json,
            ),
            (r#"{"text":{"format":{"type":"text"}}}"#, OutputType::Text),
            (r#"{"format":"json"}"#, OutputType::Json),
            (
                r#"{"format":{"type":"object","properties":{}}}"#,
                OutputType::Json,
            ),
            (r#"{"modalities":["text","audio"]}"#, OutputType::Speech),
            (
                r#"{"generationConfig":{"responseModalities":["IMAGE"]}}"#,
                OutputType::Image,
            ),
        ] {
            assert_eq!(settings(body).output_type, Some(output), "{body}");
        }
        let embeddings = settings(r#"{"input":"x","encoding_format":"base64","dimensions":256}"#);
        assert_eq!(embeddings.encoding_format.as_deref(), Some("base64"));
        assert_eq!(embeddings.dimensions, Some(256));
    }

    #[test]
    fn what_is_not_understood_is_left_out_and_what_is_long_is_cut() {
        let strange = r#"{"temperature":"hot","seed":1.5,"stop":{"a":1},"max_tokens":-1,"format":7,
            "temperature":null,"options":[1],"top_k":3}"#;
        let expected = GenerationSettings {
            top_k: Some(3.0),
            ..GenerationSettings::default()
        };
        assert_eq!(settings(strange), expected);
        assert_eq!(generation_settings(b"[1]"), None);
        let many = format!(r#"{{"stop":[{}"é"]}}"#, "\"xxxxxxxxxxxx\",".repeat(20));
        assert_eq!(settings(&many).stop_sequences.len(), MAX_STOPS);
        let long = format!(r#"{{"stop":"{}"}}"#, "é".repeat(500));
        assert_eq!(settings(&long).stop_sequences, ["é".repeat(MAX_STOP)]);
    }
}
