//! Every dialect of the simulator, streamed or not, decodes to exactly what its truth log states.

use http::{Method, Request};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tokengauge_core::call::{Channel, Dialect, Event, Segment, Usage};
use tokengauge_sim::{Ending, Truth, TruthTokens};
use tokengauge_test_support::sim::{Sim, SimResponse, start};
use tokengauge_wire::{self as wire, Decoder, Framing, Limits, ResponseHead};

#[derive(Default)]
struct DecodedBody {
    texts: BTreeMap<Segment, String>,
    usage: Usage,
    finish: BTreeMap<u32, String>,
    model: Option<String>,
    errors: Vec<String>,
    tools: BTreeSet<String>,
    ended: bool,
    unparsed: u64,
}

impl DecodedBody {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Delta { segment, text } => self.texts.entry(segment).or_default().push_str(text),
            Event::Usage(usage) => self.usage.overlay(usage),
            Event::Finish { choice, reason } => {
                self.finish.insert(choice, reason.to_owned());
            }
            Event::ToolName { name, .. } => {
                self.tools.insert(name.to_owned());
            }
            Event::Model(model) => self.model = Some(model.to_owned()),
            Event::Error(kind) => self.errors.push(kind.to_owned()),
            Event::End => self.ended = true,
            Event::Unparsed => self.unparsed += 1,
            _ => {}
        }
    }

    fn tokens(&self, channel: Channel) -> u64 {
        let of = self
            .texts
            .iter()
            .filter(|(segment, _)| segment.channel == channel);
        of.map(|(_, text)| tokengauge_tokenizer::count(text)).sum()
    }
}

fn decode(dialect: Dialect, response: &SimResponse, piece: usize) -> (DecodedBody, Dialect) {
    let header = |name: &str| {
        response
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let head = ResponseHead {
        status: response.status.as_u16(),
        content_type: header("content-type"),
        content_encoding: header("content-encoding"),
    };
    let mut decoder = Decoder::new(dialect, &head, Limits::default());
    let mut found = DecodedBody::default();
    for bytes in response.body().chunks(piece) {
        decoder
            .push(bytes, &mut |event| found.take(event))
            .expect("readable");
    }
    decoder
        .finish(&mut |event| found.take(event))
        .expect("readable");
    (found, decoder.dialect())
}

struct Case {
    dialect: Dialect,
    streamed: &'static str,
    whole: &'static str,
    body: Value,
    reasoning: bool,
    tools: bool,
}

fn case(dialect: Dialect, streamed: &'static str, whole: &'static str, body: Value) -> Case {
    Case {
        dialect,
        streamed,
        whole,
        body,
        reasoning: true,
        tools: true,
    }
}

fn without(mut case: Case, reasoning: bool, tools: bool) -> Case {
    (case.reasoning, case.tools) = (reasoning, tools);
    case
}

const CHAT: &str = "/v1/chat/completions";

fn cases() -> Vec<Case> {
    let mut cases = openai();
    cases.extend(bedrock());
    cases.extend(others());
    cases
}

fn messages(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "Hello there, model"}]})
}

fn prompt() -> Value {
    json!({"model": "m-1", "prompt": "Hello there, model"})
}

fn openai() -> Vec<Case> {
    let asking = |mut body: Value| {
        body["stream_options"] = json!({"include_usage": true});
        body
    };
    let (text, input) = ("/v1/completions", json!({"model": "m-1", "input": "Hello"}));
    vec![
        case(Dialect::OpenaiChat, CHAT, CHAT, asking(messages("m-1"))),
        without(
            case(Dialect::OpenaiCompletions, text, text, asking(prompt())),
            false,
            false,
        ),
        case(Dialect::OpenaiChat, CHAT, CHAT, messages("magistral-1")),
        case(
            Dialect::OpenaiResponses,
            "/v1/responses",
            "/v1/responses",
            input,
        ),
    ]
}

fn bedrock() -> Vec<Case> {
    let invoke = |streamed, whole, rich| {
        without(
            case(Dialect::BedrockInvoke, streamed, whole, prompt()),
            rich,
            rich,
        )
    };
    vec![
        case(
            Dialect::BedrockConverse,
            "/model/m-1/converse-stream",
            "/model/m-1/converse",
            messages("m-1"),
        ),
        invoke(
            "/model/anthropic.claude-v1%3A0/invoke-with-response-stream",
            "/model/anthropic.claude-v1%3A0/invoke",
            true,
        ),
        invoke(
            "/model/amazon.nova-1/invoke-with-response-stream",
            "/model/amazon.nova-1/invoke",
            true,
        ),
        invoke(
            "/model/amazon.titan-1/invoke-with-response-stream",
            "/model/amazon.titan-1/invoke",
            false,
        ),
        invoke(
            "/model/meta.llama-1/invoke-with-response-stream",
            "/model/meta.llama-1/invoke",
            false,
        ),
        invoke(
            "/model/mistral.m-1/invoke-with-response-stream",
            "/model/mistral.m-1/invoke",
            false,
        ),
        invoke(
            "/model/cohere.r-1/invoke-with-response-stream",
            "/model/cohere.r-1/invoke",
            false,
        ),
    ]
}

