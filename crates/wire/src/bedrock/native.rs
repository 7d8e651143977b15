//! Bedrock `invoke`: the native JSON of each model. In a stream it is base64-encoded inside
//! `{"bytes": …}`.

use super::super::emit;
use super::super::event_template::EventCache;
use super::super::events::{repaired, with_errors};
use super::super::find::{INVOCATION_METRICS, contains};
use super::super::json::{Count, List, Object, Text, parse};
use super::super::{Malformed, Reader, Registration, Sink};
use super::is_exception;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use tokengauge_core::call::{Channel, Dialect, Event, Usage};

const KEPT_BYTES: usize = 16 * 1024;

/// Reads InvokeModel. The first message shows which model's JSON it is.
#[derive(Default)]
pub struct Invoke {
    native: Option<NativeReader>,
    chunk: Vec<u8>,
    reported: Usage,
    ended: bool,
}

impl Reader for Invoke {
    fn event(&mut self, name: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        if is_exception(name) {
            sink(Event::Error(name));
            return Ok(());
        }
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.clear();
        let decoded = match plain(payload) {
            Some(bytes) => STANDARD.decode_vec(bytes, &mut chunk),
            None => STANDARD.decode_vec(&*parse::<ChunkEnvelope<'_>>(payload)?.bytes, &mut chunk),
        };
        let read = match decoded {
            Ok(()) => self.repaired_chunk(&chunk, sink),
            Err(_) => Err(Malformed),
        };
        if chunk.capacity() <= KEPT_BYTES {
            self.chunk = chunk;
        }
        read
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        match native(payload)? {
            Some(mut native) => native.reader.body(payload, sink),
            None => super::Converse.body(payload, sink),
        }
    }

    fn finish(&mut self, sink: Sink<'_>) {
        if let Some(native) = &mut self.native {
            native.reader.finish(sink);
        }
    }
}

impl Invoke {
    /// Repairs a chunk and finds errors in it. The decoder does this for other dialects, but does
    /// not see the contents of these chunks.
    fn repaired_chunk(&mut self, chunk: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let is_read = with_errors(true, "", chunk, sink, |sink| {
            self.chunk(chunk, sink).is_ok()
                || repaired(chunk).any(|text| self.chunk(&text, sink).is_ok())
        });
        is_read.then_some(()).ok_or(Malformed)
    }

    fn chunk(&mut self, chunk: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        if self.native.is_none() {
            self.native = native(chunk)?;
        }
        let native = self.native.as_mut().ok_or(Malformed)?;
        let reported = &mut self.reported;
        let mut over = false;
        native.event(chunk, &mut |event| match event {
            Event::End => over = true,
            Event::Usage(usage) => {
                reported.overlay(usage);
                sink(event);
            }
            _ => sink(event),
        })?;
        if contains(chunk, &INVOCATION_METRICS) {
            over |= self.metrics(chunk, sink);
        }
        if over && !self.ended {
            self.ended = true;
            sink(Event::End);
        }
        Ok(())
    }

    /// Reads Bedrock's own counts in the last chunk, if the model reported none.
    fn metrics(&mut self, chunk: &[u8], sink: Sink<'_>) -> bool {
        let Ok(MetricsChunk {
            metrics: Object(Some(metrics)),
        }) = parse(chunk)
        else {
            return false;
        };
        let mut usage: Usage = metrics.into();
        usage.overlay(self.reported);
        if usage != self.reported {
            emit::usage(sink, usage);
        }
        true
    }
}

struct NativeReader {
    reader: Box<dyn Reader>,
    cache: EventCache,
}

impl NativeReader {
    fn of(dialect: Dialect) -> NativeReader {
        let registration = <&Registration>::from(dialect);
        NativeReader {
            reader: (registration.reader)(),
            cache: EventCache::new(registration.template),
        }
    }

    fn own(reader: impl Reader + 'static) -> NativeReader {
        NativeReader {
            reader: Box::new(reader),
            cache: EventCache::new(None),
        }
    }

