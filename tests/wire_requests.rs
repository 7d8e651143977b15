//! Path and body of a request must give its dialect, model, stream flag and prompt. The requests are handwritten in
//! `fixtures/requests.json`, or come from recordings of real providers in the folder `TOKENGAUGE_CORPUS`. Without that
//! variable the recordings are skipped.

use crate::corpus::corpus;
use crate::wire_dialects::root;
use http::{Method, Uri};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tokengauge_core::call::Dialect;
use tokengauge_tokenizer as tokens;
use tokengauge_wire::{DIALECTS, detect, request_facts, request_texts};

#[derive(Deserialize)]
pub struct WrittenRequest {
    source: String,
    pub dialect: Dialect,
    pub path: String,
    model: Option<String>,
    stream: Option<bool>,
    texts: Vec<String>,
    pub body: Box<RawValue>,
}

pub fn written_requests() -> Vec<WrittenRequest> {
    let text = std::fs::read(root().join("requests.json")).expect("a file");
    serde_json::from_slice(&text).expect("requests")
}

#[test]
fn written_requests_tell_dialect_model_stream_and_prompt() {
    let requests = written_requests();
    for request in &requests {
        let (path, body) = (&request.path, request.body.get().as_bytes());
        assert!(request.source.contains("https://"), "{path} has a source");
        let found = detect(&Method::POST, &path.parse().expect("a path"));
        assert_eq!(found.dialect, request.dialect, "{path}");
        let facts = request_facts(found.dialect, body).expect("a readable body");
        assert_eq!(found.model.or(facts.model), request.model, "{path}");
        assert_eq!(found.stream.or(facts.stream), request.stream, "{path}");
        let mut texts = Vec::new();
        request_texts(found.dialect, body, &mut |text| texts.push(text.to_owned()));
        assert_eq!(texts, request.texts, "{path}");
    }
    let asked: BTreeSet<Dialect> = requests.iter().map(|request| request.dialect).collect();
    // Socket dialects take requests in messages.
    let sockets = [Dialect::OpenaiRealtime, Dialect::GeminiLive];
    let dialects = DIALECTS.iter().map(|registration| registration.dialect);
    let all: BTreeSet<Dialect> = dialects.filter(|it| !sockets.contains(it)).collect();
    assert_eq!(asked, all, "each dialect has a request");
}

/// OpenAI's example and token count for gpt-4o: "How to count tokens with tiktoken",
/// <https://github.com/openai/openai-cookbook/blob/main/examples/How_to_count_tokens_with_tiktoken.ipynb>. Each message
/// has three extra tokens and its role, each name one, and the answer three.
#[test]
fn the_texts_of_a_prompt_are_as_many_tokens_as_openai_counts() {
    let body = r#"{"model":"gpt-4o","messages":[
        {"role":"system","content":"You are a helpful, pattern-following assistant that translates corporate jargon into plain English."},
        {"role":"system","name":"example_user","content":"New synergies will help drive top-line growth."},
        {"role":"system","name":"example_assistant","content":"Things working well together will increase revenue."},
        {"role":"system","name":"example_user","content":"Let's circle back when we have more bandwidth to touch base on opportunities for increased leverage."},
        {"role":"system","name":"example_assistant","content":"Let's talk later when we're less busy about how to do better."},
        {"role":"user","content":"This late pivot means we don't have time to boil the ocean for the client deliverable."}]}"#;
    let mut counted = 0;
    request_texts(Dialect::OpenaiChat, body.as_bytes(), &mut |text| {
        counted += tokens::count(text);
    });
    let names = ["example_user", "example_assistant"].map(tokens::count);
    let around_names: u64 = names.iter().map(|name| 2 * (name + 1)).sum();
    assert_eq!(counted + 6 * 4 + around_names + 3, 124);
}

struct Request {
    folder: String,
    name: String,
    meta: Value,
    expected: Value,
    body: Option<Vec<u8>>,
}

fn folders(of: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(of).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.is_dir())
}

fn name(path: &Path) -> String {
    let name = path.file_name().expect("a name");
    name.to_string_lossy().into_owned()
}

fn requests(corpus: &Path) -> Vec<Request> {
    let dialects = folders(corpus).filter(|path| name(path) != "other");
    let recordings = dialects.flat_map(|folder| {
        let dialect = name(&folder);
        folders(&folder)
            .map(|path| request(dialect.clone(), &path))
            .collect::<Vec<_>>()
    });
    recordings.collect()
}

fn request(folder: String, path: &Path) -> Request {
    let json = |file: &str| {
        let text = std::fs::read(path.join(file)).expect(file);
        serde_json::from_slice::<Value>(&text).expect(file)
    };
    Request {
        folder,
        name: name(path),
        meta: json("meta.json"),
        expected: json("expected.json"),
        body: std::fs::read(path.join("request.json")).ok(),
    }
}

