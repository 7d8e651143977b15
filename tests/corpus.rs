//! Recordings of real providers, read whole, cut anywhere and compressed. Counts, texts and facts must match those that
//! were checked by hand.
//!
//! `TOKENGAUGE_CORPUS` names the folder of the recordings. Without it these tests are skipped and listed as skipped. A
//! folder without recordings is an error. `tests/fixtures` also has every shape that the recordings show.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use tokengauge_core::call::{Channel, Dialect};
use tokengauge_test_support::skip::skipped;
use tokengauge_test_support::wire::encode::{CODINGS, encode};
use tokengauge_test_support::wire::reading::{Reading, read, read_cut};
use tokengauge_tokenizer as tokens;
use tokengauge_wire::{Decoder, Framing, Limits, ResponseHead};

/// Bodies up to this size are cut in two at every byte.
const CUT_EVERYWHERE: usize = 8 * 1024;
/// Larger bodies are cut at this many random places.
const RANDOM_CUTS: usize = 200;
/// The random cuts are distributed over this many readings.
const RANDOM_READINGS: usize = 10;

/// Members of `usage` that the input count of Anthropic, Bedrock and Gemini does not include.
const APART: [&str; 5] = [
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "cacheReadInputTokens",
    "cacheWriteInputTokens",
    "toolUsePromptTokenCount",
];
/// Counts in the bodies that `expected.json` does not name.
const COUNTS: [(&str, &str, u64); 11] = [
    ("ddpy-bedrock-meta-invoke-stream-0", "input", 10),
    ("llmgem-google-embedding-gemini-embedding-2-0", "input", 4),
    ("ollm-bedrock-invoke-model-metrics-0", "output", 17),
    ("ollm-bedrock-titan-invoke-model-guardrail-0", "output", 197),
    ("ollm-bedrock-titan-invoke-stream-guardrail-0", "input", 28),
    ("ollm-voyage-voyageai-rerank-legacy-0", "input", 57),
    (
        "rbllm-openrouter-rerank-reranking-with-openrouter-voyageai-rerank-2-5-lite-o-606251-0",
        "input",
        17,
    ),
    ("pydai-xai-history-seeding-parity-xai-current-0", "input", 8),
    (
        "pydai-xai-history-seeding-parity-xai-current-0",
        "output",
        249,
    ),
    ("pydai-xai-text-tool-round-parity-xai-pinned-0", "input", 7),
    (
        "pydai-xai-text-tool-round-parity-xai-pinned-0",
        "output",
        222,
    ),
];

struct Recording {
    name: String,
    dialect: Dialect,
    meta: Value,
    expected: Value,
    body: Vec<u8>,
}

/// The folder that `TOKENGAUGE_CORPUS` names. Without it the test is reported as skipped.
pub fn corpus() -> Option<PathBuf> {
    let Some(named) = std::env::var_os("TOKENGAUGE_CORPUS") else {
        skipped("TOKENGAUGE_CORPUS names no folder of recordings");
        return None;
    };
    let path = PathBuf::from(named);
    assert!(
        path.join("index.tsv").exists(),
        "TOKENGAUGE_CORPUS is {path:?}, which has no index.tsv: name the folder of the recordings, \
         or unset it to skip these tests"
    );
    Some(path)
}

