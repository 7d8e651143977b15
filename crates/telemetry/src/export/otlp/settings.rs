//! Settings from the standard variables of OpenTelemetry
//! (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/> and
//! <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>). Nothing is sent unless an
//! endpoint or an exporter is named. Invalid values are logged and ignored, as the specification
//! requires: telemetry must not prevent the start of the proxy.

use http::{HeaderName, HeaderValue, Uri};
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;
use tokengauge_net::tls::ClientTls;

const DEFAULT_HTTP: &str = "http://localhost:4318";
const DEFAULT_GRPC: &str = "http://localhost:4317";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);

pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub variable: String,
    /// What is wrong, which values are valid, and what is used instead. Never contains the value of
    /// a header.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Two spans per call.
    Traces,
    /// Every series of the table, and the histograms of the conventions.
    Metrics,
    /// One log record per call.
    Logs,
}

impl Signal {
    /// The part of a variable's name.
    fn variable(self) -> &'static str {
        match self {
            Signal::Traces => "TRACES",
            Signal::Metrics => "METRICS",
            Signal::Logs => "LOGS",
        }
    }

    /// The path that is appended to an endpoint for all signals.
    fn path(self) -> &'static str {
        match self {
            Signal::Traces => "/v1/traces",
            Signal::Metrics => "/v1/metrics",
            Signal::Logs => "/v1/logs",
        }
    }

    /// The path of the gRPC method.
    fn method(self) -> &'static str {
        match self {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        }
    }

    pub fn exporter(self) -> &'static str {
        match self {
            Signal::Traces => "otlp_traces",
            Signal::Metrics => "otlp_metrics",
            Signal::Logs => "otlp_logs",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Grpc,
    Http,
}

#[derive(Clone, Debug)]
pub struct Destination {
    /// The URL that messages are posted to.
    pub url: Uri,
    pub transport: Transport,
    /// Headers of each request. They often contain a key, so they are never shown.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub timeout: Duration,
    pub gzip: bool,
    /// Trusted roots and the client certificate.
    pub tls: ClientTls,
}

#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub traces: Option<Destination>,
    pub metrics: Option<Destination>,
    pub interval: Duration,
    /// Whether metrics have delta temporality instead of cumulative.
    pub delta: bool,
    /// Destination of call records.
    pub logs: Option<Destination>,
    /// Whether `traceparent` is read and written.
    pub propagates: bool,
    /// Whether the newest names are requested, which overrides the configuration.
    pub newest_names: bool,
}

impl Settings {
    /// Reads the variables, and returns the problems with them. `call_records` says whether the
    /// configuration asks for call records as logs.
    pub fn read(variables: Variables<'_>, call_records: bool) -> (Settings, Vec<Problem>) {
        let problems = RefCell::default();
        let reader = Reader {
            variables,
            problems: &problems,
        };
        if reader.truth("OTEL_SDK_DISABLED") {
            return (Settings::default(), Vec::new());
        }
        let interval = reader.text("OTEL_METRIC_EXPORT_INTERVAL");
        let interval = interval.map(|value| ("OTEL_METRIC_EXPORT_INTERVAL".to_owned(), value));
        let settings = Settings {
            traces: reader.destination(Signal::Traces, true),
            metrics: reader.destination(Signal::Metrics, true),
            interval: reader.milliseconds(interval, DEFAULT_INTERVAL),
            delta: reader.delta(),
            logs: reader.destination(Signal::Logs, call_records),
            propagates: reader.propagates(),
            newest_names: reader.newest_names(),
        };
        (settings, problems.into_inner())
    }
}

struct Reader<'a> {
    variables: Variables<'a>,
    problems: &'a RefCell<Vec<Problem>>,
}

