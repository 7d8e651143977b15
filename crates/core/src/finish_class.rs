//! Classifies the finish reasons of all dialects.

/// The meaning of a finish reason. The ledger stores positions in [`FinishClass::ALL`], so new
/// classes must be added at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum FinishClass {
    /// The model finished its answer.
    Stop,
    /// A token limit truncated the answer.
    Length,
    /// The model calls a tool.
    ToolCall,
    /// The model or a filter refused to answer.
    Refused,
    /// The provider could not parse the tool call of the model.
    InvalidToolCall,
    /// Any other reason.
    Other,
    /// The provider or the engine failed before the answer was complete.
    Failed,
}

impl FinishClass {
    /// Every class, in the order that the ledger stores.
    pub const ALL: [FinishClass; 7] = [
        FinishClass::Stop,
        FinishClass::Length,
        FinishClass::ToolCall,
        FinishClass::Refused,
        FinishClass::InvalidToolCall,
        FinishClass::Other,
        FinishClass::Failed,
    ];

    /// The class of a finish reason as the provider sent it. The case is ignored.
    ///
    /// ```
    /// use tokengauge_core::finish_class::FinishClass;
    /// assert_eq!(FinishClass::of("max_tokens"), FinishClass::of("MAX_TOKENS"));
    /// assert_eq!(FinishClass::of("refusal"), FinishClass::Refused);
    /// ```
    pub fn of(reason: &str) -> FinishClass {
        let reason = reason.to_ascii_lowercase();
        // OpenAI responses send `incomplete:` and a reason.
        let reason = reason.strip_prefix("incomplete:").unwrap_or(&reason);
        // Google's OpenAI-compatible API names the filter: `content_filter: SAFETY`.
        let reason = reason.split_once(": ").map_or(reason, |(_, reason)| reason);
        let of = |reasons: &&FinishReasons| reasons.words.contains(&reason);
        match FINISH_REASONS.iter().find(of) {
            Some(reasons) => reasons.class,
            // Reasons such as `server_error` and `internal_error` mean a failure on any server.
            None if reason.ends_with("error") => FinishClass::Failed,
            None => FinishClass::Other,
        }
    }

    /// Whether the answer counts as a failure, although its status is 200.
    pub fn is_failure(self) -> bool {
        matches!(self, FinishClass::Failed | FinishClass::InvalidToolCall)
    }

    /// The name in API responses and views.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Finish reasons of one vendor with the same class.
pub struct FinishReasons {
    /// Name of the vendor.
    pub vendor: &'static str,
    /// The class of the reasons.
    pub class: FinishClass,
    /// The finish reasons in lower case.
    pub words: &'static [&'static str],
    /// URL of the vendor's documentation.
    pub source: &'static str,
}

