//! The part of a call that the search for a cause needs, and the dimensions in which calls differ.

use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use tokengauge_core::concurrency::{CONCURRENCIES, concurrency_class};
use tokengauge_core::lengths::{PROMPT_LENGTHS, prompt_length_class};

/// A dimension in which calls differ.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Dimension {
    /// The upstream.
    Upstream,
    /// The model that answered. If that is unknown, the requested model.
    Model,
    /// The route.
    Route,
    /// The agent.
    Agent,
    /// The endpoint of the upstream, `host:port`.
    Node,
    /// The length of the prompt. A value is a length class and all longer classes.
    PromptLength,
    /// Streams in flight on the upstream. A value is a concurrency class and all higher classes.
    Concurrency,
}

impl Dimension {
    /// The dimensions whose values are names, the preferred one first. The order decides between names that explain equally
    /// much.
    pub const NAMES: [Dimension; 5] = [
        Dimension::Upstream,
        Dimension::Model,
        Dimension::Route,
        Dimension::Agent,
        Dimension::Node,
    ];
    /// The dimensions whose values are ordered classes.
    pub const CLASSES: [Dimension; 2] = [Dimension::PromptLength, Dimension::Concurrency];

    pub fn in_words(self) -> &'static str {
        match self {
            Dimension::PromptLength => "prompt length",
            other => other.into(),
        }
    }

    pub(crate) fn class_name(self, class: usize) -> String {
        let names: &[&str] = match self {
            Dimension::PromptLength => &PROMPT_LENGTHS,
            _ => &CONCURRENCIES,
        };
        let name = names.get(class).copied().unwrap_or_default();
        match self {
            Dimension::PromptLength => format!(">= {}", name.split('_').next().unwrap_or(name)),
            _ => format!(">= {}", name.split(['-', '+']).next().unwrap_or(name)),
        }
    }
}

/// A finished call that an objective judged. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// When the call ended, in seconds since 1970.
    pub at: f64,
    /// The number of calls that this call stands for. It is above 1 if only a sample of the calls is kept.
    pub weight: f64,
    pub bad: bool,
    /// The names in the order of [`Dimension::NAMES`]. `None` if a name is unknown.
    pub names: [Option<Arc<str>>; 5],
    /// Prompt tokens that were not read from a cache.
    pub prompt_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    /// Streams in flight on the upstream when the call began, including the call itself.
    pub concurrency: u32,
    /// Whether the upstream had just come up, or the engine loaded the model for this call.
    pub cold: bool,
    /// The kind of error, if the upstream caused it.
    pub error: Option<Arc<str>>,
    /// Seconds until a connection to the upstream was ready.
    pub connect: Option<f64>,
    /// Seconds from the ready connection to the first token, or to the end of a call without tokens.
    pub first_token: Option<f64>,
    /// The duration of the prefill, as measured by the engine.
    pub prefill: Option<f64>,
    /// The median gap between tokens.
    pub gap: Option<f64>,
    pub stalls: u64,
    /// The longest gap between two chunks that contain tokens.
    pub longest_gap: Option<f64>,
}

impl Call {
    pub(crate) fn name(&self, dimension: Dimension) -> Option<&Arc<str>> {
        let place = Dimension::NAMES.iter().position(|one| *one == dimension)?;
        self.names.get(place)?.as_ref()
    }

    pub(crate) fn class(&self, dimension: Dimension) -> Option<usize> {
        match dimension {
            Dimension::PromptLength => self.prompt_tokens.map(prompt_length_class),
            Dimension::Concurrency => Some(concurrency_class(self.concurrency)),
            _ => None,
        }
    }
}