    fn event(&mut self, chunk: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        if self.cache.emit_cached("", chunk, sink) {
            return Ok(());
        }
        self.cache
            .read_and_learn(&mut *self.reader, "", chunk, sink)
    }
}

/// The value of `bytes` in `{"bytes":"…","p":"…"}` without escapes, which is the form that Amazon
/// sends. Any other form must be parsed.
fn plain(payload: &[u8]) -> Option<&[u8]> {
    let rest = payload.strip_prefix(b"{\"bytes\":\"")?;
    let (bytes, rest) = rest.split_at(memchr::memchr2(b'"', b'\\', rest)?);
    if rest == b"\"}" {
        return Some(bytes);
    }
    let padding = rest.strip_prefix(b"\",\"p\":\"")?.strip_suffix(b"\"}")?;
    padding
        .iter()
        .all(u8::is_ascii_alphanumeric)
        .then_some(bytes)
}

#[derive(Deserialize)]
struct ChunkEnvelope<'a> {
    #[serde(borrow)]
    bytes: Text<'a>,
}

#[derive(Deserialize)]
struct MetricsChunk {
    #[serde(default, rename = "amazon-bedrock-invocationMetrics")]
    metrics: Object<Metrics>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metrics {
    input_token_count: Count,
    output_token_count: Count,
    cache_read_input_token_count: Count,
    cache_write_input_token_count: Count,
}

impl From<Metrics> for Usage {
    fn from(sent: Metrics) -> Self {
        let cached_input = sent.cache_read_input_token_count.0;
        let cache_write = sent.cache_write_input_token_count.0;
        let from_cache = cached_input
            .unwrap_or(0)
            .saturating_add(cache_write.unwrap_or(0));
        Usage {
            input: sent
                .input_token_count
                .0
                .map(|n| n.saturating_add(from_cache)),
            cached_input,
            cache_write,
            output: sent.output_token_count.0,
            reasoning: None,
            ..Usage::default()
        }
    }
}

/// The reader for JSON that begins like `payload`. `None` if the payload is an error.
fn native(payload: &[u8]) -> Result<Option<NativeReader>, Malformed> {
    let keys: FamilyKeys<'_> = parse(payload)?;
    let family = keys.dialect().map(NativeReader::of).or_else(|| keys.own());
    match family {
        Some(native) => Ok(Some(native)),
        None if keys.message.is_some() => Ok(None),
        None => Err(Malformed),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FamilyKeys<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    completion: Option<IgnoredAny>,
    message_start: Option<IgnoredAny>,
    content_block_delta: Option<IgnoredAny>,
    output: Option<IgnoredAny>,
    output_text: Option<IgnoredAny>,
    results: Option<IgnoredAny>,
    generation: Option<IgnoredAny>,
    outputs: Option<IgnoredAny>,
    completions: Option<IgnoredAny>,
    #[serde(default)]
    choices: List<ChoiceKeys>,
    text: Option<IgnoredAny>,
    generations: Option<IgnoredAny>,
    #[serde(rename = "event_type")]
    event_type: Option<IgnoredAny>,
    #[serde(rename = "is_finished")]
    is_finished: Option<IgnoredAny>,
    embedding: Option<IgnoredAny>,
    embeddings: Option<IgnoredAny>,
    message: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct ChoiceKeys {
    text: Option<IgnoredAny>,
}

impl FamilyKeys<'_> {
    fn dialect(&self) -> Option<Dialect> {
        // The first readable chunk need not be the first chunk of the stream.
        let of_stream = ["message", "content_block_"];
        if &*self.kind == "error" || of_stream.iter().any(|kind| self.kind.starts_with(kind)) {
            return Some(Dialect::Anthropic);
        }
        if self.completion.is_some() {
            return Some(Dialect::AnthropicComplete);
        }
        if self.message_start.is_some()
            || self.content_block_delta.is_some()
            || self.output.is_some()
        {
            return Some(Dialect::BedrockConverse);
        }
        if let Some(choice) = self.choices.first() {
            return Some(match choice.text {
                Some(_) => Dialect::OpenaiCompletions,
                None => Dialect::OpenaiChat,
            });
        }
        if self.embedding.is_some() || self.embeddings.is_some() {
            return Some(Dialect::Embeddings);
        }
        let cohere = [
            &self.text,
            &self.generations,
            &self.event_type,
            &self.is_finished,
        ];
        cohere
            .iter()
            .any(|key| key.is_some())
            .then_some(Dialect::CohereV1)
    }

    /// The reader of a family that exists only on Bedrock.
    fn own(&self) -> Option<NativeReader> {
        if self.output_text.is_some() || self.results.is_some() {
            return Some(NativeReader::own(Titan));
        }
        if self.generation.is_some() {
            return Some(NativeReader::own(Llama));
        }
        if self.completions.is_some() {
            return Some(NativeReader::own(Jurassic));
        }
        self.outputs.is_some().then(|| NativeReader::own(Mistral))
    }
}

fn answer(sink: Sink<'_>, choice: u32, text: &str) {
    emit::delta(sink, emit::segment(choice, 0, Channel::Answer), text);
}

struct Titan;

impl Reader for Titan {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let sent: TitanText<'_> = parse(payload)?;
        answer(sink, 0, &sent.output_text);
        emit::finish(sink, 0, &sent.completion_reason);
        let mut generated = None;
        for (choice, result) in (0..).zip(sent.results.iter()) {
            answer(sink, choice, &result.output_text);
            emit::finish(sink, choice, &result.completion_reason);
            let sum = |count: u64| count.saturating_add(generated.unwrap_or(0));
            generated = result.token_count.0.map(sum).or(generated);
        }
        let usage = Usage {
            input: sent.input_text_token_count.0,
            output: sent.total_output_text_token_count.0.or(generated),
            ..Usage::default()
        };
        emit::usage(sink, usage);
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TitanText<'a> {
    #[serde(borrow, default)]
    output_text: Text<'a>,
    #[serde(borrow, default)]
    completion_reason: Text<'a>,
    #[serde(borrow, default)]
    results: List<TitanResult<'a>>,
    #[serde(default)]
    input_text_token_count: Count,
    #[serde(default)]
    total_output_text_token_count: Count,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TitanResult<'a> {
    #[serde(default)]
    token_count: Count,
    #[serde(borrow, default)]
    output_text: Text<'a>,
    #[serde(borrow, default)]
    completion_reason: Text<'a>,
}

struct Llama;

impl Reader for Llama {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let sent: Generation<'_> = parse(payload)?;
        answer(sink, 0, &sent.generation);
        emit::finish(sink, 0, &sent.stop_reason);
        let usage = Usage {
            input: sent.prompt_token_count.0,
            output: sent.generation_token_count.0,
            ..Usage::default()
        };
        emit::usage(sink, usage);
        Ok(())
    }
}

/// Token counts are cumulative from event to event.
#[derive(Deserialize)]
struct Generation<'a> {
    #[serde(borrow, default)]
    generation: Text<'a>,
    #[serde(default)]
    prompt_token_count: Count,
    #[serde(default)]
    generation_token_count: Count,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
}

