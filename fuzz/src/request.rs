//! Parsing of requests (target, headers, body): nothing panics, and the results are bounded and sanitised.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use tokengauge_accounting::attribution::{Attribution, HeaderAttribution, Rules};
use tokengauge_core::trace::TraceContext;
use tokengauge_wire::{detect, error_body, request_facts, request_texts};

pub fn run(input: &[u8]) {
    let mut parts = input.splitn(3, |byte| *byte == 0);
    let (target, head, body) = (parts.next(), parts.next(), parts.next());
    let uri = target.and_then(|target| Uri::try_from(target).ok());
    let uri = uri.unwrap_or_default();
    let detected = detect(&Method::POST, &uri);
    let headers = headers(head.unwrap_or_default());
    if let Some(trace) = TraceContext::of_headers(&headers) {
        assert_eq!(trace.trace().len(), 32);
        assert_eq!(TraceContext::parse(&trace.to_string()), Some(trace));
    }
    let rules = Rules::default();
    let heard = HeaderAttribution::of(&headers, &uri, None, &rules);
    let body = body.unwrap_or_default();
    let facts = request_facts(detected.dialect, body);
    let refused = error_body(
        detected.dialect,
        StatusCode::TOO_MANY_REQUESTS,
        "quota",
        &text(body),
    );
    serde_json::from_slice::<serde_json::Value>(&refused.body).expect("JSON");
    request_texts(detected.dialect, body, &mut |text: &str| {
        assert!(!text.is_empty());
    });
    let found = Attribution::merged(heard.as_deref(), facts.as_ref(), &rules);
    for value in [
        found.session,
        found.agent,
        found.user,
        found.experiment,
        found.variant,
    ] {
        let value = value.unwrap_or_default();
        assert!(
            value.chars().count() <= 200 && !value.contains(char::is_control),
            "{value:?}"
        );
    }
}

fn headers(head: &[u8]) -> HeaderMap {
    let lines = head.split(|byte| *byte == b'\n');
    let fields = lines.filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        Some((name, HeaderValue::from_bytes(&line[colon + 1..]).ok()?))
    });
    let mut headers = HeaderMap::new();
    for (name, value) in fields.take(100) {
        headers.append(name, value);
    }
    headers
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
