//! Exports call records as OTLP logs. The body of each log record is the JSON of the call log.

use super::client::Client;
use super::losses::{Gate, Losses};
use super::{Failed, bound, exporter};
use opentelemetry::logs::{AnyValue, LogRecord, Logger, LoggerProvider, Severity};
use opentelemetry::trace::{SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{
    BatchLogProcessor, LogBatch, LogExporter, SdkLogger, SdkLoggerProvider,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::call::{CallRecord, Outcome};
use tokengauge_meter::{FinishedCall, Subscriber};

const EVENT: &str = "tokengauge.call";

pub struct Logs {
    provider: SdkLoggerProvider,
    logger: SdkLogger,
    gate: Arc<Gate>,
    client: Client,
}

impl Logs {
    /// Starts the thread that sends. `OTEL_BLRP_*` sets its queue.
    ///
    /// # Errors
    /// Returns an error if the exporter cannot be created.
    pub fn start(
        client: Client,
        losses: Arc<Losses>,
        resource: &Resource,
    ) -> Result<Arc<Logs>, Failed> {
        let gate = Arc::new(Gate::new(bound("OTEL_BLRP_MAX_QUEUE_SIZE"), losses));
        let counted = Counted {
            exporter: exporter::logs(client.clone())?,
            gate: Arc::clone(&gate),
        };
        let provider = SdkLoggerProvider::builder()
            .with_resource(resource.clone())
            .with_log_processor(BatchLogProcessor::builder(counted).build())
            .build();
        Ok(Arc::new(Logs {
            logger: provider.logger("tokengauge"),
            provider,
            gate,
            client,
        }))
    }

    /// Sends queued records within `timeout`, and ends the thread. Returns whether all were
    /// delivered, and counts the rest as lost.
    pub fn shutdown(&self, timeout: Duration) -> bool {
        self.client.close();
        let ended = self.provider.shutdown_with_timeout(timeout).is_ok();
        self.gate.close() && ended
    }
}

impl Subscriber for Logs {
    fn finished(&self, finished_call: &Arc<FinishedCall>) {
        if !self.gate.enter(1) {
            return;
        }
        let record = &finished_call.record;
        let mut log = self.logger.create_log_record();
        log.set_event_name(EVENT);
        log.set_timestamp(finished_call.timestamps.wall(finished_call.ended));
        let severity = severity(record);
        log.set_severity_number(severity);
        log.set_severity_text(severity.name());
        // A record consists of numbers and strings, so serialization does not fail.
        if let Ok(body) = serde_json::to_value(record) {
            log.set_body(any(body));
        }
        if let Some(trace) = finished_call.trace {
            let span = SpanId::from(trace.server.span_id);
            let flags = TraceFlags::new(trace.server.flags);
            log.set_trace_context(TraceId::from(trace.server.trace_id), span, Some(flags));
        }
        self.logger.emit(log);
    }
}

/// Failures of the upstream are warnings; failures of the agent are not.
fn severity(record: &CallRecord) -> Severity {
    match record.outcome {
        Outcome::Complete | Outcome::ClientCancelled | Outcome::Rejected => Severity::Info,
        Outcome::HttpError if record.status.is_some_and(|status| status < 500) => Severity::Info,
        _ => Severity::Warn,
    }
}

/// Converts JSON to OTLP. Null is left out, because OTLP has no null.
fn any(value: serde_json::Value) -> AnyValue {
    use serde_json::Value;
    match value {
        Value::Null => AnyValue::String("".into()),
        Value::Bool(is) => AnyValue::Boolean(is),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => AnyValue::Int(whole),
            None => AnyValue::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => AnyValue::String(text.into()),
        Value::Array(items) => AnyValue::ListAny(Box::new(items.into_iter().map(any).collect())),
        Value::Object(fields) => {
            let known = fields.into_iter().filter(|(_, value)| !value.is_null());
            let known = known.map(|(name, value)| (name.into(), any(value)));
            AnyValue::Map(Box::new(known.collect()))
        }
    }
}

/// An exporter that tells the gate how many items have left the queue.
struct Counted {
    exporter: opentelemetry_otlp::LogExporter,
    gate: Arc<Gate>,
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").finish_non_exhaustive()
    }
}

impl LogExporter for Counted {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let items = batch.iter().count();
        let result = self.exporter.export(batch).await;
        self.gate.leave(items, result.is_ok());
        result
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