/// AI21's Jurassic-2, which does not stream. Its counts are the lengths of lists of tokens.
struct Jurassic;

impl Reader for Jurassic {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let sent: Completions<'_> = parse(payload)?;
        let mut generated = None;
        for (choice, completion) in (0..).zip(sent.completions.iter()) {
            if let Some(data) = &completion.data.0 {
                answer(sink, choice, &data.text);
                generated = Some(generated.unwrap_or(0) + data.tokens.0);
            }
            if let Some(finish) = &completion.finish_reason.0 {
                emit::finish(sink, choice, &finish.reason);
            }
        }
        let usage = Usage {
            input: sent.prompt.0.map(|prompt| prompt.tokens.0),
            output: generated,
            ..Usage::default()
        };
        emit::usage(sink, usage);
        Ok(())
    }
}

#[derive(Deserialize)]
struct Completions<'a> {
    #[serde(borrow, default)]
    prompt: Object<Tokenised<'a>>,
    #[serde(borrow, default)]
    completions: List<Completion<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Completion<'a> {
    #[serde(borrow, default)]
    data: Object<Tokenised<'a>>,
    #[serde(borrow, default)]
    finish_reason: Object<FinishReason<'a>>,
}

#[derive(Deserialize)]
struct Tokenised<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(default)]
    tokens: Length,
}

