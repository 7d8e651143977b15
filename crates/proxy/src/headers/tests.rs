use super::*;
use crate::Shutdown;
use crate::settings::{Endpoint, Upstream};
use http::uri::Scheme;
use http::{Request, Response};
use std::sync::Arc;

fn route(add_via: bool, add_forwarded: bool) -> Route {
    let endpoint = Endpoint {
        scheme: Scheme::HTTP,
        authority: "engine:8000".parse().expect("an authority"),
        base_path: String::new(),
    };
    let upstream = Arc::new(Upstream::new("engine", vec![endpoint]));
    Route {
        add_via,
        add_forwarded,
        ..Route::new("r", upstream)
    }
}

fn connection(peer: &str, tls: bool) -> ConnectionInfo {
    ConnectionInfo {
        peer: peer.parse().expect("an address"),
        port: 8080,
        tls,
        drain: Shutdown::new().drain(),
        send_state: std::sync::Arc::new(crate::send_timeout::SendState::new()),
        http1: None,
    }
}

fn map(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        headers.append(
            name,
            HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
        );
    }
    headers
}

fn fields(headers: &HeaderMap) -> Vec<(&str, &str)> {
    headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or("?")))
        .collect()
}

fn request(version: Version, headers: &[(&str, &str)]) -> request::Parts {
    let (mut parts, ()) = Request::get("/v1/models")
        .version(version)
        .body(())
        .expect("a request")
        .into_parts();
    parts.headers = map(headers);
    parts
}

fn to_upstream(parts: &mut request::Parts, route: &Route, connection: &ConnectionInfo) {
    let upgrade = asks_for_upgrade(parts, route);
    upstream_request(parts, route, connection, upgrade);
}

/// The fields that an upstream receives for an HTTP/1.1 request with these fields.
fn forwarded(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut parts = request(Version::HTTP_11, headers);
    to_upstream(
        &mut parts,
        &route(false, false),
        &connection("192.0.2.1:5", false),
    );
    owned(&fields(&parts.headers))
}

fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