fn others() -> Vec<Case> {
    let contents = json!({"contents": [{"parts": [{"text": "Hello there, model"}]}]});
    let gemini = |streamed| {
        let whole = "/v1beta/models/m-1:generateContent";
        case(Dialect::Gemini, streamed, whole, contents.clone())
    };
    let message = json!({"model": "m-1", "message": "Hello"});
    let inputs = json!({"inputs": "Hello"});
    vec![
        case(
            Dialect::Anthropic,
            "/v1/messages",
            "/v1/messages",
            messages("m-1"),
        ),
        gemini("/v1beta/models/m-1:streamGenerateContent?alt=sse"),
        gemini("/v1beta/models/m-1:streamGenerateContent"),
        case(Dialect::Ollama, "/api/chat", "/api/chat", messages("m-1")),
        without(
            case(Dialect::Ollama, "/api/generate", "/api/generate", prompt()),
            true,
            false,
        ),
        without(
            case(Dialect::CohereV1, "/v1/chat", "/v1/chat", message),
            false,
            true,
        ),
        case(Dialect::CohereV2, "/v2/chat", "/v2/chat", messages("m-1")),
        without(
            case(Dialect::Tgi, "/generate_stream", "/generate", inputs),
            false,
            false,
        ),
    ]
}

async fn ask(sim: &Sim, case: &Case, settings: &str, stream: bool) -> (SimResponse, Truth) {
    let path = if stream { case.streamed } else { case.whole };
    let mut body = case.body.clone();
    let by_path = ["/model/", "/models/", "/generate"]
        .iter()
        .any(|part| path.starts_with(part) || path.contains(":"));
    if !by_path || path.starts_with("/api/") {
        body["stream"] = stream.into();
    }
    let response = sim.post(path, settings, body).await;
    assert_eq!(
        response.status,
        200,
        "{path}: {}",
        String::from_utf8_lossy(&response.body())
    );
    let truth = sim.truth_of(&response).await;
    (response, truth)
}

fn check(case: &Case, label: &str, found: &DecodedBody, truth: &Truth) {
    let tokens = truth.tokens.expect("known");
    assert_eq!(found.unparsed, 0, "{label}");
    assert_eq!(
        found.tokens(Channel::Answer),
        tokens.answer,
        "{label}: answer"
    );
    assert_eq!(
        found.tokens(Channel::Reasoning),
        tokens.reasoning,
        "{label}: reasoning"
    );
    assert_eq!(
        found.tokens(Channel::ToolCall),
        tokens.tool_call,
        "{label}: tool calls"
    );
    // The simulator calls this tool if the request offers none.
    let called = (tokens.tool_call > 0).then_some("lookup");
    assert!(found.tools.iter().eq(called), "{label}: {:?}", found.tools);
    let reported = truth.usage.unwrap_or_default();
    assert_eq!(
        found.usage.output, reported.output,
        "{label}: usage {:?}",
        found.usage
    );
    assert_eq!(
        found.usage.input, reported.input,
        "{label}: usage {:?}",
        found.usage
    );
    assert_eq!(
        found.usage.reasoning, reported.reasoning,
        "{label}: usage {:?}",
        found.usage
    );
    let reasons: Vec<&String> = found.finish.values().collect();
    assert_eq!(
        reasons,
        truth.finish_reasons.iter().collect::<Vec<_>>(),
        "{label}"
    );
    assert_eq!(truth.outcome, Ending::Complete, "{label}");
    assert_eq!(truth.dialect, case.dialect, "{label}");
}

#[tokio::test]
async fn every_dialect_decodes_to_the_truth_streamed_and_whole_cut_anywhere() {
    let sim = start("ttft=1ms,gap=100us,tokens=41,reasoning=17,tool=9x2,per_frame=3").await;
    for case in cases() {
        let expected = TruthTokens {
            answer: 41,
            reasoning: if case.reasoning { 17 } else { 0 },
            tool_call: if case.tools { 18 } else { 0 },
            ..TruthTokens::default()
        };
        for (stream, settings) in [
            (true, ""),
            (true, "gzip"),
            (true, "burst=4"),
            (false, ""),
            (false, "gzip"),
        ] {
            let (response, truth) = ask(&sim, &case, settings, stream).await;
            let label = format!("{} streamed {stream} {settings}", case.streamed);
            assert_eq!(truth.streamed, stream, "{label}");
            let tokens = truth.tokens.expect("known");
            assert_eq!(
                (tokens.answer, tokens.reasoning, tokens.tool_call),
                (expected.answer, expected.reasoning, expected.tool_call),
                "{label}"
            );
            for piece in [1, 7, 1000, 1 << 20] {
                let (found, dialect) = decode(case.dialect, &response, piece);
                assert_eq!(dialect, case.dialect, "{label}");
                check(&case, &label, &found, &truth);
            }
        }
    }
}

