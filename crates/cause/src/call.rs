//! A call as far as its cause needs it, and the dimensions that calls differ in.

use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use tokengauge_core::concurrency::{CONCURRENCIES, concurrency_class};
use tokengauge_core::lengths::{PROMPT_LENGTHS, prompt_length_class};

/// What calls are told apart by.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Dimension {
    /// The upstream.
    Upstream,
    /// The model that answered, else the one asked for.
    Model,
    /// The route.
    Route,
    /// The agent.
    Agent,
    /// The endpoint of the upstream, `host:port`.
    Node,
    /// The length of the prompt: a class and all longer ones.
    PromptLength,
    /// Streams under way on the upstream: a class and all above.
    Concurrency,
}

impl Dimension {
    /// Those whose values are names, in the order in which they are preferred where they explain alike.
    pub const NAMES: [Dimension; 5] = [
        Dimension::Upstream,
        Dimension::Model,
        Dimension::Route,
        Dimension::Agent,
        Dimension::Node,
    ];
    /// Those whose values are classes in ascending order.
    pub const CLASSES: [Dimension; 2] = [Dimension::PromptLength, Dimension::Concurrency];

    pub fn in_words(self) -> &'static str {
        match self {
            Dimension::PromptLength => "prompt length",
            other => other.into(),
        }
    }

    /// The value of a class and all above.
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

/// A finished call that an objective judged. Times are seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// When it ended, since 1970.
    pub at: f64,
    /// How many calls it stands for: more than 1 where only some of them are kept.
    pub weight: f64,
    pub bad: bool,
    /// The names by [`Dimension::NAMES`], where they are known.
    pub names: [Option<Arc<str>>; 5],
    /// Prompt tokens that were not read from a cache.
    pub prompt_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    /// Streams under way on the upstream when it began, itself included.
    pub concurrency: u32,
    /// Whether the upstream had just come up, or the engine loaded the model for this call.
    pub cold: bool,
    /// The kind of error that the upstream is to blame for.
    pub error: Option<Arc<str>>,
    /// Until a connection to the upstream was ready.
    pub connect: Option<f64>,
    /// From then until the first token; where none came, until the end.
    pub first_token: Option<f64>,
    /// The prefill by the engine's own measurement.
    pub prefill: Option<f64>,
    /// The median gap between tokens.
    pub gap: Option<f64>,
    /// Gaps over the stall threshold.
    pub stalls: u64,
    /// The longest gap between chunks with tokens.
    pub longest_gap: Option<f64>,
}

impl Call {
    pub(crate) fn name(&self, dimension: Dimension) -> Option<&Arc<str>> {
        let place = Dimension::NAMES.iter().position(|one| *one == dimension)?;
        self.names.get(place)?.as_ref()
    }

    /// Its class by one of [`Dimension::CLASSES`].
    pub(crate) fn class(&self, dimension: Dimension) -> Option<usize> {
        match dimension {
            Dimension::PromptLength => self.prompt_tokens.map(prompt_length_class),
            Dimension::Concurrency => Some(concurrency_class(self.concurrency)),
            _ => None,
        }
    }
}