impl Request {
    fn dialect(&self) -> Dialect {
        match self.folder.as_str() {
            "anthropic-complete" => Dialect::AnthropicComplete,
            "anthropic-messages" => Dialect::Anthropic,
            "azure-openai-chat" | "openai-chat" => Dialect::OpenaiChat,
            "bedrock-converse" => Dialect::BedrockConverse,
            "bedrock-invoke" => Dialect::BedrockInvoke,
            "cohere-v1" => Dialect::CohereV1,
            "cohere-v2" => Dialect::CohereV2,
            "embeddings" => Dialect::Embeddings,
            "gemini" => Dialect::Gemini,
            "ollama-chat" | "ollama-generate" => Dialect::Ollama,
            "openai-completions" => Dialect::OpenaiCompletions,
            "openai-realtime" => Dialect::OpenaiRealtime,
            "openai-responses" => Dialect::OpenaiResponses,
            "rerank" => Dialect::Rerank,
            other => panic!("{other} is not known"),
        }
    }

    /// Writer's chat has the same path as Cohere's. Only the response distinguishes them.
    fn is_ambiguous(&self) -> bool {
        self.folder == "openai-chat" && self.meta["request_path"] == "/v1/chat"
    }

    /// The number of messages, if they are the whole input of the model.
    fn plain_messages(&self) -> Option<u64> {
        let body: Value = serde_json::from_slice(self.body.as_deref()?).ok()?;
        let model = self.expected["model"].as_str()?;
        let known = model.starts_with("gpt-4o") || model.starts_with("gpt-4.1");
        let openai = self.folder == "openai-chat" && self.meta["provider"] == "openai";
        let more = [
            "tools",
            "functions",
            "response_format",
            "web_search_options",
            "modalities",
        ];
        let alone = more.iter().all(|key| body[*key].is_null());
        let messages = body["messages"].as_array()?;
        let text = |part: &Value| part["type"] == "text";
        let plain = |message: &Value| {
            let content = &message["content"];
            let parts = content
                .as_array()
                .is_some_and(|parts| parts.iter().all(text));
            message["name"].is_null() && (content.is_string() || parts)
        };
        (known && openai && alone && messages.iter().all(plain)).then_some(messages.len() as u64)
    }

    fn path(&self) -> Option<Uri> {
        let path = self.meta["request_path"].as_str()?;
        path.starts_with('/')
            .then(|| path.parse().expect("a valid path"))
    }
}

#[test]
fn the_path_decides_the_dialect() {
    let Some(corpus) = corpus() else { return };
    let mut read = 0;
    for request in requests(&corpus) {
        let Some(path) = request.path().filter(|_| !request.is_ambiguous()) else {
            continue;
        };
        let found = detect(&Method::POST, &path);
        assert_eq!(found.dialect, request.dialect(), "{path} {}", request.name);
        read += 1;
    }
    assert!(read > 300, "{read} paths read");
}

#[test]
fn path_and_body_have_model_and_stream() {
    let Some(corpus) = corpus() else { return };
    let mut read = 0;
    for request in requests(&corpus) {
        let Some((path, body)) = request.path().zip(request.body.as_deref()) else {
            continue;
        };
        if request.dialect() == Dialect::OpenaiRealtime {
            continue;
        }
        let found = detect(&Method::POST, &path);
        let facts = request_facts(request.dialect(), body).expect("a readable body");
        let model = found.model.or(facts.model);
        let asked = request.meta["request_model"].as_str();
        let asked = asked.map(|name| name.strip_prefix("models/").unwrap_or(name));
        assert_eq!(model.as_deref(), asked, "{}", request.name);
        let answered = request.expected["error"].is_null();
        let stream = found.stream.or(facts.stream);
        if answered && stream.is_some() {
            assert_eq!(stream, request.meta["stream"].as_bool(), "{}", request.name);
        }
        read += 1;
    }
    assert!(read > 200, "{read} requests read");
}

/// OpenAI's chat models with this vocabulary add three tokens and a role to each message, and three before the answer.
#[test]
fn the_prompt_texts_are_what_openai_counts() {
    let Some(corpus) = corpus() else { return };
    let mut read = 0;
    for request in requests(&corpus) {
        let Some((body, messages)) = request.body.as_deref().zip(request.plain_messages()) else {
            continue;
        };
        let mut counted = 0;
        request_texts(request.dialect(), body, &mut |text| {
            counted += tokens::count(text);
        });
        let Some(reported) = request.expected["native_input_tokens"].as_u64() else {
            continue;
        };
        assert_eq!(counted + 4 * messages + 3, reported, "{}", request.name);
        read += 1;
    }
    assert!(read >= 5, "{read} requests read");
}