fn recordings(corpus: &Path, folder: &str, dialect: Dialect) -> Vec<Recording> {
    let entries = std::fs::read_dir(corpus.join(folder)).expect("dialect folder");
    let mut found: Vec<Recording> = entries
        .map(|entry| {
            let path = entry.expect("entry").path();
            let json = |file: &str| {
                let text = std::fs::read(path.join(file)).expect(file);
                serde_json::from_slice::<Value>(&text).expect(file)
            };
            Recording {
                name: path
                    .file_name()
                    .expect("name")
                    .to_string_lossy()
                    .into_owned(),
                dialect,
                meta: json("meta.json"),
                expected: json("expected.json"),
                body: std::fs::read(path.join("response.body")).expect("body"),
            }
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

impl Recording {
    fn trusted(&self) -> bool {
        self.expected["trusted"] == true
    }

    /// A decoder for the body, with `coding` in addition to its existing encoding.
    fn decoder(&self, coding: Option<&str>) -> Decoder {
        let own = self.meta["content_encoding"].as_str();
        let encodings: Vec<&str> = own.into_iter().chain(coding).collect();
        let encodings = encodings.join(", ");
        if self.meta["framing"] == "websocket-ndjson" {
            let encoding = Some(encodings.as_str());
            return Decoder::with_framing(
                self.dialect,
                Framing::Ndjson,
                encoding,
                Limits::default(),
            );
        }
        let head = ResponseHead {
            status: self.meta["status"].as_u64().unwrap_or(200) as u16,
            content_type: self.meta["content_type"].as_str(),
            content_encoding: Some(&encodings)
                .filter(|e| !e.is_empty())
                .map(String::as_str),
        };
        Decoder::new(self.dialect, &head, Limits::default())
    }

    /// Differences between a reading and the values that were checked by hand.
    fn differences(&self, reading: &Reading) -> Vec<String> {
        let mut found = Vec::new();
        let mut differ = |field: &str, is: Value| {
            let should = &self.expected[field];
            if is != *should {
                found.push(format!("{field}: {is}, should be {should}"));
            }
        };
        let count = |channel| -> u64 {
            let texts = reading
                .segments
                .iter()
                .filter(|(at, _)| at.channel == channel);
            texts.map(|(_, text)| tokens::count(text)).sum()
        };
        let visible = count(Channel::Answer);
        let (reasoning, calls) = (count(Channel::Reasoning), count(Channel::ToolCall));
        differ("visible_tokens", visible.into());
        differ("reasoning_tokens", reasoning.into());
        differ("tool_call_tokens", calls.into());
        differ("output_tokens_total", (visible + reasoning + calls).into());
        differ("visible_text_sha256", sha256(&reading.visible()).into());
        differ("finish_reasons", reading.finish.values().cloned().collect());
        differ("model", reading.model.clone().into());
        differ("first_token_event_index", reading.first_token_event.into());
        differ("n_events", reading.messages.into());
        differ("n_comments", reading.comments.into());
        differ("stream", reading.is_stream.into());
        for (field, is) in [
            ("input", reading.usage.input),
            ("output", reading.usage.output),
        ] {
            let should = self.reported(field);
            if is != should {
                found.push(format!("reported {field}: {is:?}, should be {should:?}"));
            }
        }
        if reading.error.is_some() == self.expected["error"].is_null() {
            found.push(format!(
                "error: {:?}, should be {}",
                reading.error, self.expected["error"]
            ));
        }
        if reading.unparsed > 0 || reading.broken.is_some() {
            found.push(format!(
                "unparsed: {} {:?}",
                reading.unparsed, reading.broken
            ));
        }
        found
    }

    /// The provider's count by the definition of this project: input includes caches and what tools put into the
    /// prompt, and output includes reasoning, also where the provider counts them separately.
    fn reported(&self, field: &str) -> Option<u64> {
        if let Some((.., count)) = COUNTS
            .iter()
            .find(|(name, of, _)| *name == self.name && *of == field)
        {
            return Some(*count);
        }
        let usage = &self.expected["native_usage"];
        let count = whole(&self.expected[format!("native_{field}_tokens")])?;
        let apart: u64 = match field {
            "input" => APART.iter().filter_map(|name| whole(&usage[*name])).sum(),
            _ => {
                let reasoning = &usage["completion_tokens_details"]["reasoning_tokens"];
                let reasoning = whole(reasoning).unwrap_or(0);
                let prompt = whole(&usage["prompt_tokens"]).unwrap_or(0);
                let total = whole(&usage["total_tokens"]);
                if total == Some(prompt + count + reasoning) {
                    reasoning
                } else {
                    0
                }
            }
        };
        Some(count + apart)
    }

    fn cut_readings(&self) -> Vec<(String, Reading)> {
        let mut readings = vec![(
            "byte by byte".to_owned(),
            read_cut(self.decoder(None), &self.body, 1..self.body.len()),
        )];
        if self.body.len() <= CUT_EVERYWHERE {
            for at in 1..self.body.len() {
                readings.push((
                    format!("cut at {at}"),
                    read_cut(self.decoder(None), &self.body, [at]),
                ));
            }
        } else {
            let mut random = Random(self.body.len() as u64 | 1);
            for _ in 0..RANDOM_READINGS {
                let cuts: Vec<usize> = (0..RANDOM_CUTS / RANDOM_READINGS)
                    .map(|_| random.below(self.body.len()))
                    .collect();
                let name = format!("cut at {cuts:?}");
                readings.push((name, read_cut(self.decoder(None), &self.body, cuts)));
            }
        }
        readings
    }
}

/// Reads a whole number; some providers write `28.0`.
fn whole(value: &Value) -> Option<u64> {
    value.as_f64().map(|number| number as u64)
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Xorshift, which gives the same cuts in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

fn check(folder: &str, dialect: Dialect) {
    let Some(corpus) = corpus() else { return };
    let recordings = recordings(&corpus, folder, dialect);
    let mut failures = Vec::new();
    for recording in &recordings {
        let whole = read(recording.decoder(None), &recording.body);
        let mut wrong = if recording.trusted() {
            recording.differences(&whole)
        } else {
            Vec::new()
        };
        if recording.trusted() && whole.dialect != dialect {
            wrong.push(format!("dialect: {:?}", whole.dialect));
        }
        for (cut, reading) in recording.cut_readings() {
            if reading != whole {
                wrong.push(format!("differs when {cut}"));
                break;
            }
        }
        for coding in CODINGS {
            let encoded = encode(coding, &recording.body);
            let middle = encoded.len() / 2;
            let reading = read_cut(recording.decoder(Some(coding)), &encoded, [middle]);
            if reading != whole {
                wrong.push(format!("differs when encoded with {coding}"));
            }
        }
        if !wrong.is_empty() {
            failures.push(format!("{}\n    {}", recording.name, wrong.join("\n    ")));
        }
    }
    let trusted = recordings
        .iter()
        .filter(|recording| recording.trusted())
        .count();
    println!(
        "{folder}: {} recordings read, {trusted} of them with checked counts",
        recordings.len()
    );
    assert!(
        failures.is_empty(),
        "{} wrong:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

macro_rules! folders {
    ($($name:ident: $folder:literal as $dialect:ident;)*) => {
        $(#[test]
        fn $name() {
            check($folder, Dialect::$dialect);
        })*

        #[test]
        fn every_folder_of_the_corpus_is_read() {
            let Some(corpus) = corpus() else { return };
            let read = [$($folder,)* "other"];
            for entry in std::fs::read_dir(corpus).expect("corpus") {
                let entry = entry.expect("entry");
                if entry.file_type().expect("type").is_dir() {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    assert!(read.contains(&name.as_str()), "{name} is not read");
                }
            }
        }
    };
}

folders! {
    anthropic_complete: "anthropic-complete" as AnthropicComplete;
    anthropic_messages: "anthropic-messages" as Anthropic;
    azure_openai_chat: "azure-openai-chat" as OpenaiChat;
    bedrock_converse: "bedrock-converse" as BedrockConverse;
    bedrock_invoke: "bedrock-invoke" as BedrockInvoke;
    cohere_v1: "cohere-v1" as CohereV1;
    cohere_v2: "cohere-v2" as CohereV2;
    embeddings: "embeddings" as Embeddings;
    gemini: "gemini" as Gemini;
    ollama_chat: "ollama-chat" as Ollama;
    ollama_generate: "ollama-generate" as Ollama;
    openai_chat: "openai-chat" as OpenaiChat;
    openai_completions: "openai-completions" as OpenaiCompletions;
    openai_realtime: "openai-realtime" as OpenaiRealtime;
    openai_responses: "openai-responses" as OpenaiResponses;
    rerank: "rerank" as Rerank;
}
