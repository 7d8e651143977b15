//! The kinds of incidents.

use crate::traffic::{self, Traffic};
use rand::RngExt as _;
use tokengauge_cause::Dimension::{Agent, Model, Node, Upstream};
use tokengauge_cause::Mechanism::{
    ColdStart, Connect, Decode, Errors, LongerPrompts, Prefill, Queue, Stalls,
};
use tokengauge_cause::{Call, Dimension, Mechanism, Phases};

pub(crate) const ERRORS: Phases = phases(true, false, false);
const FIRST_TOKEN: Phases = phases(false, true, false);
pub(crate) const DECODE: Phases = phases(false, false, true);
pub(crate) const ALL: Phases = phases(false, true, true);

const fn phases(errors: bool, first_token: bool, decode: bool) -> Phases {
    Phases {
        errors,
        first_token,
        decode,
    }
}

/// An incident: how calls change from its onset on, and the right answer.
pub(crate) struct Incident {
    pub(crate) name: &'static str,
    pub(crate) phases: Phases,
    pub(crate) change: fn(&mut Traffic, &mut Call),
    /// The call rate of the agent `crawler` from the onset on, relative to all other calls.
    pub(crate) crawler: f64,
    pub(crate) value: Option<(Dimension, &'static str)>,
    pub(crate) mechanism: Mechanism,
}

pub(crate) fn is(call: &Call, dimension: Dimension, value: &str) -> bool {
    let place = Dimension::NAMES.iter().position(|one| *one == dimension);
    place.is_some_and(|place| call.names[place].as_deref() == Some(value))
}

pub(crate) fn slower(call: &mut Call, times: f64) {
    call.gap = call.gap.map(|gap| gap * times);
}

fn prefill(call: &mut Call, times: f64) {
    let more = call.prompt_tokens.unwrap_or(0) as f64 * traffic::PER_TOKEN * (times - 1.0);
    call.first_token = call.first_token.map(|seconds| seconds + more);
    call.prefill = call.prefill.map(|seconds| seconds * times);
}

fn wait(traffic: &mut Traffic, call: &mut Call, least: f64, most: f64) {
    let more = traffic.random.random_range(least..most);
    call.first_token = call.first_token.map(|seconds| seconds + more);
}

fn fail(traffic: &mut Traffic, call: &mut Call, share: f64, kind: &str) {
    if traffic.random.random_bool(share) {
        call.error = Some(kind.into());
        (call.gap, call.first_token) = (None, None);
    }
}

fn incident(
    name: &'static str,
    phases: Phases,
    value: Option<(Dimension, &'static str)>,
    mechanism: Mechanism,
    change: fn(&mut Traffic, &mut Call),
) -> Incident {
    let crawler = 0.0;
    Incident {
        name,
        phases,
        change,
        crawler,
        value,
        mechanism,
    }
}

pub(crate) fn slow_phases() -> Vec<Incident> {
    vec![
        incident(
            "decode at an upstream",
            DECODE,
            Some((Upstream, "vllm-a")),
            Decode,
            |_, call| {
                if is(call, Upstream, "vllm-a") {
                    slower(call, 3.0);
                }
            },
        ),
        incident("decode everywhere", DECODE, None, Decode, |_, call| {
            slower(call, 3.0)
        }),
        incident(
            "decode of a model",
            DECODE,
            Some((Model, "large")),
            Decode,
            |_, call| {
                if is(call, Model, "large") {
                    slower(call, 2.5);
                }
            },
        ),
        incident(
            "decode, by duration",
            ALL,
            Some((Upstream, "vllm-b")),
            Decode,
            |_, call| {
                if is(call, Upstream, "vllm-b") {
                    slower(call, 4.0);
                }
            },
        ),
        incident(
            "prefill at an upstream",
            FIRST_TOKEN,
            Some((Upstream, "vllm-a")),
            Prefill,
            |_, call| {
                if is(call, Upstream, "vllm-a") {
                    prefill(call, 5.0);
                }
            },
        ),
        incident(
            "prefill everywhere",
            FIRST_TOKEN,
            None,
            Prefill,
            |_, call| prefill(call, 5.0),
        ),
        incident(
            "prefill, by duration",
            ALL,
            Some((Model, "large")),
            Prefill,
            |_, call| {
                if is(call, Model, "large") {
                    prefill(call, 80.0);
                }
            },
        ),
        incident(
            "stalls at an upstream",
            DECODE,
            Some((Upstream, "vllm-a")),
            Stalls,
            |traffic, call| {
                if is(call, Upstream, "vllm-a") && traffic.random.random_bool(0.4) {
                    call.stalls = 2;
                    call.longest_gap = Some(traffic.random.random_range(2.0..5.0));
                }
            },
        ),
        incident(
            "longer prompts of an agent",
            FIRST_TOKEN,
            Some((Agent, "coder")),
            LongerPrompts,
            |_, call| {
                if is(call, Agent, "coder") {
                    let tokens = call.prompt_tokens.unwrap_or(0);
                    let more = 12 * tokens;
                    call.prompt_tokens = Some(tokens + more);
                    call.first_token = call
                        .first_token
                        .map(|seconds| seconds + more as f64 * traffic::PER_TOKEN);
                }
            },
        ),
    ]
}

pub(crate) fn queues() -> Vec<Incident> {
    let mut all = vec![
        incident(
            "queue at an upstream",
            FIRST_TOKEN,
            Some((Upstream, "vllm-b")),
            Queue,
            |traffic, call| {
                if is(call, Upstream, "vllm-b") {
                    call.concurrency += 24;
                    wait(traffic, call, 1.5, 6.0);
                }
            },
        ),
        incident(
            "queue everywhere",
            FIRST_TOKEN,
            None,
            Queue,
            |traffic, call| {
                call.concurrency += traffic.random.random_range(10..40);
                wait(traffic, call, 1.0, 5.0);
            },
        ),
        incident(
            "queue of some calls",
            FIRST_TOKEN,
            Some((Upstream, "vllm-a")),
            Queue,
            |traffic, call| {
                if is(call, Upstream, "vllm-a") && traffic.random.random_bool(0.4) {
                    wait(traffic, call, 2.0, 8.0);
                }
            },
        ),
        incident(
            "connecting to an upstream",
            FIRST_TOKEN,
            Some((Upstream, "vllm-b")),
            Connect,
            |traffic, call| {
                if is(call, Upstream, "vllm-b") {
                    call.connect = Some(traffic.random.random_range(2.5..5.0));
                }
            },
        ),
        incident(
            "a chatty agent",
            FIRST_TOKEN,
            Some((Agent, "crawler")),
            Queue,
            |traffic, call| {
                call.concurrency = call.concurrency * 5 + traffic.random.random_range(0..10);
                wait(traffic, call, 1.0, 5.0);
            },
        ),
        incident(
            "a chatty agent, by duration",
            ALL,
            Some((Agent, "crawler")),
            Queue,
            |traffic, call| {
                call.concurrency = call.concurrency * 6 + traffic.random.random_range(0..20);
                wait(traffic, call, 8.0, 30.0);
            },
        ),
    ];
    for chatty in &mut all[4..] {
        chatty.crawler = 4.0;
    }
    all
}

pub(crate) fn failures() -> Vec<Incident> {
    vec![
        incident(
            "a node decodes slowly",
            DECODE,
            Some((Node, "10.0.0.2:8000")),
            Decode,
            |_, call| {
                if is(call, Node, "10.0.0.2:8000") {
                    slower(call, 4.0);
                }
            },
        ),
        incident(
            "a node fails",
            ERRORS,
            Some((Node, "10.0.0.3:8000")),
            Errors,
            |traffic, call| {
                if is(call, Node, "10.0.0.3:8000") {
                    fail(traffic, call, 0.5, "http_error 503");
                }
            },
        ),
        incident(
            "a node queues",
            FIRST_TOKEN,
            Some((Node, "10.0.0.1:8000")),
            Queue,
            |traffic, call| {
                if is(call, Node, "10.0.0.1:8000") {
                    call.concurrency += 16;
                    wait(traffic, call, 2.0, 6.0);
                }
            },
        ),
        incident(
            "errors of an upstream",
            ERRORS,
            Some((Upstream, "vllm-b")),
            Errors,
            |traffic, call| {
                if is(call, Upstream, "vllm-b") {
                    fail(traffic, call, 0.6, "http_error 500");
                }
            },
        ),
        incident(
            "errors everywhere",
            ERRORS,
            None,
            Errors,
            |traffic, call| fail(traffic, call, 0.3, "timeout"),
        ),
        incident(
            "errors of a model",
            ERRORS,
            Some((Model, "large")),
            Errors,
            |traffic, call| {
                if is(call, Model, "large") {
                    fail(traffic, call, 1.0, "unreachable");
                }
            },
        ),
        incident(
            "a cold upstream",
            FIRST_TOKEN,
            Some((Upstream, "vllm-a")),
            ColdStart,
            |traffic, call| {
                if is(call, Upstream, "vllm-a") {
                    call.cold = true;
                    wait(traffic, call, 3.0, 12.0);
                }
            },
        ),
        incident(
            "a model that is loaded again and again",
            ALL,
            Some((Model, "large")),
            ColdStart,
            |traffic, call| {
                if is(call, Model, "large") && traffic.random.random_bool(0.5) {
                    call.cold = true;
                    wait(traffic, call, 20.0, 40.0);
                }
            },
        ),
    ]
}
