//! The series of an upstream, route, model and workload, as handles, so that chunks need no
//! look-up.

use super::exemplar::Trace;
use super::label_values::{concurrency, context, status_class};
use super::labels::{
    Model, ModelConcurrency, ModelContext, ModelCost, ModelOutcome, ModelPromptPart, ModelReason,
    ModelTokens, Request,
};
use super::names::{self, Family};
use super::registry::{Counter, Gauge, Histogram, Registry, Sum};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;
use tokengauge_core::call::{
    CallRecord, Channel, OperationClass, Outcome, Source, TpsUnavailable, Usage,
};
use tokengauge_core::prompt::PromptPart;
use tokengauge_meter::FinishedCall;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub upstream: Arc<str>,
    pub route: Arc<str>,
    pub model: Arc<str>,
    pub workload: Arc<str>,
}

impl Identity {
    fn labels(&self) -> Model<'_> {
        Model {
            upstream: &self.upstream,
            route: &self.route,
            model: &self.model,
            workload: &self.workload,
        }
    }
}

pub struct Series {
    identity: Identity,
    output: [Counter; 3],
    /// Token counters that are updated when a call ends, in the order of [`AT_END`].
    at_end: [Counter; AT_END.len()],
    /// Tokens of prompts, in the order of [`PromptPart::ALL`].
    prompt: [Counter; PromptPart::ALL.len()],
    /// Counted tokens that are in no record of this model.
    retracted: Counter,
    requests: Handles<RequestKind, Counter>,
    unavailable: Handles<TpsUnavailable, Counter>,
    durations: Handles<Outcome, Histogram>,
    ttft: Handles<&'static str, Histogram>,
    speeds: Handles<&'static str, Histogram>,
    cost: Handles<CostKind, Sum>,
    stalls: Counter,
    repeating: Counter,
    repeated_tokens: Counter,
    unparsed: Counter,
    decode_tokens: Counter,
    priced_output: Counter,
    decode_seconds: Sum,
    ttft_upstream: Histogram,
    first_answer: Histogram,
    inter_token: Histogram,
    per_token: Histogram,
    ratio: Histogram,
    reported_speed: Histogram,
}

