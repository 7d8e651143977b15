//! Sessions with injected breaks, waits and failures, in several dialects. The truth is known.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokengauge_analysis::{Analysis, BlockKey, Scope};
use tokengauge_core::call::{CallRecord, Dialect, Outcome};
use tokengauge_core::prompt::{PromptBreakCause, WaitKind};
use tokengauge_tokenizer as tokens;
use tokengauge_wire::request_texts;

const DIALECTS: [Dialect; 5] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiResponses,
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::BedrockConverse,
];

/// Repeatable random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn words(&mut self, number: u64) -> String {
        const WORDS: [&str; 12] = [
            "river",
            "boat",
            "carries",
            "the",
            "stone",
            "fn main()",
            "42",
            "{\"a\": 1}",
            "\n",
            "Größe",
            "語",
            "data.rs",
        ];
        let words = (0..number).map(|_| WORDS[self.below(12) as usize]);
        words.collect::<Vec<_>>().join(" ")
    }
}

/// One step of a conversation.
#[derive(Clone, Debug)]
enum Step {
    User(String),
    Answer(String),
    /// The id, the tool and the arguments.
    Call(String, String, Value),
    /// The id, the tool, the text, and whether the tool failed.
    Result(String, String, String, bool),
}

#[derive(Clone, Debug)]
struct Session {
    dialect: Dialect,
    system: String,
    tools: Vec<(String, String)>,
    steps: Vec<Step>,
}

impl Session {
    fn body(&self) -> Vec<u8> {
        let tool = |(name, about): &(String, String)| match self.dialect {
            Dialect::OpenaiChat => {
                json!({"type": "function", "function": {"name": name, "description": about}})
            }
            Dialect::OpenaiResponses => {
                json!({"type": "function", "name": name, "description": about})
            }
            Dialect::BedrockConverse => json!({"toolSpec": {"name": name, "description": about}}),
            _ => json!({"name": name, "description": about}),
        };
        let tools: Vec<Value> = self.tools.iter().map(tool).collect();
        let mut messages: Vec<Value> = self.steps.iter().map(|step| self.message(step)).collect();
        let body = match self.dialect {
            Dialect::OpenaiChat => {
                messages.insert(0, json!({"role": "system", "content": self.system}));
                json!({"model": "m", "messages": messages, "tools": tools})
            }
            Dialect::OpenaiResponses => {
                json!({"model": "m", "instructions": self.system, "input": messages, "tools": tools})
            }
            Dialect::Anthropic => {
                // Agents move the mark to the last message.
                if let Some(last) = messages
                    .last_mut()
                    .and_then(|last| last["content"].as_array_mut()?.last_mut())
                {
                    last["cache_control"] = json!({"type": "ephemeral"});
                }
                json!({"system": [{"type": "text", "text": self.system, "cache_control": {"type": "ephemeral"}}], "messages": messages, "tools": tools})
            }
            Dialect::Gemini => {
                json!({"systemInstruction": {"parts": [{"text": self.system}]}, "contents": messages, "tools": [{"functionDeclarations": tools}]})
            }
            _ => {
                let mark = json!({"cachePoint": {"type": "default"}});
                if let Some(last) = messages
                    .last_mut()
                    .and_then(|last| last["content"].as_array_mut())
                {
                    last.push(mark.clone());
                }
                json!({"system": [{"text": self.system}, mark], "messages": messages, "toolConfig": {"tools": tools}})
            }
        };
        serde_json::to_vec(&body).expect("JSON")
    }

