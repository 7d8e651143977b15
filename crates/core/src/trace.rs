//! W3C Trace Context (<https://www.w3.org/TR/trace-context/>): the position of a call in a
//! distributed trace. Does not depend on spans or exporters.

use http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The `sampled` flag: the caller records its spans.
const SAMPLED: u8 = 0x01;
/// The flags that the specification defines. Others must not be passed on.
const KNOWN_FLAGS: u8 = 0x03;

/// A trace, and the span in it that is the parent of further spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace id, never 0.
    pub trace_id: u128,
    /// The span id, never 0.
    pub span_id: u64,
    /// The trace flags. Undefined flags are removed.
    pub flags: u8,
}

impl TraceContext {
    /// The caller's `traceparent`. A malformed header counts as absent. Several headers also count
    /// as absent, because it is unknown which one is right.
    pub fn of_headers(headers: &HeaderMap) -> Option<TraceContext> {
        let mut all = headers.get_all(TRACEPARENT).into_iter();
        let only = all.next().filter(|_| all.next().is_none())?;
        TraceContext::parse(only.to_str().ok()?)
    }

    /// Parses a `traceparent` of version 00. Reads only the fields of version 00 in later versions.
    pub fn parse(text: &str) -> Option<TraceContext> {
        let mut parts = text.splitn(5, '-');
        let mut hex = |length| parts.next().and_then(|part| hexadecimal(part, length));
        let (version, trace_id) = (hex(2)?, hex(32)?);
        let (span_id, flags) = (hex(16)?, hex(2)?);
        let more = parts.next().is_some();
        let readable = version != 0xff && !(version == 0 && more);
        (readable && trace_id != 0 && span_id != 0).then_some(TraceContext {
            trace_id,
            span_id: span_id as u64,
            flags: flags as u8 & KNOWN_FLAGS,
        })
    }

    /// Whether the caller records its spans.
    pub fn sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// A copy with the `sampled` flag set or cleared.
    pub fn with_sampled(self, sampled: bool) -> TraceContext {
        let others = self.flags & !SAMPLED;
        let flags = others | if sampled { SAMPLED } else { 0 };
        TraceContext { flags, ..self }
    }

    /// The trace id as in records and exemplars: 32 hexadecimal digits.
    pub fn trace(&self) -> String {
        format!("{:032x}", self.trace_id)
    }

    /// The value of a `traceparent` header.
    pub fn header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.to_string()).expect("hexadecimal digits and dashes")
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span, flags) = (self.trace_id, self.span_id, self.flags);
        write!(f, "00-{trace:032x}-{span:016x}-{flags:02x}")
    }
}

/// The spans of one call: the server span of the call, and the client span of the request to the
/// upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTrace {
    /// The agent's span, if the request has a trace context.
    pub parent: Option<TraceContext>,
    /// The server span.
    pub server: TraceContext,
    /// The id of the client span, which is a child of the server span.
    pub client: u64,
    /// Whether the trace context is sent to the upstream.
    pub propagates: bool,
}

impl CallTrace {
    /// The context that is sent to the upstream, with the client span as the parent.
    pub fn upstream(&self) -> TraceContext {
        let span_id = self.client;
        TraceContext {
            span_id,
            ..self.server
        }
    }

    /// Whether the call continues the agent's trace instead of starting a new one.
    pub fn continues(&self) -> bool {
        self.parent.is_some()
    }
}

/// The key of the proxy's member in `tracestate`.
pub const STATE_KEY: &str = "tokengauge";

/// A header for gateways that forward `x-` headers but no trace context. Its value is
/// `<hop>-<traceparent>`.
pub const HOP_HEADER: &str = "x-tokengauge-hop";

/// What another tokengauge, nearer to the agent, sent along with the call. In `tracestate` it is
/// the member `tokengauge=<hop>-<span>`, with the hop in decimal and the span of its upstream
/// request in 16 hexadecimal digits. Otherwise it is in [`HOP_HEADER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropagatedTrace {
    /// The number of tokengauge instances that the call had passed before that instance.
    pub hop: u32,
    /// The upstream request of that instance.
    pub request: TraceContext,
}

impl PropagatedTrace {
    const MAX_HOP: u32 = 99;

    /// Reads the caller's headers. Malformed values count as absent.
    pub fn of_headers(headers: &HeaderMap) -> Option<PropagatedTrace> {
        let passed =
            PropagatedTrace::of_state(headers).or_else(|| PropagatedTrace::of_own_header(headers));
        passed.filter(|passed| passed.hop <= PropagatedTrace::MAX_HOP)
    }

    fn of_own_header(headers: &HeaderMap) -> Option<PropagatedTrace> {
        let value = headers.get(HOP_HEADER)?.to_str().ok()?;
        let (hop, request) = value.split_once('-')?;
        Some(PropagatedTrace {
            hop: hop.parse().ok()?,
            request: TraceContext::parse(request)?,
        })
    }

