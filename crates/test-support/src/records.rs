//! Call records as working agents produce them: sessions of several calls, a few models on a few
//! upstreams, some reasoning, some errors. The records are always equal.

use crate::analysis;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_core::call::{
    Bytes, CallRecord, CostSource, CostUnavailable, Dialect, EngineReport, Normalised, Operation,
    Outcome, Seconds, SessionGuess, Source, SpeedSegment, Tokens, Tps, TpsUnavailable, Usage,
};
use tokengauge_core::upstream_facts::UpstreamFacts;

/// Pseudo-random numbers from a seed.
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// A number from 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number around 1, with a long upper tail.
    pub fn tail(&mut self) -> f64 {
        (0.35 * (self.share() + self.share() + self.share() - 1.5) * 2.0).exp()
    }

    pub fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }
}

/// Upstream, dialect, model, tokens per second, time to first token, USD per million.
type Model = (&'static str, Dialect, &'static str, f64, f64, Option<f64>);

const MODELS: [Model; 10] = [
    (
        "openai",
        Dialect::OpenaiChat,
        "gpt-5.1",
        92.0,
        0.62,
        Some(10.0),
    ),
    (
        "openai",
        Dialect::OpenaiResponses,
        "gpt-5.1-codex",
        78.0,
        1.40,
        Some(10.0),
    ),
    (
        "openai",
        Dialect::OpenaiChat,
        "gpt-4.1-nano",
        160.0,
        0.31,
        Some(0.4),
    ),
    (
        "anthropic",
        Dialect::Anthropic,
        "claude-sonnet-4-5",
        66.0,
        0.95,
        Some(15.0),
    ),
    (
        "anthropic",
        Dialect::Anthropic,
        "claude-haiku-4-5",
        138.0,
        0.48,
        Some(5.0),
    ),
    (
        "anthropic",
        Dialect::Anthropic,
        "claude-opus-4-1",
        41.0,
        1.60,
        Some(75.0),
    ),
    (
        "gemini",
        Dialect::Gemini,
        "gemini-2.5-pro",
        118.0,
        1.90,
        Some(10.0),
    ),
    (
        "gemini",
        Dialect::Gemini,
        "gemini-2.5-flash",
        205.0,
        0.42,
        Some(2.5),
    ),
    (
        "vllm",
        Dialect::OpenaiChat,
        "qwen3-coder-480b",
        34.0,
        0.22,
        None,
    ),
    (
        "vllm",
        Dialect::OpenaiChat,
        "llama-3.3-70b",
        27.0,
        0.18,
        None,
    ),
];
const AGENTS: [&str; 6] = [
    "claude-cli/2.0.31",
    "codex_cli_rs/0.58.0",
    "OpenAI/Python",
    "langchain/1.0",
    "pydantic-ai/1.12",
    "ai-sdk/5.0",
];

struct Session {
    name: String,
    model: Model,
    agent: &'static str,
    workload: &'static str,
    user: Option<String>,
    left: u64,
    context: u64,
}

/// Creates records in the order of their starts.
pub struct Records {
    random: SplitMix64,
    at_ms: u64,
    every_ms: f64,
    sessions: Vec<Session>,
    begun: u64,
}

impl Records {
    /// Records from `from` on, with one every `every_ms` milliseconds on average.
    pub fn new(from: SystemTime, every_ms: f64) -> Records {
        let since = from.duration_since(SystemTime::UNIX_EPOCH).expect("later");
        Records {
            random: SplitMix64(7),
            at_ms: since.as_millis() as u64,
            every_ms,
            sessions: Vec::new(),
            begun: 0,
        }
    }

