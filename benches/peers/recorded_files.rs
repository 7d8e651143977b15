//! Files of recorded responses.

use crate::recorded::{Framing, Recorded};
use anyhow::Context;
use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Request path by name of the dialect in records. Dialects over WebSocket are omitted.
const PATHS: [(&str, &str); 20] = [
    ("anthropic", "/v1/messages"),
    ("anthropic_complete", "/v1/complete"),
    (
        "bedrock_converse",
        "/model/anthropic.claude-sonnet/converse-stream",
    ),
    (
        "bedrock_invoke",
        "/model/anthropic.claude-sonnet/invoke-with-response-stream",
    ),
    ("cohere_v1", "/v1/chat"),
    ("cohere_v2", "/v2/chat"),
    ("embeddings", "/v1/embeddings"),
    ("engine_generate", "/inference/v1/generate"),
    (
        "gemini",
        "/v1beta/models/gemini-flash:streamGenerateContent?alt=sse",
    ),
    ("gemini_interactions", "/v1beta/interactions"),
    ("llama_cpp", "/completion"),
    ("lm_studio", "/api/v1/chat"),
    ("mistral_conversations", "/v1/conversations"),
    ("ollama", "/api/chat"),
    ("openai_chat", "/v1/chat/completions"),
    ("openai_completions", "/v1/completions"),
    ("openai_media", "/v1/images/generations"),
    ("openai_responses", "/v1/responses"),
    ("rerank", "/v1/rerank"),
    ("tgi", "/generate_stream"),
];
/// Bytes per write of a body that is compressed or not a stream.
const PIECE: usize = 1024;
const EVENT_STREAM: &str = "application/vnd.amazon.eventstream";

pub fn dialects() -> impl Iterator<Item = &'static str> {
    PATHS.iter().map(|(dialect, _)| *dialect)
}

fn path_of(dialect: &str) -> Option<&'static str> {
    let found = PATHS.iter().find(|(name, _)| *name == dialect);
    found.map(|(_, path)| *path)
}

fn sorted_entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry?.path());
    }
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The responses of tests/fixtures, in folders named by dialect.
pub fn fixtures() -> anyhow::Result<Vec<Recorded>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut found = Vec::new();
    for (dialect, path) in PATHS {
        for file in sorted_entries(&root.join(dialect))? {
            let extension = file.extension().unwrap_or_default();
            let (framing, content_type) = match extension.to_str().unwrap_or_default() {
                "sse" => (Framing::Sse, "text/event-stream"),
                "ndjson" => (Framing::Ndjson, "application/x-ndjson"),
                "frames" | "chunks" => (Framing::EventStream, EVENT_STREAM),
                "json" if !name_of(&file).ends_with(".expected.json") => {
                    (Framing::Pieces(PIECE), "application/json")
                }
                _ => continue,
            };
            let mut body = fs::read(&file)?;
            match extension.to_str() {
                Some("frames") => body = packed(&body, str::to_owned)?,
                Some("chunks") => {
                    body = packed(&body, |native| {
                        format!(
                            "{{\"bytes\":\"{}\",\"p\":\"abc\"}}",
                            STANDARD.encode(native)
                        )
                    })?;
                }
                _ => {}
            }
            let name = format!("{dialect}/{}", name_of(&file));
            found.push(Recorded::new(
                (dialect.to_owned(), name, path.to_owned()),
                (content_type.to_owned(), None),
                framing,
                body,
            ));
        }
    }
    Ok(found)
}

/// A fixture's lines in Amazon's framing. A line has a type and a payload, or only a payload.
fn packed(lines: &[u8], payload: impl Fn(&str) -> String) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    for line in std::str::from_utf8(lines)?.lines() {
        let (kind, name, sent) = match (line.strip_prefix('!'), line.split_once(' ')) {
            (Some(exception), _) => {
                let (name, sent) = exception.split_once(' ').context("no payload")?;
                ("exception", name, sent.to_owned())
            }
            (None, Some((name, sent))) if !line.starts_with('{') => ("event", name, payload(sent)),
            _ => ("event", "chunk", payload(line)),
        };
        let header = |name: &str, value: &str| {
            let value = HeaderValue::String(value.to_owned().into());
            Header::new(name.to_owned(), value)
        };
        let message = Message::new(sent.into_bytes())
            .add_header(header(&format!(":{kind}-type"), name))
            .add_header(header(":content-type", "application/json"))
            .add_header(header(":message-type", kind));
        write_message_to(&message, &mut body)?;
    }
    Ok(body)
}

/// The responses of the corpus; none if `TOKENGAUGE_CORPUS` is not set.
pub fn corpus() -> anyhow::Result<Vec<Recorded>> {
    let Some(root) = std::env::var_os("TOKENGAUGE_CORPUS") else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for folder in sorted_entries(Path::new(&root))? {
        let dialect = match name_of(&folder).as_str() {
            "azure-openai-chat" => "openai_chat".to_owned(),
            "anthropic-messages" => "anthropic".to_owned(),
            "ollama-chat" | "ollama-generate" => "ollama".to_owned(),
            name => name.replace('-', "_"),
        };
        let Some(path) = path_of(&dialect) else {
            continue;
        };
        for recording in sorted_entries(&folder)? {
            let recording = of_corpus(&recording, (&dialect, path));
            found.extend(recording.with_context(|| folder.display().to_string())?);
        }
    }
    Ok(found)
}

/// A recording of a successful response; `None` for others.
fn of_corpus(
    folder: &Path,
    (dialect, usual_path): (&str, &str),
) -> anyhow::Result<Option<Recorded>> {
    let meta: Value = serde_json::from_slice(&fs::read(folder.join("meta.json"))?)?;
    if meta["status"] != 200 {
        return Ok(None);
    }
    let encoding = meta["content_encoding"].as_str().map(str::to_owned);
    let (framing, usual_type) = match meta["framing"].as_str() {
        Some("sse") => (Framing::Sse, "text/event-stream"),
        Some("ndjson") => (Framing::Ndjson, "application/x-ndjson"),
        Some("aws-eventstream") => (Framing::EventStream, EVENT_STREAM),
        _ => (Framing::Pieces(PIECE), "application/json"),
    };
    let framing = match encoding {
        Some(_) => Framing::Pieces(PIECE),
        None => framing,
    };
    let plain = |path: &&str| path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic());
    let path = meta["request_path"].as_str().filter(plain);
    let content_type = meta["content_type"].as_str().unwrap_or(usual_type);
    let path = path.unwrap_or(usual_path).to_owned();
    let body = fs::read(folder.join("response.body"))?;
    Ok(Some(Recorded::new(
        (dialect.to_owned(), name_of(folder), path),
        (content_type.to_owned(), encoding),
        framing,
        body,
    )))
}