    fn message(&self, step: &Step) -> Value {
        match (self.dialect, step) {
            (Dialect::OpenaiChat, Step::User(text)) => json!({"role": "user", "content": text}),
            (Dialect::OpenaiChat, Step::Answer(text)) => {
                json!({"role": "assistant", "content": text})
            }
            (Dialect::OpenaiChat, Step::Call(id, name, arguments)) => {
                json!({"role": "assistant", "content": null,
                "tool_calls": [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}}]})
            }
            (Dialect::OpenaiChat, Step::Result(id, _, text, _)) => {
                json!({"role": "tool", "tool_call_id": id, "content": text})
            }
            (Dialect::OpenaiResponses, Step::User(text)) => {
                json!({"role": "user", "content": text})
            }
            (Dialect::OpenaiResponses, Step::Answer(text)) => {
                json!({"role": "assistant", "content": [{"type": "output_text", "text": text}]})
            }
            (Dialect::OpenaiResponses, Step::Call(id, name, arguments)) => {
                json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments.to_string()})
            }
            (Dialect::OpenaiResponses, Step::Result(id, _, text, _)) => {
                json!({"type": "function_call_output", "call_id": id, "output": text})
            }
            (Dialect::Gemini, Step::User(text)) => {
                json!({"role": "user", "parts": [{"text": text}]})
            }
            (Dialect::Gemini, Step::Answer(text)) => {
                json!({"role": "model", "parts": [{"text": text}]})
            }
            (Dialect::Gemini, Step::Call(_, name, arguments)) => {
                json!({"role": "model", "parts": [{"functionCall": {"name": name, "args": arguments}}]})
            }
            (Dialect::Gemini, Step::Result(_, name, text, _)) => {
                json!({"role": "user", "parts": [{"functionResponse": {"name": name, "response": {"output": text}}}]})
            }
            (Dialect::Anthropic, Step::User(text)) => {
                json!({"role": "user", "content": [{"type": "text", "text": text}]})
            }
            (Dialect::Anthropic, Step::Answer(text)) => {
                json!({"role": "assistant", "content": [{"type": "text", "text": text}]})
            }
            (Dialect::Anthropic, Step::Call(id, name, arguments)) => {
                json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": arguments}]})
            }
            (Dialect::Anthropic, Step::Result(id, _, text, failed)) => {
                json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text, "is_error": failed}]})
            }
            (_, Step::User(text)) => json!({"role": "user", "content": [{"text": text}]}),
            (_, Step::Answer(text)) => json!({"role": "assistant", "content": [{"text": text}]}),
            (_, Step::Call(id, name, arguments)) => {
                json!({"role": "assistant", "content": [{"toolUse": {"toolUseId": id, "name": name, "input": arguments}}]})
            }
            (_, Step::Result(id, _, text, failed)) => {
                json!({"role": "user", "content": [{"toolResult": {"toolUseId": id, "content": [{"text": text}], "status": if *failed { "error" } else { "success" }}}]})
            }
        }
    }

    fn without_steps(&self) -> Session {
        Session {
            steps: Vec::new(),
            ..self.clone()
        }
    }

    fn counted(&self) -> u64 {
        let mut counted = 0;
        request_texts(self.dialect, &self.body(), &mut |text| {
            counted += tokens::count(text)
        });
        counted
    }
}

/// A call without its prompt.
#[derive(Clone)]
struct Sent {
    at: Instant,
    model: &'static str,
    upstream: &'static str,
    cached: u64,
    outcome: Outcome,
}

fn record(id: &str, sent: &Sent, input: u64, writes: bool) -> CallRecord {
    let mut record: CallRecord =
        serde_json::from_str(include_str!("record.json")).expect("a record");
    record.id = id.to_owned();
    record.model = Some(sent.model.to_owned());
    record.upstream = sent.upstream.to_owned();
    record.outcome = sent.outcome;
    record.tokens.reported.input = Some(input);
    record.tokens.reported.cached_input = Some(sent.cached);
    record.tokens.reported.cache_write = writes.then(|| input - sent.cached);
    record
}

struct Run {
    analysis: Analysis,
    calls: u64,
}

impl Run {
    fn new() -> Run {
        Run {
            analysis: Analysis::new(64 << 20, BlockKey::new(b"key")),
            calls: 0,
        }
    }

    /// Sends a turn that takes two seconds. The provider counts a tenth more tokens.
    fn send(&mut self, session: &Session, scope: &Scope<'_>, sent: &Sent) -> CallRecord {
        let body = session.body();
        let prompt = self
            .analysis
            .read(session.dialect, &body, scope, sent.at, &mut || {})
            .expect("a prompt");
        let input = session.counted() * 11 / 10;
        let writes = matches!(
            session.dialect,
            Dialect::Anthropic | Dialect::BedrockConverse
        );
        self.calls += 1;
        let mut record = record(&format!("call-{}", self.calls), sent, input, writes);
        let ended = sent.at + Duration::from_secs(2);
        let price = |record: &CallRecord, cached: u64| {
            let input = record.tokens.reported.input?;
            Some((input - cached) as f64 / 1e3 + cached as f64 / 1e4)
        };
        self.analysis.finish(prompt, &mut record, ended, price);
        let parts = record.prompt.as_ref().expect("parts");
        assert_eq!(parts.total(), session.counted(), "{:?}", session.dialect);
        record
    }
}