impl Reader<'_> {
    fn problem(&self, variable: &str, reason: impl Into<String>) {
        let problem = Problem {
            variable: variable.to_owned(),
            reason: reason.into(),
        };
        let mut problems = self.problems.borrow_mut();
        // A variable for all signals is read once per signal.
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// The specification treats an empty variable as unset.
    fn text(&self, name: &str) -> Option<String> {
        let value = (self.variables)(name)?.trim().to_owned();
        (!value.is_empty()).then_some(value)
    }

    fn truth(&self, name: &str) -> bool {
        self.text(name)
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Name and value of the signal's variable, otherwise of the variable for all signals.
    fn of_signal(&self, signal: Signal, what: &str) -> Option<(String, String)> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.variable());
        let all = format!("OTEL_EXPORTER_OTLP_{what}");
        let named = |name: String| self.text(&name).map(|value| (name, value));
        named(own).or_else(|| named(all))
    }

    /// The destination of `signal`. `wanted` says whether an endpoint is enough to enable the
    /// signal.
    fn destination(&self, signal: Signal, wanted: bool) -> Option<Destination> {
        let endpoint = self.of_signal(signal, "ENDPOINT");
        let exporter = format!("OTEL_{}_EXPORTER", signal.variable());
        let asked = match self.text(&exporter).as_deref() {
            None => wanted && endpoint.is_some(),
            Some("otlp") => true,
            Some("none") => false,
            Some(other) => {
                let reason = format!("`{other}` is neither `otlp` nor `none`; nothing is sent");
                self.problem(&exporter, reason);
                false
            }
        };
        if !asked {
            return None;
        }
        let transport = self.transport(signal);
        Some(Destination {
            url: self.url(signal, transport, endpoint)?,
            transport,
            headers: self.headers(signal),
            timeout: self.milliseconds(self.of_signal(signal, "TIMEOUT"), DEFAULT_TIMEOUT),
            gzip: self.gzip(signal),
            tls: self.tls(signal)?,
        })
    }

    fn transport(&self, signal: Signal) -> Transport {
        match self.of_signal(signal, "PROTOCOL") {
            Some((_, protocol)) if protocol == "grpc" => Transport::Grpc,
            Some((name, other)) if other != "http/protobuf" => {
                let reason = "is neither `grpc` nor `http/protobuf`; `http/protobuf` is used";
                self.problem(&name, format!("`{other}` {reason}"));
                Transport::Http
            }
            _ => Transport::Http,
        }
    }

    /// A signal's endpoint is used unchanged; the path is appended to an endpoint for all signals.
    /// gRPC uses only the address.
    fn url(
        &self,
        signal: Signal,
        transport: Transport,
        endpoint: Option<(String, String)>,
    ) -> Option<Uri> {
        let (name, base) = endpoint.unwrap_or_else(|| {
            let grpc = transport == Transport::Grpc;
            let default = if grpc { DEFAULT_GRPC } else { DEFAULT_HTTP };
            ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), default.to_owned())
        });
        let own = name.contains(signal.variable());
        let base = match (transport, base.contains("://")) {
            (Transport::Grpc, false) if self.insecure(signal) => format!("http://{base}"),
            (Transport::Grpc, false) => format!("https://{base}"),
            _ => base,
        };
        let url = post_to(signal, transport, own, &base);
        if url.is_none() {
            let reason = "must be a URL such as `http://collector:4318`; nothing is sent";
            self.problem(&name, reason);
        }
        url
    }

    fn insecure(&self, signal: Signal) -> bool {
        self.of_signal(signal, "INSECURE")
            .is_some_and(|(_, value)| value.eq_ignore_ascii_case("true"))
    }

    /// Parses `key=value,key=value` with percent-encoded values.
    fn headers(&self, signal: Signal) -> Vec<(HeaderName, HeaderValue)> {
        let Some((name, list)) = self.of_signal(signal, "HEADERS") else {
            return Vec::new();
        };
        let members = list.split(',').filter(|member| !member.trim().is_empty());
        let headers: Vec<_> = members.map(header).collect();
        if headers.iter().any(Option::is_none) {
            let reason = "must be a list such as `api-key=…,tenant=…`; invalid entries are ignored";
            self.problem(&name, reason);
        }
        headers.into_iter().flatten().collect()
    }

    fn gzip(&self, signal: Signal) -> bool {
        match self.of_signal(signal, "COMPRESSION") {
            Some((_, value)) if value == "gzip" => true,
            Some((name, other)) if other != "none" => {
                let reason = format!("`{other}` is neither `gzip` nor `none`; `none` is used");
                self.problem(&name, reason);
                false
            }
            _ => false,
        }
    }

    /// `None` if a configured certificate cannot be used: then nothing is sent.
    fn tls(&self, signal: Signal) -> Option<ClientTls> {
        let file = |what| {
            let named = self.of_signal(signal, what);
            named.map(|(_, file)| PathBuf::from(file))
        };
        let (certificate, key) = (file("CLIENT_CERTIFICATE"), file("CLIENT_KEY"));
        if certificate.is_some() != key.is_some() {
            let reason = "requires OTEL_EXPORTER_OTLP_CLIENT_KEY, and vice versa; nothing is sent \
                with only one of them";
            self.problem("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", reason);
            return None;
        }
        Some(ClientTls {
            ca: file("CERTIFICATE"),
            identity: certificate.zip(key),
            server_name: None,
        })
    }

    fn milliseconds(&self, named: Option<(String, String)>, default: Duration) -> Duration {
        let Some((name, value)) = named else {
            return default;
        };
        match value.parse() {
            Ok(milliseconds) if milliseconds > 0 => Duration::from_millis(milliseconds),
            _ => {
                let taken = default.as_millis();
                let reason = format!("`{value}` is not a number of milliseconds; {taken} is used");
                self.problem(&name, reason);
                default
            }
        }
    }

    fn delta(&self) -> bool {
        let name = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
        let value = self.text(name).map(|value| value.to_ascii_lowercase());
        match value.as_deref() {
            None | Some("cumulative") => false,
            // `delta` and `lowmemory` differ only for instruments that tokengauge does not use.
            Some("delta" | "lowmemory") => true,
            Some(other) => {
                let reason = "is not `cumulative`, `delta` or `lowmemory`; `cumulative` is used";
                self.problem(name, format!("`{other}` {reason}"));
                false
            }
        }
    }

    /// Whether the conventions' opt-in variable asks for the newest GenAI names.
    fn newest_names(&self) -> bool {
        let named = self
            .text("OTEL_SEMCONV_STABILITY_OPT_IN")
            .unwrap_or_default();
        let mut named = named.split(',').map(str::trim);
        named.any(|name| name == "gen_ai_latest_experimental")
    }

    /// Whether trace context is propagated. Baggage is always forwarded unchanged.
    fn propagates(&self) -> bool {
        let name = "OTEL_PROPAGATORS";
        let Some(list) = self.text(name) else {
            return true;
        };
        let named: Vec<_> = list.split(',').map(str::trim).collect();
        let known = ["tracecontext", "baggage", "none"];
        for other in named.iter().filter(|name| !known.contains(name)) {
            let reason = "is not `tracecontext`, `baggage` or `none`; the value is ignored";
            self.problem(name, format!("`{other}` {reason}"));
        }
        named.contains(&"tracecontext")
    }
}

fn post_to(signal: Signal, transport: Transport, own: bool, base: &str) -> Option<Uri> {
    let parsed: Uri = base.parse().ok()?;
    let (scheme, authority) = (parsed.scheme_str()?, parsed.authority()?);
    let path = match transport {
        Transport::Grpc => signal.method().to_owned(),
        Transport::Http if own => parsed.path().to_owned(),
        Transport::Http => format!("{}{}", parsed.path().trim_end_matches('/'), signal.path()),
    };
    let url = format!("{scheme}://{authority}{path}").parse().ok()?;
    ["http", "https"].contains(&scheme).then_some(url)
}

fn header(member: &str) -> Option<(HeaderName, HeaderValue)> {
    let (key, value) = member.split_once('=')?;
    let mut value = HeaderValue::from_bytes(&decoded(value.trim())?).ok()?;
    value.set_sensitive(true);
    Some((key.trim().to_ascii_lowercase().parse().ok()?, value))
}

pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let pair = [bytes.next()?, bytes.next()?];
        let digits = std::str::from_utf8(&pair).ok()?;
        decoded.push(u8::from_str_radix(digits, 16).ok()?);
    }
    Some(decoded)
}

#[cfg(test)]
mod tests;