    fn of_state(headers: &HeaderMap) -> Option<PropagatedTrace> {
        let parent = TraceContext::of_headers(headers)?;
        let lines = headers.get_all(TRACESTATE).into_iter();
        let mut members = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','));
        let ours = |member: &str| {
            let (key, value) = member.trim().split_once('=')?;
            (key == STATE_KEY).then(|| value.to_owned())
        };
        let value = members.find_map(ours)?;
        let (hop, span) = value.split_once('-')?;
        let span_id = hexadecimal(span, 16)? as u64;
        Some(PropagatedTrace {
            hop: hop.parse().ok()?,
            request: TraceContext { span_id, ..parent },
        })
    }

    /// The value of the [`HOP_HEADER`].
    pub fn header(&self) -> HeaderValue {
        let value = format!("{}-{}", self.hop, self.request);
        HeaderValue::from_str(&value).expect("digits, letters and dashes")
    }

    /// The value as a member of `tracestate`.
    pub fn member(&self) -> HeaderValue {
        let (hop, span) = (self.hop, self.request.span_id);
        let member = format!("{STATE_KEY}={hop}-{span:016x}");
        HeaderValue::from_str(&member).expect("letters, digits, an equals sign and a dash")
    }
}

/// The maximum length of a `tracestate` that is kept, in bytes. The specification requires at least
/// this length.
pub const MAX_STATE: usize = 512;

/// The caller's `tracestate` with its header lines joined. A state longer than [`MAX_STATE`] counts
/// as absent.
pub fn state(headers: &HeaderMap) -> Option<Box<str>> {
    let lines = headers.get_all(TRACESTATE).into_iter();
    let lines: Option<Vec<_>> = lines.map(|line| line.to_str().ok()).collect();
    let all = lines?.join(",");
    (!all.is_empty() && all.len() <= MAX_STATE).then(|| all.into())
}

/// Creates the spans of a call, as children of the agent's span if there is one, and decides
/// whether they are recorded. Runs on the threads of traffic, so it must be cheap.
pub type Tracer = dyn Fn(Option<TraceContext>) -> CallTrace + Send + Sync;

fn hexadecimal(text: &str, length: usize) -> Option<u128> {
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let valid = text.len() == length && text.bytes().all(lower);
    u128::from_str_radix(text, 16).ok().filter(|_| valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_valid_traceparent_is_read_and_written_alike() {
        for flags in ["00", "01", "02", "03"] {
            let text = format!("00-{TRACE}-{SPAN}-{flags}");
            let context = TraceContext::parse(&text).expect("valid");
            assert_eq!(context.to_string(), text);
            assert_eq!(
                (context.trace(), context.header()),
                (TRACE.to_owned(), {
                    HeaderValue::from_str(&text).expect("a header")
                })
            );
            assert_eq!(context.sampled(), flags.ends_with(['1', '3']));
            let turned = context.with_sampled(!context.sampled());
            assert_ne!(turned.sampled(), context.sampled());
            assert_eq!(turned.flags | SAMPLED, context.flags | SAMPLED);
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_like_the_first_and_sent_on_as_the_first() {
        let later = TraceContext::parse(&format!("cc-{TRACE}-{SPAN}-ff-what"));
        let written = later.expect("valid").to_string();
        assert_eq!(written, format!("00-{TRACE}-{SPAN}-03"));
    }

    #[test]
    fn what_is_malformed_is_absent() {
        for invalid in [
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01-what"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-+1"),
            format!("0-{TRACE}-{SPAN}-01"),
            format!(" 00-{TRACE}-{SPAN}-01"),
            "nonsense".to_owned(),
            String::new(),
        ] {
            assert_eq!(TraceContext::parse(&invalid), None, "{invalid}");
        }
    }

    #[test]
    fn what_a_proxy_says_of_itself_is_read_and_what_is_malformed_is_absent() {
        let parent = format!("00-{TRACE}-1111111111111111-01");
        let of = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            headers.append(
                "traceparent",
                HeaderValue::from_str(&parent).expect("a header"),
            );
            for line in lines {
                headers.append("tracestate", HeaderValue::from_str(line).expect("a header"));
            }
            PropagatedTrace::of_headers(&headers)
        };
        let request = TraceContext::parse(&format!("00-{TRACE}-{SPAN}-01"));
        let passed = PropagatedTrace {
            hop: 2,
            request: request.expect("valid"),
        };
        let mut own = HeaderMap::new();
        own.insert(HOP_HEADER, passed.header());
        assert_eq!(passed.header(), format!("2-00-{TRACE}-{SPAN}-01"));
        assert_eq!(PropagatedTrace::of_headers(&own), Some(passed));
        for malformed in ["", "2", "100-00-1-1-01", "x"] {
            own.insert(HOP_HEADER, HeaderValue::from_static(malformed));
            assert_eq!(PropagatedTrace::of_headers(&own), None, "{malformed}");
        }
        let member = passed.member();
        let member = member.to_str().expect("text");
        assert_eq!(member, "tokengauge=2-00f067aa0ba902b7");
        assert_eq!(of(&[member]), Some(passed));
        assert_eq!(
            of(&["a=1, b=2", &format!("c=3 ,{member} ,d=4")]),
            Some(passed)
        );
        for none in [
            "",
            "a=tokengauge",
            "tokengauge",
            "tokengauge=1",
            "tokengauge=x-00f067aa0ba902b7",
            "tokengauge=-1-00f067aa0ba902b7",
            "tokengauge=100-00f067aa0ba902b7",
            "tokengauge=1-00F067AA0BA902B7",
            "tokengauge=1-00f0",
        ] {
            assert_eq!(of(&[none]), None, "{none}");
        }
    }

    #[test]
    fn several_are_as_good_as_none() {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("00-{TRACE}-{SPAN}-01")).expect("a header");
        headers.append("traceparent", value.clone());
        assert!(TraceContext::of_headers(&headers).is_some());
        headers.append("traceparent", value);
        assert_eq!(TraceContext::of_headers(&headers), None);
    }
}