#[tokio::test]
async fn detection_by_path_agrees_with_the_simulator() {
    for case in cases() {
        for path in [case.streamed, case.whole] {
            let request = Request::post(path).body(()).expect("a request");
            assert_eq!(
                wire::detect(&Method::POST, request.uri()).dialect,
                case.dialect,
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn without_usage_nothing_is_reported_and_length_has_each_dialects_finish_reason() {
    let sim = start("ttft=0ms,gap=0ms,tokens=40,usage=off,finish=length").await;
    for case in cases() {
        for stream in [true, false] {
            let (response, truth) = ask(&sim, &case, "", stream).await;
            let label = format!("{} streamed {stream}", case.streamed);
            let (found, _) = decode(case.dialect, &response, 4096);
            assert_eq!(truth.usage, None, "{label}");
            assert_eq!(
                (found.usage.input, found.usage.output),
                (None, None),
                "{label}"
            );
            check(&case, &label, &found, &truth);
            let reason = truth
                .finish_reasons
                .first()
                .map(|reason| reason.to_lowercase())
                .unwrap_or_default();
            let reasons = ["length", "max_tokens", "incomplete:max_output_tokens", ""];
            assert!(reasons.contains(&reason.as_str()), "{label}: {reason}");
        }
    }
}

#[tokio::test]
async fn an_error_event_is_one_in_every_dialect() {
    let sim = start("ttft=0ms,gap=0ms,tokens=40,error=@25").await;
    for case in cases() {
        let (response, truth) = ask(&sim, &case, "", true).await;
        let (found, _) = decode(case.dialect, &response, 4096);
        let label = case.streamed;
        assert!(!found.errors.is_empty(), "{label}");
        assert_eq!(found.tokens(Channel::Answer), 25, "{label}");
        assert_eq!(truth.tokens.expect("known").output, 25, "{label}");
        assert_eq!(truth.outcome, Ending::ErrorEvent, "{label}");
        assert!(truth.error_type.is_some(), "{label}");
    }
}

#[tokio::test]
async fn choices_interleave_and_each_is_counted_by_itself() {
    let sim = start("ttft=0ms,gap=0ms,tokens=30").await;
    for case in cases().into_iter().take(2) {
        let mut case = case;
        case.body["n"] = 3.into();
        let (response, truth) = ask(&sim, &case, "", true).await;
        let (found, _) = decode(case.dialect, &response, 333);
        assert_eq!(found.texts.len(), 3, "{}", case.streamed);
        assert_eq!(truth.tokens.expect("known").output, 90);
        check(&case, case.streamed, &found, &truth);
    }
}

#[tokio::test]
async fn a_realtime_session_streams_a_turn_for_every_response_asked_for() {
    use tokengauge_test_support::sim::realtime::Client;
    for modality in ["text", "audio"] {
        let sim = start("ttft=5ms,gap=1ms,tokens=33,tool=8").await;
        let mut client = Client::connect(&sim, "m-1").await;
        client
            .send(json!({"type": "session.update", "session": {"output_modalities": [modality]}}))
            .await;
        for _ in 0..2 {
            let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]});
            client
                .send(json!({"type": "conversation.item.create", "item": item}))
                .await;
            client.send(json!({"type": "response.create"})).await;
            client.until("response.done").await;
        }
        let mut decoder = Decoder::with_framing(
            Dialect::OpenaiRealtime,
            Framing::Ndjson,
            None,
            Limits::default(),
        );
        let mut found = DecodedBody::default();
        decoder
            .push(client.lines().as_bytes(), &mut |event| found.take(event))
            .expect("readable");
        decoder
            .finish(&mut |event| found.take(event))
            .expect("readable");
        assert_eq!(found.tokens(Channel::Answer), 66, "{modality}");
        assert_eq!(found.tokens(Channel::ToolCall), 16, "{modality}");
        assert_eq!(found.model.as_deref(), Some("m-1"));
        let truths = sim.simulator.truths();
        let turns: Vec<_> = truths
            .iter()
            .map(|truth| (truth.turn, truth.outcome))
            .collect();
        assert_eq!(
            turns,
            [(Some(2), Ending::Complete), (Some(1), Ending::Complete)]
        );
        assert_eq!(truths[0].tokens.expect("known").output, 41);
        assert!(truths[0].seconds.ttft.expect("streamed") >= 0.004);
    }
}
