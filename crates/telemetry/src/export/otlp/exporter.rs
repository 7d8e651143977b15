//! The exporters of opentelemetry-otlp with our HTTP client. The client sets address, headers and
//! framing, so the exporters get their settings from it instead of the variables. The client also
//! retries: the exporters' retries know neither gRPC's codes nor the end of the process, and do not
//! cover metrics.

use super::Failed;
use super::client::Client;
use opentelemetry_otlp::{
    Compression, LogExporter, Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig,
};

pub(super) fn spans(client: Client) -> Result<SpanExporter, Failed> {
    let settings = client.settings();
    let builder = SpanExporter::builder()
        .with_http()
        .with_endpoint(settings.url.to_string())
        .with_protocol(Protocol::HttpBinary)
        .with_retry_policy(RetryPolicy::disabled())
        .with_timeout(settings.timeout);
    let builder = if settings.gzip {
        builder.with_compression(Compression::Gzip)
    } else {
        builder
    };
    let built = builder.with_http_client(client).build();
    built.map_err(|error| Failed(error.to_string()))
}

pub(super) fn logs(client: Client) -> Result<LogExporter, Failed> {
    let settings = client.settings();
    let builder = LogExporter::builder()
        .with_http()
        .with_endpoint(settings.url.to_string())
        .with_protocol(Protocol::HttpBinary)
        .with_retry_policy(RetryPolicy::disabled())
        .with_timeout(settings.timeout);
    let builder = if settings.gzip {
        builder.with_compression(Compression::Gzip)
    } else {
        builder
    };
    let built = builder.with_http_client(client).build();
    built.map_err(|error| Failed(error.to_string()))
}