#[test]
fn end_to_end_fields_keep_their_order_and_duplicates() {
    let given = [
        ("host", "agent.example"),
        ("x-b", "1"),
        ("connection", "keep-alive"),
        ("accept", "text/event-stream"),
        ("x-b", "2"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("authorization", "Bearer k"),
        ("transfer-encoding", "chunked"),
        ("x-a", ""),
    ];
    let expected = [
        ("host", "agent.example"),
        ("x-b", "1"),
        ("x-b", "2"),
        ("accept", "text/event-stream"),
        ("authorization", "Bearer k"),
        ("x-a", ""),
    ];
    assert_eq!(forwarded(&given), owned(&expected));
}

#[test]
fn fields_that_connection_names_go_on_every_line_and_in_any_case() {
    let given = [
        ("connection", "close, X-Hop"),
        ("x-hop", "1"),
        ("x-end", "1"),
        ("connection", "x-OTHER ;q=1 ,, "),
        ("x-other", "1"),
    ];
    assert_eq!(forwarded(&given), owned(&[("x-end", "1")]));
}

#[test]
fn connection_cannot_remove_end_to_end_fields() {
    let given = [
        (
            "connection",
            "authorization, content-length, host, cookie, x-api-key, x-forwarded-for, te, via",
        ),
        ("host", "agent.example"),
        ("content-length", "2"),
        ("authorization", "Bearer k"),
        ("x-api-key", "k"),
        ("cookie", "a=b"),
        ("x-forwarded-for", "192.0.2.7"),
        ("via", "1.1 front"),
        ("te", "trailers"),
    ];
    assert_eq!(forwarded(&given), owned(&given[1..]));
}

#[test]
fn a_connection_field_that_is_not_text_or_names_nothing_is_removed() {
    let given = [
        ("connection", "\u{e9}, authorization"),
        ("connection", "a b, (), ,"),
        ("authorization", "Bearer k"),
    ];
    assert_eq!(forwarded(&given), owned(&[("authorization", "Bearer k")]));
}

#[test]
fn only_trailers_is_kept_of_te() {
    assert_eq!(
        forwarded(&[("te", "gzip, Trailers;q=0.5"), ("a", "1")]),
        owned(&[("te", "trailers"), ("a", "1")])
    );
    assert_eq!(
        forwarded(&[("te", "gzip"), ("a", "1")]),
        owned(&[("a", "1")])
    );
}

#[test]
fn an_upgrade_keeps_its_two_fields_where_they_are() {
    let given = [
        ("host", "h"),
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-key", "k"),
    ];
    let mut expected = given;
    expected[1].1 = "Upgrade";
    assert_eq!(forwarded(&given), owned(&expected));
}

#[test]
fn an_unannounced_or_disallowed_upgrade_is_removed() {
    let not_announced = [("upgrade", "websocket"), ("a", "1")];
    assert_eq!(forwarded(&not_announced), owned(&[("a", "1")]));
    let cleartext_http2 = [
        ("connection", "Upgrade, HTTP2-Settings"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAM"),
        ("a", "1"),
    ];
    assert_eq!(forwarded(&cleartext_http2), owned(&[("a", "1")]));
    for version in [Version::HTTP_10, Version::HTTP_2] {
        let parts = request(
            version,
            &[("connection", "upgrade"), ("upgrade", "websocket")],
        );
        assert!(
            !asks_for_upgrade(&parts, &route(false, false)),
            "{version:?}"
        );
    }
}

#[test]
fn via_and_forwarded_fields_are_added_only_if_the_route_says_so() {
    assert_eq!(forwarded(&[("host", "h")]), owned(&[("host", "h")]));

    let mut parts = request(Version::HTTP_2, &[("host", "h:8080")]);
    to_upstream(
        &mut parts,
        &route(true, true),
        &connection("[::ffff:192.0.2.9]:5", true),
    );
    let expected = [
        ("host", "h:8080"),
        ("via", "2 tokengauge"),
        ("x-forwarded-for", "192.0.2.9"),
        ("x-forwarded-host", "h:8080"),
        ("x-forwarded-proto", "https"),
    ];
    assert_eq!(fields(&parts.headers), expected);
}

#[test]
fn forwarded_fields_are_added_to_those_of_proxies_before_us() {
    let given = [
        ("host", "inner"),
        ("via", "1.0 front"),
        ("x-forwarded-for", "203.0.113.1"),
        ("x-forwarded-for", "203.0.113.2"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "outer"),
    ];
    let mut parts = request(Version::HTTP_11, &given);
    to_upstream(
        &mut parts,
        &route(true, true),
        &connection("[2001:db8::1]:5", false),
    );
    let expected = [
        ("host", "inner"),
        ("via", "1.0 front"),
        ("via", "1.1 tokengauge"),
        ("x-forwarded-for", "203.0.113.1, 203.0.113.2, 2001:db8::1"),
        ("x-forwarded-proto", "https, http"),
        ("x-forwarded-host", "outer, inner"),
    ];
    assert_eq!(fields(&parts.headers), expected);
}

#[test]
fn without_a_host_field_the_authority_is_the_forwarded_host() {
    let request = Request::get("https://agent.example:8443/v1")
        .version(Version::HTTP_2)
        .body(());
    let (mut parts, ()) = request.expect("a request").into_parts();
    to_upstream(
        &mut parts,
        &route(false, true),
        &connection("192.0.2.1:5", true),
    );
    assert_eq!(parts.headers["x-forwarded-host"], "agent.example:8443");
}

#[test]
fn only_hop_by_hop_fields_are_removed_from_a_response() {
    let given = [
        ("server", "engine"),
        ("connection", "close, x-hop"),
        ("x-hop", "1"),
        ("set-cookie", "a"),
        ("transfer-encoding", "chunked"),
        ("content-type", "text/event-stream"),
        ("set-cookie", "b"),
        ("upgrade", "h2"),
        ("trailer", "x-sum"),
    ];
    let expected = [
        ("server", "engine"),
        ("set-cookie", "a"),
        ("set-cookie", "b"),
        ("content-type", "text/event-stream"),
        ("trailer", "x-sum"),
    ];
    assert_eq!(answered(StatusCode::OK, &given, false), owned(&expected));
}

#[test]
fn a_response_that_switches_or_asks_to_switch_protocols_says_to_which() {
    let given = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("keep-alive", "timeout=5"),
    ];
    let expected = [("connection", "Upgrade"), ("upgrade", "websocket")];
    for status in [
        StatusCode::SWITCHING_PROTOCOLS,
        StatusCode::UPGRADE_REQUIRED,
    ] {
        assert_eq!(
            answered(status, &given, false),
            owned(&expected),
            "{status}"
        );
    }
}

#[test]
fn via_of_a_response_names_the_upstreams_version() {
    assert_eq!(
        answered(StatusCode::OK, &[("a", "1")], true),
        owned(&[("a", "1"), ("via", "1.1 tokengauge")])
    );
}

fn answered(status: StatusCode, headers: &[(&str, &str)], via: bool) -> Vec<(String, String)> {
    let (mut parts, ()) = Response::builder()
        .status(status)
        .body(())
        .expect("a response")
        .into_parts();
    parts.headers = map(headers);
    agent_response(&mut parts, &route(via, false));
    owned(&fields(&parts.headers))
}

#[test]
fn the_trace_replaces_the_agents_and_other_fields_stay() {
    let of_agent = [
        ("a", "1"),
        ("traceparent", "malformed"),
        ("tracestate", "gauge=1-theirs,vendor=x"),
        ("baggage", "session.id=s"),
        ("traceparent", "twice"),
        ("b", "2"),
    ];
    let carried = |keeps_state| {
        let mut headers = map(&of_agent);
        let traceparent = HeaderValue::from_static("00-ours");
        let trace = UpstreamTrace {
            traceparent,
            hop: HeaderValue::from_static("0-ours"),
            member: HeaderValue::from_static("gauge=0-ours"),
            keeps_state,
        };
        carry_trace(&mut headers, trace);
        headers
    };
    let rest = [("baggage", "session.id=s"), ("b", "2")];
    let ours = [("a", "1"), ("traceparent", "00-ours")];
    let state = |all| [("tracestate", all)];
    let hop = [("x-tokengauge-hop", "0-ours")];
    assert_eq!(
        fields(&carried(true)),
        [&ours[..], &state("gauge=0-ours,vendor=x"), &rest, &hop].concat()
    );
    let own = state("gauge=0-ours");
    assert_eq!(
        fields(&carried(false)),
        [&ours[..], &own, &rest, &hop].concat()
    );
    let mut without = map(&[("a", "1")]);
    let traceparent = HeaderValue::from_static("00-ours");
    carry_trace(
        &mut without,
        UpstreamTrace {
            traceparent,
            hop: HeaderValue::from_static("0-ours"),
            member: HeaderValue::from_static("gauge=0-ours"),
            keeps_state: false,
        },
    );
    assert_eq!(fields(&without), [&ours[..], &hop, &own].concat());
}

#[test]
fn a_plain_host_is_what_the_authority_of_a_url_may_be() {
    let bytes = b"a1.-:@[]%_/ ";
    let mut values = vec![Vec::new()];
    for _ in 0..4 {
        let longer = values.iter().flat_map(|value: &Vec<u8>| {
            let add = move |byte: &u8| [value.as_slice(), &[*byte]].concat();
            bytes.iter().map(add)
        });
        values = longer.collect();
        for value in &values {
            let text = String::from_utf8_lossy(value);
            assert!(
                !is_plain_host(value) || is_host_of_authority(value),
                "{text}"
            );
        }
    }
    for host in ["engine", "a.b-c.d:8443", "127.0.0.1:80"] {
        assert!(is_plain_host(host.as_bytes()), "{host}");
    }
}

#[test]
fn a_field_that_is_removed_leaves_the_others_in_order() {
    for given in ["tac", "atc", "act", "aca", "t", "", "ta", "tt", "att"] {
        let name = |letter: char| match letter {
            't' => "transfer-encoding",
            'a' => "x-a",
            _ => "x-c",
        };
        let mut headers = map(&given.chars().map(|it| (name(it), "1")).collect::<Vec<_>>());
        let expected: Vec<_> = fields(&headers)
            .into_iter()
            .filter(|(name, _)| *name != "transfer-encoding")
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        remove_hop_by_hop(&mut headers, false, false);
        assert_eq!(owned(&fields(&headers)), expected, "{given}");
    }
}
