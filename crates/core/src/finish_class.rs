//! What finish reasons mean, over all dialects.

/// What a finish reason says. The ledger keeps the places in [`FinishClass::ALL`]: new ones come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum FinishClass {
    /// The model was done.
    Stop,
    /// A limit on tokens cut the answer off: it is truncated.
    Length,
    /// The model asks for a tool.
    ToolCall,
    /// The model or a filter refused to answer.
    Refused,
    /// The provider could not read the model's own tool call.
    InvalidToolCall,
    /// Anything else.
    Other,
}

impl FinishClass {
    /// Every class.
    pub const ALL: [FinishClass; 6] = [
        FinishClass::Stop,
        FinishClass::Length,
        FinishClass::ToolCall,
        FinishClass::Refused,
        FinishClass::InvalidToolCall,
        FinishClass::Other,
    ];

    /// The class of a reason, as a provider writes it, in any case.
    ///
    /// ```
    /// use tokengauge_core::finish_class::FinishClass;
    /// assert_eq!(FinishClass::of("max_tokens"), FinishClass::of("MAX_TOKENS"));
    /// assert_eq!(FinishClass::of("refusal"), FinishClass::Refused);
    /// ```
    pub fn of(reason: &str) -> FinishClass {
        match reason.to_ascii_lowercase().as_str() {
            "stop" | "end_turn" | "stop_sequence" | "completed" | "complete" | "finish" | "eos"
            | "eos_token" | "turn_complete" => FinishClass::Stop,
            "length"
            | "max_tokens"
            | "max_output_tokens"
            | "max_length"
            | "model_length"
            | "limit"
            | "error_limit"
            | "model_context_window_exceeded" => FinishClass::Length,
            "tool_calls" | "tool_call" | "tool_use" | "function_call" | "requires_action" => {
                FinishClass::ToolCall
            }
            "content_filter"
            | "content_filtered"
            | "refusal"
            | "safety"
            | "image_safety"
            | "recitation"
            | "language"
            | "blocklist"
            | "prohibited_content"
            | "spii"
            | "guardrail_intervened"
            | "error_toxic" => FinishClass::Refused,
            "malformed_function_call" | "malformed_tool_use" | "unexpected_tool_call" => {
                FinishClass::InvalidToolCall
            }
            _ => FinishClass::Other,
        }
    }

    /// The word used in answers and views.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_vendors_words_have_their_class() {
        let words = [
            ("stop", FinishClass::Stop),
            ("end_turn", FinishClass::Stop),
            ("COMPLETE", FinishClass::Stop),
            ("length", FinishClass::Length),
            ("MAX_TOKENS", FinishClass::Length),
            ("max_output_tokens", FinishClass::Length),
            ("tool_use", FinishClass::ToolCall),
            ("content_filter", FinishClass::Refused),
            ("PROHIBITED_CONTENT", FinishClass::Refused),
            ("MALFORMED_FUNCTION_CALL", FinishClass::InvalidToolCall),
            ("in_progress", FinishClass::Other),
            ("", FinishClass::Other),
        ];
        for (word, class) in words {
            assert_eq!(FinishClass::of(word), class, "{word}");
        }
    }

    #[test]
    fn a_class_is_at_its_place_in_the_list() {
        for (place, class) in FinishClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, place);
        }
    }
}