fn session(dialect: Dialect, random: &mut Random) -> Session {
    let tool = |at: u64, random: &mut Random| (format!("tool_{at}"), random.words(100));
    Session {
        dialect,
        system: format!(
            "You are an agent of the team. It is 12:00. {}",
            random.words(400)
        ),
        tools: (0..8).map(|at| tool(at, random)).collect(),
        steps: vec![Step::User(random.words(300))],
    }
}

/// Adds an answer with a tool call, and its result.
fn grow(session: &mut Session, turn: u64, random: &mut Random) {
    let (id, name) = (format!("call_{turn}"), format!("tool_{}", random.below(8)));
    session.steps.push(Step::Call(
        id.clone(),
        name.clone(),
        json!({"query": random.words(5)}),
    ));
    session
        .steps
        .push(Step::Result(id, name, random.words(1_000), false));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    System,
    ToolAdded,
    ToolRemoved,
    ToolsReordered,
    ToolEdited,
    Message,
    Evicted,
    Idle,
    Model,
    Upstream,
    None,
}

const BREAKS: [Break; 11] = [
    Break::System,
    Break::ToolAdded,
    Break::ToolRemoved,
    Break::ToolsReordered,
    Break::ToolEdited,
    Break::Message,
    Break::Evicted,
    Break::Idle,
    Break::Model,
    Break::Upstream,
    Break::None,
];

/// Applies a break. Returns the cause and the section, and how much of the prompt is still cached.
fn inject(
    kind: Break,
    session: &mut Session,
    sent: &mut Sent,
    random: &mut Random,
) -> (Option<PromptBreakCause>, Option<String>) {
    use PromptBreakCause::{Changed, Evicted, Idle, OtherModel, OtherUpstream};
    let name = |text: &str| Some(text.to_owned());
    match kind {
        Break::System => {
            let minute = 10 + random.below(50);
            session.system = session.system.replace("12:00", &format!("13:{minute}"));
            (Some(Changed), name("system"))
        }
        Break::ToolAdded => {
            session.tools.insert(
                random.below(3) as usize,
                ("tool_new".to_owned(), random.words(100)),
            );
            (Some(Changed), name("tools"))
        }
        Break::ToolRemoved => {
            session.tools.remove(random.below(3) as usize);
            (Some(Changed), name("tools"))
        }
        Break::ToolsReordered => {
            session.tools.swap(0, 5);
            (Some(Changed), name("tools"))
        }
        Break::ToolEdited => {
            let at = random.below(4) as usize;
            session.tools[at].1.push_str(" More words.");
            (Some(Changed), Some(format!("tool {}", session.tools[at].0)))
        }
        Break::Message => {
            let at = random.below(2) as usize * 2;
            match &mut session.steps[at] {
                Step::User(text) | Step::Result(_, _, text, _) => text.insert_str(0, "Edited. "),
                other => panic!("{other:?}"),
            }
            (Some(Changed), Some(format!("message {}", at + 1)))
        }
        Break::Evicted => (Some(Evicted), None),
        Break::Idle => {
            sent.at += Duration::from_secs(600);
            (Some(Idle), None)
        }
        Break::Model => {
            sent.model = "other";
            (Some(OtherModel), None)
        }
        Break::Upstream => {
            sent.upstream = "other";
            (Some(OtherUpstream), None)
        }
        Break::None => (None, None),
    }
}

/// Tokens that a provider could still read, as most count: in steps of 128.
fn readable(before: &Session, now: &Session) -> u64 {
    let texts = |session: &Session| {
        let mut canonical = Vec::new();
        canonical.extend(
            session
                .tools
                .iter()
                .map(|(name, about)| format!("{name}{about}")),
        );
        canonical.push(session.system.clone());
        canonical.extend(session.steps.iter().map(|step| format!("{step:?}")));
        canonical
    };
    let same = texts(before)
        .into_iter()
        .zip(texts(now))
        .take_while(|(one, other)| one == other);
    same.map(|(text, _)| tokens::count(&text)).sum::<u64>() / 128 * 128
}

