//! The histograms of the GenAI conventions, with their bounds
//! (<https://github.com/open-telemetry/semantic-conventions/blob/v1.41.0/docs/gen-ai/gen-ai-metrics.md>).
//! Client metrics are measured on the agent's side of the proxy, server metrics on the upstream's
//! side.

use super::conventions::{self as names, Name};
use super::message::{self, Span};
use crate::export::exemplar::Trace;
use crate::export::label_values::ModelLabels;
use crate::export::otlp::Conventions;
use crate::export::registry::Histogram;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokengauge_core::call::{CallRecord, Dialect, Outcome};
use tokengauge_meter::FinishedCall;

const TOKENS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
const DURATION: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];
const PER_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
];
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];

/// Maximum number of series per metric; further calls share a series without models.
const MAX_SERIES: usize = 2_000;

struct Metric {
    name: &'static str,
    unit: &'static str,
    bounds: &'static [f64],
    help: &'static str,
}

const fn metric(
    name: &'static str,
    unit: &'static str,
    bounds: &'static [f64],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        unit,
        bounds,
        help,
    }
}

const METRICS: [Metric; 7] = [
    metric(
        "gen_ai.client.token.usage",
        "{token}",
        TOKENS,
        "Number of input and output tokens used.",
    ),
    metric(
        "gen_ai.client.operation.duration",
        "s",
        DURATION,
        "GenAI operation duration.",
    ),
    metric(
        "gen_ai.client.operation.time_to_first_chunk",
        "s",
        DURATION,
        "Time to the first chunk with generated text.",
    ),
    metric(
        "gen_ai.client.operation.time_per_output_chunk",
        "s",
        DURATION,
        "Time between chunks with generated text.",
    ),
    metric(
        "gen_ai.server.request.duration",
        "s",
        DURATION,
        "Time from the last byte of the request to the end of the response.",
    ),
    metric(
        "gen_ai.server.time_to_first_token",
        "s",
        FIRST_TOKEN,
        "Time from the last byte of the request to the first token.",
    ),
    metric(
        "gen_ai.server.time_per_output_token",
        "s",
        PER_TOKEN,
        "Time per output token after the first chunk, for successful responses.",
    ),
];
const USAGE: usize = 0;
const CLIENT_DURATION: usize = 1;
const FIRST_CHUNK: usize = 2;
const PER_CHUNK: usize = 3;
const SERVER_DURATION: usize = 4;
const SERVER_FIRST_TOKEN: usize = 5;
const SERVER_PER_TOKEN: usize = 6;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    operation: &'static str,
    provider: &'static str,
    request_model: Option<Arc<str>>,
    response_model: Option<Arc<str>>,
    endpoint: Option<String>,
    error: Option<String>,
    token: Option<&'static str>,
}

impl Identity {
    fn with_token(&self, token: &'static str) -> Identity {
        let token = Some(token);
        Identity {
            token,
            ..self.clone()
        }
    }

    fn with_error(&self, error: Option<String>) -> Identity {
        Identity {
            error,
            ..self.clone()
        }
    }
}

pub(super) struct GenAi {
    conventions: Conventions,
    /// Bounds the number of model names, which come from requests and need not exist.
    models: ModelLabels,
    series: Mutex<[BTreeMap<Identity, Histogram>; METRICS.len()]>,
}

impl GenAi {
    pub(super) fn new(conventions: Conventions, max_models: usize) -> GenAi {
        GenAi {
            conventions,
            models: ModelLabels::new(max_models),
            series: Mutex::default(),
        }
    }

    pub(super) fn finished(&self, finished_call: &FinishedCall) {
        let record = &finished_call.record;
        let Some(operation) = names::operation(record) else {
            return;
        };
        if record.dialect == Dialect::Unknown {
            return;
        }
        let accepted = record.status.is_some_and(|status| status < 300);
        let label = |model: &Option<String>| {
            let model = model.as_deref()?;
            Some(self.models.label(Some(model), accepted))
        };
        let identity = Identity {
            operation,
            provider: names::provider(record),
            request_model: label(&record.model_requested),
            response_model: label(&record.model),
            endpoint: record.endpoint.clone(),
            ..Identity::default()
        };
        let trace = Trace::of(finished_call);
        self.usage(&identity, record, trace);
        self.times(&identity, finished_call, trace);
    }