/// The labels of requests of one [`Series`]: outcome, whether streamed, class of the status, class
/// of the operation.
type RequestKind = (Outcome, bool, &'static str, OperationClass);
/// The labels of costs of one [`Series`]: class of the operation, source of the tokens, source of
/// the price.
type CostKind = (OperationClass, &'static str, &'static str);

/// Series by labels that are known when a call ends. The cache avoids building a registry key from
/// all labels. It is small, because these labels have few values.
struct Handles<K, C>(Mutex<Vec<(K, C)>>);

impl<K: Copy + PartialEq, C: Clone> Handles<K, C> {
    fn new() -> Handles<K, C> {
        Handles(Mutex::default())
    }

    /// The series of `kind`; `make` creates it at the first use.
    fn of(&self, kind: K, make: impl FnOnce() -> C) -> C {
        let mut known = self.0.lock();
        if let Some((_, series)) = known.iter().find(|(known, _)| *known == kind) {
            return series.clone();
        }
        let series = make();
        known.push((kind, series.clone()));
        series
    }
}

/// Outcomes that will occur sooner or later, with streamed and status. Their series exist from the
/// start, because otherwise `rate()` would miss the first call.
const EXPECTED: [(Outcome, bool, &str); 8] = [
    (Outcome::Complete, true, "2xx"),
    (Outcome::Complete, false, "2xx"),
    (Outcome::ClientCancelled, true, "2xx"),
    (Outcome::UpstreamReset, true, "2xx"),
    (Outcome::HttpError, false, "4xx"),
    (Outcome::HttpError, false, "5xx"),
    (Outcome::Timeout, false, "5xx"),
    (Outcome::Unreachable, false, "5xx"),
];

/// Output tokens per second of streams: current, peak and average.
pub const THROUGHPUT: [&Family<Gauge, Model<'static>>; 3] = [
    &names::OUTPUT_TOKENS_PER_SECOND_NOW,
    &names::OUTPUT_TOKENS_PER_SECOND_PEAK,
    &names::OUTPUT_TOKENS_PER_SECOND_SUSTAINED,
];

/// Tokens that are known only when a call ends: direction, channel and source.
const AT_END: [[&str; 3]; 5] = [
    ["input", "any", "reported"],
    ["input", "any", "counted"],
    ["cached_input", "any", "reported"],
    ["output", "any", "reported"],
    ["output", "reasoning", "reported"],
];

impl Series {
    pub fn new(registry: &Registry, identity: Identity) -> Series {
        let of = identity.labels();
        let tokens = |kind| registry.series(&names::TOKENS, &tokens_of(of, kind));
        let output = ["answer", "reasoning", "tool_call"]
            .map(|channel| tokens(["output", channel, "counted"]));
        let at_end = AT_END.map(tokens);
        for (outcome, streamed, status) in EXPECTED {
            let labels = Request {
                of,
                outcome,
                streamed,
                status,
                operation_class: OperationClass::Generation,
            };
            registry.series(&names::REQUESTS, &labels);
        }
        for reason in TpsUnavailable::ALL {
            registry.series(&names::TPS_UNAVAILABLE, &ModelReason { of, reason });
        }
        let histogram = |family| registry.series(family, &of);
        for gauge in THROUGHPUT {
            registry.series(gauge, &of);
        }
        Series {
            output,
            at_end,
            prompt: std::array::from_fn(|at| {
                let part = PromptPart::ALL[at];
                registry.series(&names::PROMPT_TOKENS, &ModelPromptPart { of, part })
            }),
            retracted: tokens(["output", "any", "retracted"]),
            requests: Handles::new(),
            unavailable: Handles::new(),
            durations: Handles::new(),
            ttft: Handles::new(),
            speeds: Handles::new(),
            cost: Handles::new(),
            stalls: registry.series(&names::STALLS, &of),
            repeating: registry.series(&names::REPEATING_CALLS, &of),
            repeated_tokens: registry.series(&names::REPEATED_TOKENS, &of),
            unparsed: registry.series(&names::UNPARSED_CALLS, &of),
            decode_tokens: registry.series(&names::DECODE_TOKENS, &of),
            priced_output: registry.series(&names::PRICED_OUTPUT_TOKENS, &of),
            decode_seconds: registry.series(&names::DECODE_SECONDS, &of),
            ttft_upstream: histogram(&names::TIME_TO_FIRST_TOKEN_UPSTREAM),
            first_answer: histogram(&names::TIME_TO_FIRST_ANSWER),
            inter_token: histogram(&names::INTER_TOKEN_LATENCY),
            per_token: histogram(&names::TIME_PER_OUTPUT_TOKEN),
            ratio: histogram(&names::TOKEN_RATIO),
            reported_speed: histogram(&names::REPORTED_TOKENS_PER_SECOND),
            identity,
        }
    }

    fn tokens(&self, channel: Channel, tokens: u64) {
        self.output[channel as usize].increment(tokens);
    }

    pub fn finished(&self, registry: &Registry, finished_call: &FinishedCall) {
        let record = &finished_call.record;
        let trace = Trace::of(finished_call);
        self.request(registry, record, trace);
        self.speed(registry, finished_call, trace);
        self.input_and_reported(&record.tokens.reported, record.tokens.normalised.input);
        if let Some(prompt) = &record.prompt {
            for (series, part) in self.prompt.iter().zip(PromptPart::ALL) {
                series.increment(prompt.get(*part));
            }
        }
        self.stalls.increment(record.stalls);
        if let Some(repetition) = &record.repetition {
            self.repeating.increment(1);
            self.repeated_tokens.increment(repetition.tokens);
        }
        let normalised = record.tokens.normalised.output.filter(|tokens| *tokens > 0);
        if record.outcome == Outcome::Complete
            && let (Some(reported), Some(normalised)) = (record.tokens.reported.output, normalised)
        {
            let ratio = reported as f64 / normalised as f64;
            record_known(&self.ratio, Some(ratio), trace);
        }
        if let (Some(cost), Some(price)) = (record.cost_usd, record.cost_source) {
            let operation_class = record.operation_class;
            let source = record.tokens.source.map_or("none", source_word);
            let price = price.as_str();
            let of = self.identity.labels();
            let labels = ModelCost {
                of,
                operation_class,
                source,
                price,
            };
            let make = || registry.series(&names::COST_USD, &labels);
            self.cost
                .of((operation_class, source, price), make)
                .add(cost);
            let output = record.tokens.reported.output;
            let output = output.or(record.tokens.normalised.output);
            if operation_class == OperationClass::Generation {
                self.priced_output.increment(output.unwrap_or(0));
            }
        }
    }

    fn request(&self, registry: &Registry, record: &CallRecord, trace: Option<Trace>) {
        let (of, outcome) = (self.identity.labels(), record.outcome);
        let streamed = record.streamed == Some(true);
        let status = status_class(record.status);
        let operation_class = record.operation_class;
        let labels = Request {
            of,
            outcome,
            streamed,
            status,
            operation_class,
        };
        let make = || registry.series(&names::REQUESTS, &labels);
        let kind = (outcome, streamed, status, operation_class);
        self.requests.of(kind, make).increment(1);
        if let Some(reason) = record.tps.unavailable {
            let make = || registry.series(&names::TPS_UNAVAILABLE, &ModelReason { of, reason });
            self.unavailable.of(reason, make).increment(1);
            let unparsed = reason == TpsUnavailable::Unparsed && operation_class.counts();
            self.unparsed.increment(u64::from(unparsed));
        }
        if let Some(duration) = record.seconds.duration {
            let make = || registry.series(&names::REQUEST_DURATION, &ModelOutcome { of, outcome });
            record_known(&self.durations.of(outcome, make), Some(duration), trace);
        }
    }

    fn speed(&self, registry: &Registry, finished_call: &FinishedCall, trace: Option<Trace>) {
        let record = &finished_call.record;
        let (of, seconds) = (self.identity.labels(), &record.seconds);
        if let Some(ttft) = seconds.ttft {
            let context = context(record);
            let labels = ModelContext { of, context };
            let make = || registry.series(&names::TIME_TO_FIRST_TOKEN, &labels);
            record_known(&self.ttft.of(context, make), Some(ttft), trace);
        }
        record_known(&self.ttft_upstream, seconds.ttft_upstream, trace);
        record_known(&self.first_answer, seconds.first_answer, trace);
        record_known(&self.reported_speed, record.tps.reported, trace);
        if let Some(speed) = record.tps.output {
            let concurrency = concurrency(finished_call.concurrency);
            let labels = ModelConcurrency { of, concurrency };
            let make = || registry.series(&names::OUTPUT_TOKENS_PER_SECOND, &labels);
            record_known(&self.speeds.of(concurrency, make), Some(speed), trace);
            record_known(&self.per_token, Some(1.0 / speed), trace);
            let latencies = finished_call
                .inter_token
                .iter()
                .flat_map(|kept| kept.classes());
            latencies.for_each(|(mean, tokens)| {
                let exemplar = trace.map(|trace| trace.exemplar(mean));
                let tokens = u64::from(tokens);
                self.inter_token.record_many_with(mean, tokens, exemplar);
            });
        }
        if let Some((tokens, seconds)) = finished_call.decode {
            self.decode_tokens.increment(tokens);
            self.decode_seconds.add(seconds);
        }
    }

    /// Counts the prompt's tokens and the tokens that the provider reported.
    fn input_and_reported(&self, reported: &Usage, counted: Option<u64>) {
        let reasoning = reported.reasoning.unwrap_or(0);
        let answer = reported.output.map(|all| all.saturating_sub(reasoning));
        let tokens = [
            reported.input,
            counted,
            reported.cached_input,
            answer,
            reported.reasoning,
        ];
        for (series, tokens) in self.at_end.iter().zip(tokens) {
            series.increment(tokens.unwrap_or(0));
        }
    }
}

fn tokens_of<'a>(of: Model<'a>, [direction, channel, source]: [&'a str; 3]) -> ModelTokens<'a> {
    ModelTokens {
        of,
        direction,
        channel,
        source,
    }
}

pub(super) fn record_known(histogram: &Histogram, value: Option<f64>, trace: Option<Trace>) {
    if let Some(value) = value {
        histogram.record_with(value, trace.map(|trace| trace.exemplar(value)));
    }
}

fn source_word(source: Source) -> &'static str {
    match source {
        Source::Reported => "reported",
        Source::Counted => "counted",
        Source::Estimated => "estimated",
    }
}

pub struct Watching {
    pub series: Arc<Series>,
}

impl tokengauge_meter::TokenObserver for Watching {
    fn tokens(&mut self, _: Instant, channel: Channel, tokens: u64) {
        self.series.tokens(channel, tokens);
    }

    fn retract(&mut self, tokens: u64) {
        self.series.retracted.increment(tokens);
    }
}