#[test]
fn injected_breaks_have_their_cause_and_section_and_nothing_else_is_changed() {
    let mut random = Random(1);
    let (mut right, mut injected, mut wrong) = (0, 0, Vec::new());
    for round in 0..110 {
        let dialect = DIALECTS[round % DIALECTS.len()];
        let kind = BREAKS[round % BREAKS.len()];
        let mut run = Run::new();
        let mut session = session(dialect, &mut random);
        let named = format!("session-{round}");
        let scope = Scope {
            // Without a session, a change of the first message begins a conversation.
            session: (round % 2 == 0 || kind == Break::Message).then_some(&*named),
            agent: Some("coder"),
            ..Scope::default()
        };
        let mut sent = Sent {
            at: Instant::now(),
            model: "m",
            upstream: "u",
            cached: 0,
            outcome: Outcome::Complete,
        };
        for turn in 0..4 {
            let record = run.send(&session, &scope, &sent);
            assert_eq!(record.cache_break, None, "{dialect:?} {turn}");
            sent.cached = record.tokens.reported.input.expect("input") / 128 * 128;
            sent.at += Duration::from_secs(5);
            grow(&mut session, turn, &mut random);
        }
        let before = session.clone();
        let (cause, section) = inject(kind, &mut session, &mut sent, &mut random);
        let writes = matches!(dialect, Dialect::Anthropic | Dialect::BedrockConverse);
        sent.cached = match kind {
            Break::None => sent.cached,
            Break::Evicted | Break::Idle | Break::Model | Break::Upstream => 0,
            // What was written up to the mark after the system prompt.
            Break::Message if writes => readable(&before.without_steps(), &session),
            _ if writes => 0,
            _ => readable(&before, &session),
        };
        let found = run.send(&session, &scope, &sent).cache_break;
        injected += u64::from(cause.is_some());
        let told = found
            .as_ref()
            .map(|found| (found.cause, found.section.clone()));
        if told == cause.map(|cause| (cause, section.clone())) {
            right += u64::from(cause.is_some());
        } else {
            wrong.push(format!("{dialect:?} {kind:?}: {told:?}"));
        }
        let changed = told.is_some_and(|(cause, _)| cause == PromptBreakCause::Changed);
        assert!(
            !changed || cause == Some(PromptBreakCause::Changed),
            "{dialect:?} {kind:?}"
        );
        if let Some(found) = found {
            let cost = found.cost_usd.expect("a price");
            assert!(
                (cost - found.tokens as f64 * 0.9 / 1e3).abs() < 1e-6,
                "{cost}"
            );
            assert_eq!(found.change.is_some(), changed);
        }
    }
    assert!(
        right * 100 >= injected * 95,
        "{right} of {injected}: {wrong:#?}"
    );
}

#[test]
fn a_time_in_the_system_prompt_breaks_the_cache_of_each_call() {
    let mut random = Random(2);
    let mut run = Run::new();
    let mut changes = Vec::new();
    for number in 0..3 {
        let mut session = session(Dialect::OpenaiChat, &mut random);
        session.tools.clear();
        let named = format!("s{number}");
        let scope = Scope {
            session: Some(&named),
            agent: Some("coder"),
            ..Scope::default()
        };
        let mut sent = Sent {
            at: Instant::now(),
            model: "m",
            upstream: "u",
            cached: 0,
            outcome: Outcome::Complete,
        };
        if number == 0 {
            // The upstream caches the prompts of somebody else.
            let other = Scope {
                agent: Some("other"),
                ..Scope::default()
            };
            run.send(
                &session,
                &other,
                &Sent {
                    cached: 1_024,
                    ..sent.clone()
                },
            );
        }
        for turn in 0..4 {
            session.system = session.system.replace("12:0", &format!("12:{turn}"));
            session.system = format!("{turn} {}", session.system);
            let found = run.send(&session, &scope, &sent).cache_break;
            let section = found.as_ref().and_then(|found| found.section.as_deref());
            assert_eq!(section, (turn > 0).then_some("system"), "{number} {turn}");
            assert_eq!(
                found.as_ref().and_then(|found| found.block),
                (turn > 0).then_some(0)
            );
            changes.extend(found.and_then(|found| found.change.clone()));
            sent.at += Duration::from_secs(5);
            grow(&mut session, turn, &mut random);
        }
    }
    assert_eq!(changes.len(), 9);
    changes.dedup();
    assert_eq!(changes.len(), 1, "one change in all sessions");
}