    fn usage(&self, identity: &Identity, record: &CallRecord, trace: Option<Trace>) {
        let (reported, ours) = (&record.tokens.reported, &record.tokens.normalised);
        let one = |tokens: Option<u64>, kind| {
            self.record(
                USAGE,
                identity.with_token(kind),
                tokens.map(|n| n as f64),
                1,
                trace,
            );
        };
        one(reported.input.or(ours.input), "input");
        one(reported.output.or(ours.output), "output");
    }

    fn times(&self, identity: &Identity, finished_call: &FinishedCall, trace: Option<Trace>) {
        let record = &finished_call.record;
        let ended = identity.with_error(names::error_type(record));
        self.record(
            CLIENT_DURATION,
            ended.clone(),
            record.seconds.duration,
            1,
            trace,
        );
        let sent = finished_call.timestamps.sent;
        let served =
            sent.map(|sent| tokengauge_core::call::seconds_between(sent, finished_call.ended));
        self.record(SERVER_DURATION, ended, served, 1, trace);
        if record.streamed != Some(true) {
            return;
        }
        self.record(FIRST_CHUNK, identity.clone(), record.seconds.ttft, 1, trace);
        let first = record.seconds.ttft_upstream;
        self.record(SERVER_FIRST_TOKEN, identity.clone(), first, 1, trace);
        let gaps = finished_call
            .inter_chunk
            .iter()
            .flat_map(|gaps| gaps.classes());
        for (gap, chunks) in gaps {
            self.record(
                PER_CHUNK,
                identity.clone(),
                Some(gap),
                u64::from(chunks),
                trace,
            );
        }
        let per_token = record.tps.output.map(|speed| 1.0 / speed);
        let per_token = per_token.filter(|_| record.outcome == Outcome::Complete);
        self.record(SERVER_PER_TOKEN, identity.clone(), per_token, 1, trace);
    }

    fn record(
        &self,
        metric: usize,
        identity: Identity,
        value: Option<f64>,
        count: u64,
        trace: Option<Trace>,
    ) {
        let Some(value) = value else {
            return;
        };
        let mut all = self.series.lock();
        let series = &mut all[metric];
        let full = series.len() >= MAX_SERIES && !series.contains_key(&identity);
        let identity = if full {
            Identity {
                request_model: None,
                response_model: None,
                endpoint: None,
                ..identity
            }
        } else {
            identity
        };
        let fresh = || Histogram::new(METRICS[metric].bounds.into());
        let histogram = series.entry(identity).or_insert_with(fresh);
        let exemplar = trace.map(|trace| trace.exemplar(value));
        histogram.record_many_with(value, count, exemplar);
    }

    pub(super) fn metrics(&self, span: &mut Span<'_>) -> Vec<v1::Metric> {
        let all = self.series.lock();
        let mut metrics = Vec::new();
        for (metric, series) in METRICS.iter().zip(&*all) {
            if series.is_empty() {
                continue;
            }
            let points = series.iter().map(|(identity, histogram)| {
                let key = format!("{}{identity:?}", metric.name);
                span.histogram(&key, self.attributes(identity), histogram.snapshot())
            });
            let points = points.collect();
            let data = span.histograms(points);
            metrics.push(message::of(
                metric.name.to_owned(),
                metric.help,
                metric.unit,
                data,
            ));
        }
        metrics
    }

    fn attributes(&self, identity: &Identity) -> Vec<KeyValue> {
        let mut attributes = Vec::with_capacity(8);
        let mut add = |name: Name, value: Option<Value>| {
            if let (Some(name), Some(value)) = (name.by(self.conventions), value) {
                attributes.push(message::attribute(name, value));
            }
        };
        let text = |value: &str| Some(Value::StringValue(value.to_owned()));
        add(names::OPERATION, text(identity.operation));
        add(names::PROVIDER, text(identity.provider));
        add(
            names::REQUEST_MODEL,
            identity.request_model.as_deref().and_then(text),
        );
        add(
            names::RESPONSE_MODEL,
            identity.response_model.as_deref().and_then(text),
        );
        let address = identity.endpoint.as_deref().map(names::address);
        add(
            names::SERVER_ADDRESS,
            address.and_then(|(host, _)| text(host)),
        );
        let port = address.and_then(|(_, port)| port);
        add(
            names::SERVER_PORT,
            port.map(|port| Value::IntValue(port.into())),
        );
        add(names::ERROR_TYPE, identity.error.as_deref().and_then(text));
        add(names::TOKEN_TYPE, identity.token.and_then(text));
        attributes
    }
}
