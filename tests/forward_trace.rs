//! A call's trace is continued upstream if tracing is on, and forwarded unchanged if it is off.

use http::HeaderValue;
use tokengauge_core::observer::UpstreamTrace;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::Setup;
use tokengauge_test_support::recorder::RecorderBehaviour;
use tokengauge_test_support::upstream::{Upstream, fields};

const OURS: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The trace fields that the upstream gets for a request with `lines`.
async fn forwarded(trace: Option<UpstreamTrace>, lines: &[&str]) -> Vec<String> {
    let upstream = Upstream::bind().await;
    let setup = Setup {
        behaviour: RecorderBehaviour {
            trace,
            ..RecorderBehaviour::default()
        },
        ..Setup::to(upstream.address)
    };
    let proxy = setup.start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    let lines = lines.join("\r\n");
    agent
        .write(&format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n\r\n"))
        .await;
    let head = upstream.accept().await.read_head().await;
    let all = fields(&head).into_iter().skip(1);
    all.map(str::to_owned).collect()
}

fn ours(keeps_state: bool) -> Option<UpstreamTrace> {
    Some(UpstreamTrace {
        traceparent: HeaderValue::from_static(OURS),
        hop: HeaderValue::from_static("0-ours"),
        member: HeaderValue::from_static("tokengauge=0-3333333333333333"),
        keeps_state,
    })
}

#[tokio::test]
async fn without_tracing_every_trace_header_is_forwarded_unchanged() {
    let lines = [
        "traceparent: not-a-traceparent",
        "Tracestate: a=1,b=2",
        "traceparent: 00-0-0-0",
        "tracestate: c=3",
        "baggage: session.id=s;p=1, user.id=u",
    ];
    let mut expected = lines.to_vec();
    // Two lines of one field arrive together.
    expected.swap(1, 2);
    let mut received = forwarded(None, &lines).await;
    received.sort();
    expected.sort();
    assert_eq!(received, expected);
    assert!(forwarded(None, &["accept: */*"]).await == ["accept: */*"]);
}

#[tokio::test]
async fn with_tracing_the_upstream_gets_our_span_the_agents_state_and_its_baggage() {
    let of_agent = [
        "traceparent: 00-11111111111111111111111111111111-2222222222222222-01",
        "tracestate: a=1",
        "baggage: session.id=s",
    ];
    let parent = format!("traceparent: {OURS}");
    let hop = "x-tokengauge-hop: 0-ours";
    let own = "tracestate: tokengauge=0-3333333333333333";
    assert_eq!(
        forwarded(ours(true), &of_agent).await,
        [
            &parent,
            "tracestate: tokengauge=0-3333333333333333,a=1",
            of_agent[2],
            hop
        ]
    );
    assert_eq!(
        forwarded(ours(false), &of_agent).await,
        [&parent, own, of_agent[2], hop]
    );
    assert_eq!(
        forwarded(ours(false), &["accept: */*"]).await,
        ["accept: */*", &parent, hop, own]
    );
}