#[test]
fn the_time_before_a_call_is_of_tools_people_or_the_agent() {
    for dialect in DIALECTS {
        let mut random = Random(3);
        let mut run = Run::new();
        let mut session = session(dialect, &mut random);
        let scope = Scope {
            key_hash: Some("k"),
            ..Scope::default()
        };
        let mut sent = Sent {
            at: Instant::now(),
            model: "m",
            upstream: "u",
            cached: 0,
            outcome: Outcome::Complete,
        };
        assert_eq!(run.send(&session, &scope, &sent).wait, None);
        for (id, name, failed) in [("a", "tool_1", true), ("b", "tool_2", false)] {
            session
                .steps
                .push(Step::Call(id.to_owned(), name.to_owned(), json!({})));
            session.steps.push(Step::Result(
                id.to_owned(),
                name.to_owned(),
                random.words(20),
                failed,
            ));
        }
        sent.at += Duration::from_secs(5);
        let record = run.send(&session, &scope, &sent);
        let wait = record.wait.expect("a wait");
        assert_eq!(
            (wait.kind, wait.seconds),
            (WaitKind::Tools, 3.0),
            "{dialect:?}"
        );
        assert_eq!(wait.tools, ["tool_1", "tool_2"], "{dialect:?}");
        let parts = record.prompt.expect("parts");
        let tool = |name: &str| {
            parts
                .tools
                .iter()
                .find(|tool| tool.name == name)
                .expect("a tool")
        };
        assert_eq!(
            (tool("tool_1").calls, tool("tool_1").resent_results),
            (1, 0)
        );
        assert!(tool("tool_1").new_results > 0 && tool("tool_1").schema > 50);
        let marks_errors = matches!(dialect, Dialect::Anthropic | Dialect::BedrockConverse);
        assert_eq!(
            tool("tool_1").failures,
            u64::from(marks_errors),
            "{dialect:?}"
        );
        session.steps.push(Step::Answer(random.words(10)));
        session.steps.push(Step::User(random.words(10)));
        sent.at += Duration::from_secs(9);
        let record = run.send(&session, &scope, &sent);
        let wait = record.wait.expect("a wait");
        assert_eq!(
            (wait.kind, wait.seconds, wait.tools.len()),
            (WaitKind::Human, 7.0, 0),
            "{dialect:?}"
        );
        let parts = record.prompt.expect("parts");
        let tool = parts
            .tools
            .iter()
            .find(|tool| tool.name == "tool_1")
            .expect("a tool");
        assert_eq!((tool.calls, tool.failures, tool.new_results), (0, 0, 0));
        assert!(tool.resent_results > 0);
    }
}

#[test]
fn the_same_request_after_a_failure_is_a_repetition() {
    let mut random = Random(4);
    let mut run = Run::new();
    let session = session(Dialect::Anthropic, &mut random);
    let scope = Scope::default();
    let mut sent = Sent {
        at: Instant::now(),
        model: "m",
        upstream: "u",
        cached: 0,
        outcome: Outcome::HttpError,
    };
    let first = run.send(&session, &scope, &sent);
    sent.at += Duration::from_secs(4);
    let second = run.send(&session, &scope, &sent);
    sent.at += Duration::from_secs(4);
    sent.outcome = Outcome::Complete;
    let stranger = run.send(
        &session,
        &Scope {
            key_hash: Some("k"),
            ..scope
        },
        &sent,
    );
    let third = run.send(&session, &scope, &sent);
    sent.at += Duration::from_secs(4);
    let fourth = run.send(&session, &scope, &sent);
    assert_eq!(first.retry_of, None);
    assert_eq!(second.retry_of, Some(first.id));
    assert_eq!(
        (stranger.retry_of, stranger.wait),
        (None, None),
        "another key"
    );
    assert_eq!(third.retry_of, Some(second.id));
    assert_eq!(third.wait.map(|wait| wait.kind), Some(WaitKind::Other));
    assert_eq!(fourth.retry_of, None);
}

#[test]
fn a_session_is_read_once_and_memory_has_a_limit() {
    let mut random = Random(5);
    let mut run = Run::new();
    let mut session = session(Dialect::OpenaiChat, &mut random);
    let mut sent = Sent {
        at: Instant::now(),
        model: "m",
        upstream: "u",
        cached: 0,
        outcome: Outcome::Complete,
    };
    for turn in 0..20 {
        let read = run.analysis.counts().read_sections;
        run.send(&session, &Scope::default(), &sent);
        let new = run.analysis.counts().read_sections - read;
        assert!(turn == 0 || new == 2, "{new}");
        sent.at += Duration::from_secs(5);
        grow(&mut session, turn, &mut random);
    }
    let blocks = |analysis: &mut Analysis, session: &Session, at| {
        let prompt = analysis.read(
            session.dialect,
            &session.body(),
            &Scope::default(),
            at,
            &mut || {},
        );
        let prompt = prompt.expect("a prompt");
        analysis.blocks(&prompt)
    };
    let again = blocks(&mut run.analysis, &session, sent.at);
    let mut fresh = Analysis::new(64 << 20, BlockKey::new(b"key"));
    assert_eq!(
        again,
        blocks(&mut fresh, &session, sent.at),
        "the same as read at once"
    );
    assert_eq!(again.len() as u64, session.counted() / 64);
    run.analysis.resize(20_000);
    run.send(&session, &Scope::default(), &sent);
    let counts = run.analysis.counts();
    assert!(
        counts.held_bytes <= 20_000 && counts.evicted > 0,
        "{counts:?}"
    );
}

