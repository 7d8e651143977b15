//! Embeddings and rerankers of any provider. Only usage and cost are read, since no text is
//! generated.

use super::cost::Amount;
use super::detect::{Detected, GoogleMethod, Target, behind_deployment};
use super::emit::{self, RepeatedName};
use super::json::{Count, Text, error_kind, parse};
use super::registration::OverruledBy;
use super::strict::ModellessMember;
use super::usage_names::USAGE_NAMES;
use super::{Malformed, Reader, Registration, Sink};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokengauge_core::call::{Dialect, EngineReport, Event, Operation, Usage};

pub(super) static EMBEDDINGS: Registration = Registration {
    detect,
    modelless: Some(ModellessMember::Inputs),
    ..registration::<Embeddings>(Dialect::Embeddings)
};

pub(super) static RERANK: Registration = Registration {
    detect: |target| match target.post()? {
        [.., "rerank"] => Some(Detected::new(Dialect::Rerank, Operation::Rerank)),
        _ => None,
    },
    modelless: Some(ModellessMember::Texts),
    ..registration::<Rerank>(Dialect::Rerank)
};

const fn registration<R: Reader + Default + 'static>(dialect: Dialect) -> Registration {
    Registration {
        // Vectors and rankings have no distinctive members.
        overruled_by: OverruledBy::None,
        generates: false,
        ends_streams: false,
        usage: USAGE_NAMES,
        ..Registration::new::<R>(dialect)
    }
}

fn detect(target: &Target<'_>) -> Option<Detected> {
    let found = Detected::new(Dialect::Embeddings, Operation::Embeddings);
    let path = target.post()?;
    match path {
        [prefix @ .., "embeddings"] => return Some(behind_deployment(found, prefix)),
        // A Mistral conversation with the id `embed`.
        [.., "conversations", "embed"] => return None,
        [.., "embed"] => return Some(found),
        _ => {}
    }
    let google = GoogleMethod::of(path)?;
    match google.verb {
        "embedContent" | "batchEmbedContents" => Some(found.model(google.model)),
        "predict" if google.model.contains("embedding") => Some(found.model(google.model)),
        _ => None,
    }
}

/// Reads embeddings.
#[derive(Default)]
pub struct Embeddings;

impl Reader for Embeddings {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        read(payload, sink)
    }
}

/// Reads rerankings.
#[derive(Default)]
pub struct Rerank;

impl Reader for Rerank {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        read(payload, sink)
    }
}

fn read(payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
    // Hugging Face's server responds with only the vectors.
    if payload.trim_ascii_start().starts_with(b"[") {
        return Ok(());
    }
    let body: Body<'_> = parse(payload)?;
    if let Some(error) = body.error {
        sink(Event::Error(&error_kind(error)));
    } else if !body.message.is_empty() {
        sink(Event::Error("error"));
    }
    RepeatedName::default().response_id(sink, &body.id);
    RepeatedName::default().model(sink, &body.model);
    let input = body.input();
    emit::usage(
        sink,
        Usage {
            input: input.0,
            ..Usage::default()
        },
    );
    if let Some(usd) = body.usage.and_then(|usage| usage.cost.0) {
        sink(Event::Cost(usd));
    }
    body.engine(sink);
    Ok(())
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(default, deserialize_with = "super::json::object")]
    usage: Option<Tokens>,
    #[serde(default, deserialize_with = "super::json::object")]
    meta: Option<Meta>,
    #[serde(
        rename = "usageMetadata",
        default,
        deserialize_with = "super::json::object"
    )]
    usage_metadata: Option<UsageMetadata>,
    #[serde(default, rename = "inputTextTokenCount")]
    input_text_token_count: Count,
    #[serde(default)]
    prompt_eval_count: Count,
    /// Durations are in nanoseconds.
    #[serde(default)]
    total_duration: Count,
    #[serde(default)]
    load_duration: Count,
    #[serde(borrow, default, deserialize_with = "super::json::error")]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Text<'a>,
}

impl Body<'_> {
    /// All tokens are input, so a total also counts.
    fn input(&self) -> Count {
        let usage = self.usage.unwrap_or_default();
        let meta = self.meta.unwrap_or_default();
        let billed = meta.tokens.or(meta.billed_units).unwrap_or_default();
        let google = self.usage_metadata.unwrap_or_default();
        usage
            .prompt_tokens
            .or(usage.input_tokens)
            .or(usage.total_tokens)
            .or(billed.input_tokens)
            .or(google.prompt_token_count)
            .or(self.input_text_token_count)
            .or(self.prompt_eval_count)
    }

    fn engine(&self, sink: Sink<'_>) {
        let seconds = |nanoseconds: Count| nanoseconds.0.map(|count| count as f64 / 1e9);
        if self.total_duration.0.is_some() {
            sink(Event::Engine(EngineReport {
                prompt_tokens: self.prompt_eval_count.0,
                load_seconds: seconds(self.load_duration),
                total_seconds: seconds(self.total_duration),
                ..EngineReport::default()
            }));
        }
    }
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Tokens {
    prompt_tokens: Count,
    input_tokens: Count,
    total_tokens: Count,
    cost: Amount,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Meta {
    #[serde(default, deserialize_with = "super::json::object")]
    tokens: Option<Tokens>,
    #[serde(default, deserialize_with = "super::json::object")]
    billed_units: Option<Tokens>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct UsageMetadata {
    prompt_token_count: Count,
}