    fn begin(&mut self) -> Session {
        self.begun += 1;
        let random = &mut self.random;
        let id = u128::from(random.draw()) << 64 | u128::from(random.draw());
        Session {
            name: uuid::Uuid::from_u128(id).to_string(),
            model: MODELS[random.below(MODELS.len() as u64) as usize],
            agent: random.of(&AGENTS),
            workload: random.of(&["chat", "agent", "agent", "batch"]),
            user: (random.below(3) > 0).then(|| format!("{:032x}", random.below(400) + 1)),
            left: 1 + random.below(40),
            context: 400 + random.below(6_000),
        }
    }
}

impl Iterator for Records {
    type Item = CallRecord;

    fn next(&mut self) -> Option<CallRecord> {
        self.at_ms += (self.every_ms * 2.0 * self.random.share()).round() as u64;
        while self.sessions.len() < 64 {
            let session = self.begin();
            self.sessions.push(session);
        }
        let at = self.random.below(64) as usize;
        let record = record(&mut self.random, self.at_ms, &mut self.sessions[at]);
        if self.sessions[at].left == 0 {
            self.sessions.swap_remove(at);
        }
        Some(record)
    }
}

fn record(random: &mut SplitMix64, at_ms: u64, session: &mut Session) -> CallRecord {
    session.left -= 1;
    let (upstream, dialect, model, speed, first, price) = session.model;
    let (low, high) = (random.draw(), random.draw());
    let id = uuid::Builder::from_unix_timestamp_millis(at_ms, &bytes(low, high)).into_uuid();
    let outcome = match random.below(1000) {
        0..=11 => Outcome::HttpError,
        12..=15 => Outcome::UpstreamReset,
        16..=27 => Outcome::ClientCancelled,
        28..=30 => Outcome::Timeout,
        _ => Outcome::Complete,
    };
    let answered = matches!(outcome, Outcome::Complete | Outcome::ClientCancelled);
    let reasoning = if random.below(3) == 0 {
        40 + random.below(900)
    } else {
        0
    };
    let answer = 12 + (260.0 * random.tail()) as u64;
    let output = if answered { answer + reasoning } else { 0 };
    let tps = speed * random.tail();
    let connect = 0.000_02 + 0.001 * random.share();
    let upload = 0.000_01 + 0.0004 * random.share();
    let ttft = connect + upload + first * random.tail();
    let decode = output as f64 / tps;
    let known = answered && answer > 40;
    let some = |value: f64| answered.then_some(value);
    session.context += output + random.below(1_500);
    let started = SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms);
    let cost = price
        .filter(|_| answered)
        .map(|price| (session.context as f64 * price / 5.0 + output as f64 * price) / 1e6);
    let mut record = CallRecord {
        id: id.to_string(),
        started_at: started.into(),
        route: upstream.to_owned(),
        upstream: upstream.to_owned(),
        upstream_facts: (upstream == "vllm").then(|| {
            Arc::new(UpstreamFacts {
                hardware: Some("8xH100".to_owned()),
                engine_version: Some(format!("0.{}", 10 + random.below(2))),
                ..UpstreamFacts::default()
            })
        }),
        endpoint: Some(format!("{upstream}.example:443")),
        dialect,
        operation: Operation::Chat,
        operation_class: Operation::Chat.class(),
        method: Some("POST".to_owned()),
        path: Some(
            random
                .of(&["/v1/chat/completions", "/v1/messages"])
                .to_owned(),
        ),
        model_requested: Some(model.to_owned()),
        model: answered.then(|| model.to_owned()),
        streamed: Some(answered),
        status: Some(if outcome == Outcome::HttpError {
            429
        } else {
            200
        }),
        outcome,
        error_type: (!answered).then(|| "rate_limit_error".to_owned()),
        finish_reasons: if answered {
            vec![random.of(&["stop", "tool_calls"]).to_owned()]
        } else {
            vec![]
        },
        tools: match output % 6 {
            _ if !answered => None,
            0 => Some("fetch".to_owned()),
            1 => Some("fetch+search".to_owned()),
            2 => Some("search".to_owned()),
            _ => None,
        },
        session: Some(session.name.clone()),
        session_guess: (random.below(5) == 0).then_some(SessionGuess::Prefix),
        agent: Some(session.agent.to_owned()),
        parent_agent: None,
        user: session.user.clone(),
        workload: Some(session.workload.to_owned()),
        experiment: None,
        variant: None,
        trace_id: Some(format!("{:016x}{:016x}", random.draw(), random.draw() | 1)),
        hop: (random.below(3) == 0).then(|| random.below(3) as u32),
        response_id: answered.then(|| format!("resp_{:016x}", random.draw())),
        service_tier: (random.below(4) == 0).then(|| "priority".to_owned()),
        reasoning_effort: (random.below(3) == 0).then(|| "high".to_owned()),
        served_by: (random.below(6) == 0).then(|| "Azure".to_owned()),
        warm_up: false,
        tokens: Tokens {
            normalised: Normalised {
                answer: answered.then_some(answer),
                reasoning: answered.then_some(reasoning),
                tool_call: answered.then_some(0),
                output: answered.then_some(output),
                input: None,
            },
            reported: Usage {
                input: answered.then_some(session.context),
                cached_input: answered.then_some(session.context / 2),
                cache_write: None,
                output: answered.then_some(output + 3),
                reasoning: answered.then_some(reasoning),
                ..Usage::default()
            },
            source: answered.then_some(Source::Reported),
        },
        seconds: Seconds {
            ttft: some(ttft),
            ttft_upstream: some(ttft - connect - upload),
            first_answer: some(ttft + reasoning as f64 / tps),
            connect: Some(connect),
            upload: Some(upload),
            last_token: some(ttft + decode),
            longest_gap: some(0.02 + 0.4 * random.share()),
            duration: Some(if answered {
                ttft + decode + 0.004
            } else {
                ttft
            }),
            agent_blocked: some(0.01 * random.share()),
            server_tools: some(0.0),
        },
        tps: Tps {
            output: known.then_some((output as f64 - 1.0) / decode),
            answer: known.then_some(tps),
            total: some(output as f64 / (ttft + decode + 0.004)),
            reported: known.then_some(tps * 1.1),
            prefill: some(session.context as f64 / ttft),
            unavailable: (!known).then_some(TpsUnavailable::TooFewTokens),
            total_unavailable: (!answered).then_some(TpsUnavailable::Unparsed),
        },
        frames: output,
        stalls: u64::from(random.below(20) == 0),
        segments: (decode > 20.0)
            .then_some(SpeedSegment {
                tokens: output,
                seconds: decode,
            })
            .into_iter()
            .collect(),
        first_token_event: answered.then_some(1),
        skipped_events: random.below(50) / 49,
        bytes: Bytes {
            request: 4 * session.context,
            response: 310 * output,
        },
        cost_usd: cost,
        cost_source: cost.map(|_| CostSource::List),
        cost_unavailable: cost.is_none().then_some(CostUnavailable::NoPrice),
        engine: (upstream == "vllm" && answered).then_some(EngineReport {
            prompt_tokens: Some(session.context),
            prompt_seconds: Some(ttft * 0.8),
            output_tokens: Some(output),
            output_seconds: Some(decode),
            load_seconds: None,
            total_seconds: None,
        }),
        team: Some(format!("team-{}", session.workload)),
        cost_center: (session.workload == "chat").then(|| "4711".to_owned()),
        tenant: Some(format!("tenant-of-{}", session.agent)),
        key_hash: session.user.clone(),
        prompt: None,
        wait: None,
        cache_break: None,
        retry_of: None,
        repetition: None,
        prompt_blocks: None,
        pod: None,
        scores: Vec::new(),
    };
    if answered {
        analysis::analyze(&mut record, session.context, output);
    }
    record
}

fn bytes(low: u64, high: u64) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&low.to_le_bytes());
    bytes[8..].copy_from_slice(&high.to_le_bytes()[..2]);
    bytes
}