#[derive(Deserialize)]
struct FinishReason<'a> {
    #[serde(borrow, default)]
    reason: Text<'a>,
}

#[derive(Default)]
struct Length(u64);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = List::<IgnoredAny>::deserialize(deserializer)?;
        Ok(Length(items.len() as u64))
    }
}

/// Mistral's first models.
struct Mistral;

impl Reader for Mistral {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let sent: Outputs<'_> = parse(payload)?;
        for (choice, output) in (0..).zip(sent.outputs.iter()) {
            answer(sink, choice, &output.text);
            emit::finish(sink, choice, &output.stop_reason);
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Outputs<'a> {
    #[serde(borrow, default)]
    outputs: List<Output<'a>>,
}

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    stop_reason: Text<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(payload: &str) -> Result<Vec<String>, Malformed> {
        let mut said = Vec::new();
        let sink: Sink<'_> = &mut |event| said.push(format!("{event:?}"));
        Invoke::default().event("chunk", payload.as_bytes(), sink)?;
        Ok(said)
    }

    #[test]
    fn counts_of_bedrock_are_read_of_messages_that_repeat_each_other() {
        let mut reader = Invoke::default();
        let mut usages = Vec::new();
        for count in 1..=4 {
            let inside = STANDARD.encode(format!(
                r#"{{"choices":[{{"delta":{{"content":"a"}}}}],"usage":{{"completion_tokens":{count}}},"amazon-bedrock-invocationMetrics":{{"inputTokenCount":8}}}}"#
            ));
            let payload = format!(r#"{{"bytes":"{inside}"}}"#);
            let sink: Sink<'_> = &mut |event| {
                if let Event::Usage(usage) = event {
                    usages.push((usage.input, usage.output));
                }
            };
            let read = reader.event("chunk", payload.as_bytes(), sink);
            read.expect("a message");
        }
        let both = (1..=4).flat_map(|count| [(None, Some(count)), (Some(8), Some(count))]);
        assert_eq!(usages, both.collect::<Vec<_>>());
    }

    #[test]
    fn a_message_is_read_however_its_object_is_written() {
        let inside = STANDARD.encode(r#"{"generation":" word","stop_reason":null}"#);
        let plain = read(&format!(r#"{{"bytes":"{inside}","p":"abcd"}}"#)).expect("a message");
        assert!(plain[0].contains(" word"), "{plain:?}");
        let escaped = inside.replace('=', r"\u003d");
        for other in [
            format!(r#"{{"bytes":"{inside}"}}"#),
            format!(r#"{{"p":"abcd","bytes":"{inside}"}}"#),
            format!(r#"{{ "bytes" : "{inside}" , "p" : "a\"b" }}"#),
            format!(r#"{{"bytes":"{inside}","p":"abcd","more":{{"bytes":"x"}}}}"#),
            format!(r#"{{"bytes":"{escaped}","p":"abcd"}}"#),
        ] {
            assert_eq!(read(&other), Ok(plain.clone()), "{other}");
        }
        for bad in [
            format!(r#"{{"bytes":"{inside}"#),
            format!(r#"{{"bytes":"{inside}","p":"abcd""#),
            r#"{"bytes":"***","p":"abcd"}"#.to_owned(),
        ] {
            assert_eq!(read(&bad), Err(Malformed), "{bad}");
        }
    }
}
