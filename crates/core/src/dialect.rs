//! The dialects' identities: one line for each. What a dialect does is in its module of the
//! crate `wire`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A family of request and response shapes on the wire.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// OpenAI chat completions and everything that imitates it, Azure included.
    OpenaiChat,
    /// OpenAI's older text completions.
    OpenaiCompletions,
    /// OpenAI responses, over HTTP or WebSocket.
    OpenaiResponses,
    /// OpenAI Realtime over WebSocket.
    OpenaiRealtime,
    /// Anthropic messages, Vertex included.
    Anthropic,
    /// Anthropic's older text completions.
    AnthropicComplete,
    /// Gemini `generateContent` and `streamGenerateContent`.
    Gemini,
    /// Bedrock `converse` and `converse-stream`.
    BedrockConverse,
    /// Bedrock `invoke` and `invoke-with-response-stream`.
    BedrockInvoke,
    /// Ollama's own chat and generate.
    Ollama,
    /// Cohere v1 chat.
    CohereV1,
    /// Cohere v2 chat.
    CohereV2,
    /// Hugging Face text-generation-inference.
    Tgi,
    /// Gemini's Interactions.
    GeminiInteractions,
    /// Gemini Live over WebSocket.
    GeminiLive,
    /// Mistral's conversations.
    MistralConversations,
    /// LM Studio's own chat.
    LmStudio,
    /// llama.cpp's own `/completion` and `/infill`.
    LlamaCpp,
    /// Other engines' own ways to generate: SGLang's, Triton's, vLLM's.
    EngineGenerate,
    /// OpenAI's transcriptions, speech and images.
    OpenaiMedia,
    /// Embeddings of any provider.
    Embeddings,
    /// Rerankers of any provider.
    Rerank,
    /// Anything else: forwarded all the same, not measured.
    #[default]
    Unknown,
    /// A dialect of a program that reads it with the crate `wire` and a registration of its own.
    /// Records with it are written, not read, and no configuration names it.
    #[serde(skip_deserializing)]
    Custom,
}

impl Dialect {
    /// All of them, in the order above, but [`Dialect::Custom`], which is the last.
    pub const ALL: &[Dialect] = match <Dialect as strum::VariantArray>::VARIANTS.split_last() {
        Some((Dialect::Custom, all)) => all,
        _ => panic!("the last one is not `Custom`"),
    };
}