/// Every known finish reason. A reason has the same class for every vendor.
pub const FINISH_REASONS: &[FinishReasons] = &[
    FinishReasons {
        vendor: "OpenAI",
        class: FinishClass::Stop,
        words: &["stop"],
        source: "https://platform.openai.com/docs/api-reference/chat/object",
    },
    FinishReasons {
        vendor: "OpenAI",
        class: FinishClass::Length,
        words: &["length"],
        source: "https://platform.openai.com/docs/api-reference/chat/object",
    },
    FinishReasons {
        vendor: "OpenAI",
        class: FinishClass::ToolCall,
        words: &["tool_calls", "function_call"],
        source: "https://platform.openai.com/docs/api-reference/chat/object",
    },
    FinishReasons {
        vendor: "OpenAI",
        class: FinishClass::Refused,
        words: &["content_filter"],
        source: "https://platform.openai.com/docs/api-reference/chat/object",
    },
    FinishReasons {
        vendor: "OpenAI responses",
        class: FinishClass::Stop,
        words: &["completed"],
        source: "https://platform.openai.com/docs/api-reference/responses/object",
    },
    FinishReasons {
        vendor: "OpenAI responses",
        class: FinishClass::Length,
        words: &["max_output_tokens"],
        source: "https://platform.openai.com/docs/api-reference/responses/object",
    },
    FinishReasons {
        vendor: "OpenAI responses",
        class: FinishClass::Failed,
        words: &["failed"],
        source: "https://platform.openai.com/docs/api-reference/responses/object",
    },
    FinishReasons {
        vendor: "Anthropic",
        class: FinishClass::Stop,
        words: &["end_turn", "stop_sequence"],
        source: "https://platform.claude.com/docs/en/api/handling-stop-reasons",
    },
    FinishReasons {
        vendor: "Anthropic",
        class: FinishClass::Length,
        words: &["max_tokens", "model_context_window_exceeded"],
        source: "https://platform.claude.com/docs/en/api/handling-stop-reasons",
    },
    FinishReasons {
        vendor: "Anthropic",
        class: FinishClass::ToolCall,
        words: &["tool_use"],
        source: "https://platform.claude.com/docs/en/api/handling-stop-reasons",
    },
    FinishReasons {
        vendor: "Anthropic",
        class: FinishClass::Refused,
        words: &["refusal"],
        source: "https://platform.claude.com/docs/en/api/handling-stop-reasons",
    },
    FinishReasons {
        vendor: "Gemini",
        class: FinishClass::Refused,
        words: &[
            "safety",
            "recitation",
            "language",
            "blocklist",
            "prohibited_content",
            "spii",
            "image_safety",
            "image_prohibited_content",
            "image_recitation",
            "model_armor",
        ],
        source: "https://ai.google.dev/api/generate-content#FinishReason",
    },
    FinishReasons {
        vendor: "Gemini",
        class: FinishClass::InvalidToolCall,
        words: &[
            "malformed_function_call",
            "unexpected_tool_call",
            "too_many_tool_calls",
        ],
        source: "https://ai.google.dev/api/generate-content#FinishReason",
    },
    FinishReasons {
        vendor: "Gemini",
        class: FinishClass::Failed,
        words: &["malformed_response", "missing_thought_signature"],
        source: "https://ai.google.dev/api/generate-content#FinishReason",
    },
    FinishReasons {
        vendor: "Gemini interactions",
        class: FinishClass::ToolCall,
        words: &["requires_action"],
        source: "https://ai.google.dev/api/interactions-api",
    },
    FinishReasons {
        vendor: "Gemini Live",
        class: FinishClass::Stop,
        words: &["turn_complete"],
        source: "https://ai.google.dev/api/live",
    },
    FinishReasons {
        vendor: "Bedrock",
        class: FinishClass::Refused,
        words: &["content_filtered", "guardrail_intervened"],
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html",
    },
    FinishReasons {
        vendor: "Bedrock",
        class: FinishClass::InvalidToolCall,
        words: &["malformed_tool_use"],
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html",
    },
    FinishReasons {
        vendor: "Bedrock",
        class: FinishClass::Failed,
        words: &["malformed_model_output"],
        source: "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html",
    },
    FinishReasons {
        vendor: "Bedrock Titan",
        class: FinishClass::Stop,
        words: &["finish"],
        source: "https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-text.html",
    },
    FinishReasons {
        vendor: "AI21",
        class: FinishClass::Stop,
        words: &["endoftext"],
        source: "https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-jurassic2.html",
    },
    FinishReasons {
        vendor: "Cohere",
        class: FinishClass::Stop,
        words: &["complete"],
        source: "https://docs.cohere.com/reference/chat",
    },
    FinishReasons {
        vendor: "Cohere",
        class: FinishClass::Length,
        words: &["error_limit"],
        source: "https://docs.cohere.com/reference/chat",
    },
    FinishReasons {
        vendor: "Cohere",
        class: FinishClass::ToolCall,
        words: &["tool_call"],
        source: "https://docs.cohere.com/reference/chat",
    },
    FinishReasons {
        vendor: "Cohere",
        class: FinishClass::Refused,
        words: &["error_toxic"],
        source: "https://docs.cohere.com/reference/chat",
    },
    FinishReasons {
        vendor: "Cohere",
        class: FinishClass::Failed,
        words: &["timeout"],
        source: "https://docs.cohere.com/reference/chat",
    },
    FinishReasons {
        vendor: "Mistral",
        class: FinishClass::Length,
        words: &["model_length"],
        source: "https://docs.mistral.ai/api",
    },
    FinishReasons {
        vendor: "Hugging Face TGI, Together",
        class: FinishClass::Stop,
        words: &["eos_token", "eos"],
        source: "https://huggingface.github.io/text-generation-inference",
    },
    FinishReasons {
        vendor: "llama.cpp",
        class: FinishClass::Length,
        words: &["limit"],
        source: "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
    },
    FinishReasons {
        vendor: "LM Studio",
        class: FinishClass::Failed,
        words: &["modelunloaded"],
        source: "https://lmstudio.ai/docs/typescript/api-reference/llm-prediction-stats",
    },
    FinishReasons {
        vendor: "LiteLLM, Hugging Face",
        class: FinishClass::Length,
        words: &["max_length"],
        source: "https://docs.litellm.ai/docs/completion/output",
    },
    FinishReasons {
        vendor: "DeepSeek",
        class: FinishClass::Failed,
        words: &["insufficient_system_resource"],
        source: "https://api-docs.deepseek.com/api/create-chat-completion",
    },
    FinishReasons {
        vendor: "Z.ai, Zhipu",
        class: FinishClass::Refused,
        words: &["sensitive"],
        source: "https://docs.z.ai/api-reference/llm/chat-completion",
    },
    FinishReasons {
        vendor: "Z.ai, Zhipu",
        class: FinishClass::Failed,
        words: &["network_error"],
        source: "https://docs.z.ai/api-reference/llm/chat-completion",
    },
    FinishReasons {
        vendor: "MiniMax",
        class: FinishClass::Length,
        words: &["max_output"],
        source: "https://platform.minimax.io/docs/api-reference/text-post",
    },
    FinishReasons {
        vendor: "OpenRouter",
        class: FinishClass::Failed,
        words: &["error"],
        source: "https://openrouter.ai/docs/api-reference/errors",
    },
    FinishReasons {
        vendor: "vLLM, SGLang",
        class: FinishClass::Failed,
        words: &["abort", "aborted"],
        source: "https://docs.vllm.ai/en/latest/api/vllm/v1/engine",
    },
];

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
            ("network_error", FinishClass::Failed),
            ("server_error", FinishClass::Failed),
            ("INTERNAL_ERROR", FinishClass::Failed),
            ("error_recovered", FinishClass::Other),
            ("incomplete:max_output_tokens", FinishClass::Length),
            ("content_filter: RECITATION", FinishClass::Refused),
            (
                "function_call_filter: MALFORMED_FUNCTION_CALL",
                FinishClass::InvalidToolCall,
            ),
            ("in_progress", FinishClass::Other),
            ("", FinishClass::Other),
        ];
        for (word, class) in words {
            assert_eq!(FinishClass::of(word), class, "{word}");
        }
    }

    #[test]
    fn no_word_stands_in_the_table_twice() {
        let words = FINISH_REASONS.iter().flat_map(|reasons| reasons.words);
        let mut seen = std::collections::HashSet::new();
        for word in words {
            assert!(seen.insert(word), "{word}");
            assert_eq!(*word, word.to_ascii_lowercase());
        }
    }

    #[test]
    fn a_class_is_at_its_place_in_the_list() {
        for (place, class) in FinishClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, place);
        }
    }
}
