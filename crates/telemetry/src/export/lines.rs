//! Logs one line per finished call: `info`, or `warn` for errors of the upstream. Lines contain
//! only numbers and names.

use std::sync::Arc;
use tokengauge_core::call::Outcome;
use tokengauge_meter::{FinishedCall, Subscriber};

#[derive(Clone, Copy, Debug, Default)]
pub struct Lines;

impl Subscriber for Lines {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        if is_trouble(finished_call) {
            line(finished_call, |record, call| {
                tracing::warn!(
                    id = record.id,
                    route = record.route,
                    upstream = record.upstream,
                    endpoint = record.endpoint,
                    model = call.model,
                    status = record.status,
                    outcome = call.outcome,
                    error = record.error_type,
                    seconds = record.seconds.duration,
                    output_tokens = call.output,
                    trace_id = record.trace_id,
                    "call failed"
                );
            });
            return;
        }
        line(finished_call, |record, call| {
            tracing::info!(
                id = record.id,
                route = record.route,
                upstream = record.upstream,
                model = call.model,
                status = record.status,
                outcome = call.outcome,
                seconds = record.seconds.duration,
                ttft = record.seconds.ttft,
                output_tokens = call.output,
                tps = record.tps.output,
                trace_id = record.trace_id,
                "call"
            );
        });
    }
}

struct Call<'a> {
    model: Option<&'a str>,
    outcome: &'static str,
    output: Option<u64>,
}

fn line(
    finished_call: &FinishedCall,
    write: impl FnOnce(&tokengauge_core::call::CallRecord, Call<'_>),
) {
    let record = &finished_call.record;
    let asked = record.model_requested.as_deref();
    let call = Call {
        model: record.model.as_deref().or(asked),
        outcome: record.outcome.as_str(),
        output: record.tokens.normalised.output,
    };
    write(record, call);
}

fn is_trouble(finished_call: &FinishedCall) -> bool {
    let record = &finished_call.record;
    match record.outcome {
        Outcome::Complete | Outcome::ClientCancelled => false,
        Outcome::HttpError | Outcome::Rejected => record.status.is_some_and(|status| status >= 500),
        _ => true,
    }
}
