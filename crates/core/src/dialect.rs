//! The names of all dialects. The crate `wire` has a module for each that reads it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The wire format of requests and responses, such as OpenAI chat completions.
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
    /// OpenAI chat completions and compatible APIs, including Azure.
    OpenaiChat,
    /// OpenAI text completions (legacy).
    OpenaiCompletions,
    /// OpenAI responses, over HTTP or WebSocket.
    OpenaiResponses,
    /// OpenAI Realtime over WebSocket.
    OpenaiRealtime,
    /// Anthropic messages, including Vertex.
    Anthropic,
    /// Anthropic text completions (legacy).
    AnthropicComplete,
    /// Gemini `generateContent` and `streamGenerateContent`.
    Gemini,
    /// Bedrock `converse` and `converse-stream`.
    BedrockConverse,
    /// Bedrock `invoke` and `invoke-with-response-stream`.
    BedrockInvoke,
    /// Ollama's native `chat` and `generate` endpoints.
    Ollama,
    /// Cohere v1 chat.
    CohereV1,
    /// Cohere v2 chat.
    CohereV2,
    /// Hugging Face text-generation-inference.
    Tgi,
    /// Gemini Interactions.
    GeminiInteractions,
    /// Gemini Live over WebSocket.
    GeminiLive,
    /// Mistral conversations.
    MistralConversations,
    /// LM Studio's native chat.
    LmStudio,
    /// llama.cpp's native `/completion` and `/infill`.
    LlamaCpp,
    /// Native generate endpoints of SGLang, Triton and vLLM.
    EngineGenerate,
    /// OpenAI transcriptions, speech and images.
    OpenaiMedia,
    /// Embeddings of any provider.
    Embeddings,
    /// Rerankers of any provider.
    Rerank,
    /// Any other traffic. It is forwarded but not measured.
    #[default]
    Unknown,
    /// A dialect that a program outside this repository registers with the crate `wire`. It can be
    /// written to records, but not read back, and it cannot be configured.
    #[serde(skip_deserializing)]
    Custom,
}

impl Dialect {
    /// Every dialect except [`Dialect::Custom`], in the order of declaration.
    pub const ALL: &[Dialect] = match <Dialect as strum::VariantArray>::VARIANTS.split_last() {
        Some((Dialect::Custom, all)) => all,
        _ => panic!("the last one is not `Custom`"),
    };
}
