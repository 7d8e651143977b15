//! One part of a section of a request.

/// What a text of a prompt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextKind {
    /// The system prompt, and other instructions.
    System,
    /// The definition of a tool.
    ToolSchema,
    /// Text of a user.
    User,
    /// An answer of the assistant that is sent again.
    Assistant,
    /// Reasoning of the assistant that is sent again.
    Reasoning,
    /// The arguments of a tool call.
    ToolCall,
    /// The result of a tool call.
    ToolResult,
    /// Any other text, such as documents and texts for embeddings.
    Other,
}

/// One part of a section of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Part<'a> {
    /// A text. The texts of a request are those that [`request_texts`](super::request_texts) gives.
    Text {
        /// What the text is.
        kind: TextKind,
        /// The text without its escapes.
        text: &'a str,
    },
    /// A tool. Its definition is the next text.
    Tool {
        /// The name of the tool.
        name: &'a str,
        /// The MCP server of the tool, if the definition names one.
        server: Option<&'a str>,
    },
    /// A call of a tool. Its arguments are the next texts of the kind [`TextKind::ToolCall`].
    ToolCall {
        /// The id that the result repeats; empty if there is none.
        id: &'a str,
        /// The name of the tool.
        name: &'a str,
        /// The MCP server, if the provider calls one.
        server: Option<&'a str>,
    },
    /// A result of a tool. Its texts are the next ones of the kind [`TextKind::ToolResult`].
    ToolResult {
        /// The id of the call; empty if there is none.
        id: &'a str,
        /// The name of the tool; empty if only the call has it.
        name: &'a str,
        /// The MCP server, if the provider calls one.
        server: Option<&'a str>,
        /// Whether the result is marked as an error.
        is_error: bool,
        /// Whether the provider ran the tool, as part of an answer.
        is_hosted: bool,
    },
    /// An image, audio, a video or a file.
    Media {
        /// The inline data or the address, as it is in the request.
        data: &'a str,
        /// The number of decoded bytes; 0 if the data is not in the request.
        bytes: u64,
    },
}

/// Receives the parts of a section in their order.
pub(super) type Each<'e> = &'e mut dyn FnMut(Part<'_>);
