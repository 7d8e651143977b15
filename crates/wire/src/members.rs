use super::json::{List, Text};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The members of an event or a body that distinguish dialects.
#[derive(Default, Deserialize)]
pub struct Members<'a> {
    #[serde(borrow, default)]
    pub(super) object: Text<'a>,
    #[serde(borrow, default)]
    pub(super) r#type: Text<'a>,
    #[serde(borrow, default)]
    pub(super) event_type: Text<'a>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Text<'a>,
    #[serde(default)]
    choices: Option<List<Choice>>,
    pub(super) prompt_filter_results: Option<IgnoredAny>,
    pub(super) candidates: Option<IgnoredAny>,
    #[serde(rename = "usageMetadata")]
    pub(super) usage_metadata: Option<IgnoredAny>,
    pub(super) done: Option<IgnoredAny>,
    pub(super) message: Option<IgnoredAny>,
    pub(super) response: Option<IgnoredAny>,
    pub(super) token: Option<IgnoredAny>,
    pub(super) generated_text: Option<IgnoredAny>,
    pub(super) generation_id: Option<IgnoredAny>,
    pub(super) text: Option<IgnoredAny>,
    pub(super) meta_info: Option<IgnoredAny>,
    pub(super) text_output: Option<IgnoredAny>,
    pub(super) content: Option<IgnoredAny>,
    pub(super) stop: Option<IgnoredAny>,
    pub(super) model_instance_id: Option<IgnoredAny>,
    pub(super) stats: Option<IgnoredAny>,
    #[serde(rename = "stopReason")]
    pub(super) stop_reason: Option<IgnoredAny>,
    pub(super) output: Option<IgnoredAny>,
}

#[derive(Deserialize)]
pub(super) struct Choice {
    pub(super) delta: Option<IgnoredAny>,
    pub(super) message: Option<IgnoredAny>,
    pub(super) text: Option<IgnoredAny>,
    pub(super) token_ids: Option<IgnoredAny>,
}

impl<'a> Members<'a> {
    pub(super) fn choices(&self) -> Option<&[Choice]> {
        self.choices.as_deref()
    }

    pub(super) fn choice(&self) -> Option<&Choice> {
        self.choices()?.first()
    }

    /// Keeps only the members that can identify OpenAI dialects, because anything with `choices` is
    /// one of them.
    pub(super) fn of_choices(self) -> Members<'a> {
        Members {
            r#type: self.r#type,
            response: self.response,
            choices: self.choices,
            prompt_filter_results: self.prompt_filter_results,
            ..Members::default()
        }
    }
}
