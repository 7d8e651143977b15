use super::*;

fn read(variables: &[(&str, &str)]) -> (Settings, Vec<Problem>) {
    let named = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Settings::read(&named, false)
}

fn settings(variables: &[(&str, &str)]) -> Settings {
    let (settings, problems) = read(variables);
    assert_eq!(problems, []);
    settings
}

const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base/");
const GRPC: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");

fn url(destination: &Option<Destination>) -> String {
    let destination = destination.as_ref().expect("a destination");
    destination.url.to_string()
}

#[test]
fn nothing_is_sent_unless_an_endpoint_or_an_exporter_is_named() {
    let off = settings(&[("OTEL_SERVICE_NAME", "x")]);
    assert!(off.traces.is_none() && off.metrics.is_none() && off.logs.is_none());
    let disabled = settings(&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")]);
    assert!(disabled.traces.is_none() && disabled.metrics.is_none());
    let some = settings(&[ENDPOINT, ("OTEL_METRICS_EXPORTER", "none")]);
    assert!(some.traces.is_some() && some.metrics.is_none());
    let named = settings(&[("OTEL_TRACES_EXPORTER", "otlp")]);
    assert_eq!(url(&named.traces), "http://localhost:4318/v1/traces");
    assert!(named.metrics.is_none());
    let empty = settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "  ")]);
    assert!(empty.traces.is_none());
}

#[test]
fn call_records_go_out_only_where_they_are_asked_for() {
    assert!(settings(&[ENDPOINT]).logs.is_none());
    let asked = settings(&[ENDPOINT, ("OTEL_LOGS_EXPORTER", "otlp")]);
    assert_eq!(url(&asked.logs), "http://c:4318/base/v1/logs");
    let endpoint = |name: &str| (name == ENDPOINT.0).then(|| ENDPOINT.1.to_owned());
    let (configured, _) = Settings::read(&endpoint, true);
    assert!(configured.logs.is_some());
}

#[test]
fn a_signals_own_endpoint_is_taken_as_it_is_and_the_common_one_gets_its_path() {
    let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/x");
    let both = settings(&[ENDPOINT, own]);
    assert_eq!(url(&both.traces), "https://t/x");
    assert_eq!(url(&both.metrics), "http://c:4318/base/v1/metrics");
    let grpc = settings(&[ENDPOINT, GRPC]);
    let method = "opentelemetry.proto.collector.trace.v1.TraceService/Export";
    assert_eq!(url(&grpc.traces), format!("http://c:4318/{method}"));
    let plain = ("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317");
    let secure = settings(&[plain, GRPC]);
    assert_eq!(url(&secure.traces), format!("https://c:4317/{method}"));
    let insecure = ("OTEL_EXPORTER_OTLP_INSECURE", "true");
    let open = settings(&[plain, GRPC, insecure]);
    assert_eq!(url(&open.traces), format!("http://c:4317/{method}"));
}

#[test]
fn a_signals_own_settings_go_before_the_common_ones() {
    let all = settings(&[
        ENDPOINT,
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "Api-Key=a%3Db%2C,x-tenant = t",
        ),
        ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-own=1"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "k.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "c.pem"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "Delta"),
    ]);
    let (traces, metrics) = (all.traces.expect("traces"), all.metrics.expect("metrics"));
    assert_eq!(traces.headers[0].0, "api-key");
    assert_eq!(traces.headers[0].1, "a=b,");
    assert_eq!((traces.headers.len(), metrics.headers.len()), (2, 1));
    assert!(
        !format!("{traces:?}").contains("a=b,"),
        "keys are not shown"
    );
    assert_eq!(traces.timeout, Duration::from_millis(2500));
    assert_eq!((traces.gzip, metrics.gzip), (true, false));
    assert_eq!(traces.transport, Transport::Http);
    assert_eq!(metrics.transport, Transport::Grpc);
    assert_eq!(traces.tls.ca, Some("ca.pem".into()));
    assert_eq!(traces.tls.identity, Some(("c.pem".into(), "k.pem".into())));
    assert_eq!((all.interval, all.delta), (Duration::from_secs(1), true));
}

#[test]
fn propagators_say_whether_the_trace_goes_on() {
    let propagates = |list| settings(&[("OTEL_PROPAGATORS", list)]).propagates;
    assert!(settings(&[]).propagates);
    assert!(propagates("baggage, tracecontext"));
    assert!(!propagates("baggage"));
    assert!(!propagates("none"));
}

#[test]
fn an_unusable_setting_is_reported_once_with_its_variable_and_never_a_key() {
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://c"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "k=secret%zz"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "alone.pem"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_PROPAGATORS", "b3"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "x"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "-1"),
    ] {
        let variables = match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => vec![(name, value)],
            _ => vec![ENDPOINT, (name, value)],
        };
        let (_, problems) = read(&variables);
        assert_eq!(problems.len(), 1, "{name}: {problems:?}");
        assert_eq!(problems[0].variable, name);
        assert!(!problems[0].reason.contains("secret"), "{problems:?}");
    }
}

#[test]
fn what_cannot_be_used_costs_as_little_as_it_can() {
    let (some, _) = read(&[
        ENDPOINT,
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "good=1,bad"),
        ("OTEL_PROPAGATORS", "b3,tracecontext"),
        ("OTEL_METRICS_EXPORTER", "prometheus"),
    ]);
    let traces = some.traces.expect("traces go out all the same");
    assert_eq!(traces.transport, Transport::Http);
    assert_eq!(traces.timeout, DEFAULT_TIMEOUT);
    assert_eq!(traces.headers.len(), 1);
    assert!(some.propagates && some.metrics.is_none());
}