#[test]
fn a_cache_without_bounds_would_save_what_turns_have_in_common() {
    let mut random = Random(6);
    let mut run = Run::new();
    let mut session = session(Dialect::OpenaiChat, &mut random);
    let mut sent = Sent {
        at: Instant::now(),
        model: "m",
        upstream: "u",
        cached: 0,
        outcome: Outcome::Complete,
    };
    let (mut same, mut all, mut last) = (0, 0, 0);
    for turn in 0..40 {
        run.send(&session, &Scope::default(), &sent);
        same += last;
        last = session.counted();
        all += last;
        sent.at += Duration::from_secs(5);
        grow(&mut session, turn, &mut random);
    }
    let potential = &run.analysis.potentials()[0];
    let share = same as f64 / all as f64;
    assert!(
        (potential.infinite - share).abs() < 0.05,
        "{potential:?} {share}"
    );
    assert_eq!((potential.counted, potential.calls), (0.0, 40));
}

#[test]
fn damaged_bodies_never_panic() {
    let mut random = Random(7);
    let mut analysis = Analysis::new(1 << 20, BlockKey::new(b"key"));
    for round in 0..2_000 {
        let mut body = session(DIALECTS[round % 5], &mut random).body();
        body.truncate(2_000);
        for _ in 0..random.below(6) {
            let at = random.below(body.len() as u64) as usize;
            body[at] = b"{}[]\",:\\x0\xff"[random.below(11) as usize];
        }
        body.truncate(random.below(2_000) as usize + 1);
        let dialect = DIALECTS[random.below(5) as usize];
        if let Some(prompt) = analysis.read(
            dialect,
            &body,
            &Scope::default(),
            Instant::now(),
            &mut || {},
        ) {
            let mut counted = 0;
            request_texts(dialect, &body, &mut |text| counted += tokens::count(text));
            assert_eq!(prompt.parts().total(), counted);
            let sent = Sent {
                at: Instant::now(),
                model: "m",
                upstream: "u",
                cached: 0,
                outcome: Outcome::Complete,
            };
            let mut record = record("r", &sent, 5_000, false);
            analysis.finish(prompt, &mut record, Instant::now(), |_, _| None);
        }
    }
}

#[test]
fn a_change_in_a_call_that_fails_is_the_cause_of_the_break_of_its_retry() {
    for dialect in DIALECTS {
        let mut random = Random(9);
        let mut run = Run::new();
        let mut session = session(dialect, &mut random);
        session.tools.clear();
        let scope = Scope::default();
        let mut sent = Sent {
            at: Instant::now(),
            model: "m",
            upstream: "u",
            cached: 0,
            outcome: Outcome::Complete,
        };
        let mut send = |session: &Session, cached, outcome| {
            (sent.cached, sent.outcome) = (cached, outcome);
            sent.at += Duration::from_secs(4);
            run.send(session, &scope, &sent)
        };
        send(&session, 0, Outcome::Complete);
        grow(&mut session, 1, &mut random);
        let known = send(&session, 2_000, Outcome::Complete);
        assert_eq!(known.cache_break, None);
        grow(&mut session, 2, &mut random);
        session.system = session.system.replace("12:00", "12:01");
        let failed = send(&session, 0, Outcome::HttpError);
        let retry = send(&session, 0, Outcome::Complete);
        assert_eq!(failed.cache_break, None);
        assert_eq!(retry.retry_of, Some(failed.id));
        let found = retry.cache_break.expect("a break");
        assert_eq!(found.cause, PromptBreakCause::Changed, "{dialect:?}");
        assert_eq!(found.section.as_deref(), Some("system"), "{dialect:?}");
    }
}
