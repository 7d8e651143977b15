//! Sessions, groups, points in time.

use super::Named;
use crate::admin::api::openapi::words::{
    count, flag, instant, list, map_of, maybe, number, object, of, text, words,
};
use serde_json::Value;

pub(super) fn schemas() -> Named {
    [sessions(), groups(), series()].concat()
}

/// What a session has, alone or with its calls.
fn of_session() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("id", text(), "As the agents named it."),
        ("started_at", instant(), "When its first call began."),
        ("last_at", instant(), "When its last call ended."),
        ("errors", count(), "Calls that went wrong."),
        ("agents", list(text()), "Its agents."),
        ("models", list(text()), "Its models."),
        ("workload", maybe(text()), "Of the last call that has one."),
        ("user", maybe(text()), "Of the last call that has one."),
        (
            "experiment",
            maybe(text()),
            "Of the last call that has one.",
        ),
        ("variant", maybe(text()), "Of the last call that has one."),
        ("tokens", of("TokenSums"), "Of all its calls."),
        ("cost_usd", maybe(number()), "Of the calls with a price."),
        (
            "unpriced_calls",
            count(),
            "Calls with tokens but without a price.",
        ),
        ("seconds", of("SessionSeconds"), "Where its time went."),
        (
            "tps",
            object(&[(
                "output",
                maybe(number()),
                "Decode tokens over decode seconds.",
            )]),
            "How fast it was.",
        ),
        ("in_flight", count(), "Calls under way just now."),
    ]
}

fn sessions() -> Named {
    let (mut alone, mut detail) = (of_session(), of_session());
    alone.push(("calls", count(), "Finished calls."));
    detail.extend([
        (
            "calls",
            list(of("WaterfallCall")),
            "A page of its calls, by start.",
        ),
        ("total_calls", count(), "Finished calls."),
        (
            "next_cursor",
            maybe(text()),
            "Names the next page; null where this is the last.",
        ),
        ("store", of("Store"), "Who answered."),
    ]);
    let phases = [
        "connect",
        "upload",
        "queue",
        "prefill",
        "reasoning",
        "answer",
        "other",
    ];
    let call = object(&[
        ("id", text(), "The call."),
        ("started_at", instant(), "When it began."),
        ("offset", number(), "Seconds since the session began."),
        (
            "wait_before",
            maybe(number()),
            "Seconds since the last of the earlier calls ended; null for the first.",
        ),
        ("agent", maybe(text()), "The agent."),
        (
            "parent_agent",
            maybe(text()),
            "The agent that started this one.",
        ),
        (
            "model",
            maybe(text()),
            "The model that answered, else the one asked for.",
        ),
        ("route", text(), "The route."),
        ("upstream", text(), "The upstream."),
        ("outcome", of("Outcome"), "How it ended."),
        ("error_type", maybe(text()), "The kind of error."),
        ("status", maybe(count()), "The HTTP status."),
        (
            "streamed",
            maybe(flag()),
            "Whether the answer was streamed.",
        ),
        ("tokens", of("TokenSums"), "Its tokens."),
        ("cost_usd", maybe(number()), "What it cost."),
        ("tps", maybe(number()), "Its decode speed."),
        ("ttft", maybe(number()), "Its time to first token."),
        ("phases", list(of("Phase")), "Its parts, without gaps."),
    ]);
    vec![
        ("Session", object(&alone)),
        ("SessionDetail", object(&detail)),
        (
            "SessionSeconds",
            object(&[
                ("wall", number(), "From the first start to the last end."),
                ("model", number(), "With at least one call under way."),
                ("tools", number(), "Between calls: tools, people."),
                (
                    "ttft_p50",
                    maybe(number()),
                    "The median time to first token.",
                ),
            ]),
        ),
        (
            "TokenSums",
            object(&[
                ("input", maybe(count()), "Input, cached included."),
                ("cached_input", maybe(count()), "Input read from a cache."),
                ("output", maybe(count()), "Output, reasoning included."),
                ("reasoning", maybe(count()), "Reasoning."),
            ]),
        ),
        ("WaterfallCall", call),
        (
            "Phase",
            object(&[
                ("name", words(&phases), "What happens."),
                ("start", number(), "Seconds since the session began."),
                ("end", number(), "Seconds since the session began."),
            ]),
        ),
    ]
}

fn groups() -> Named {
    let group = || {
        vec![
            (
                "name",
                maybe(text()),
                "The first of what they have in common.",
            ),
            ("calls", count(), "Finished calls."),
            ("errors", count(), "Those that went wrong."),
            ("tps", of("Speeds"), "Decode speeds in tokens per second."),
            (
                "tps_reported",
                of("Speeds"),
                "The same in the provider's own tokens, where it reported some.",
            ),
            ("ttft", of("Latencies"), "Times to first token in seconds."),
            ("tokens", of("TokenSums"), "Of all calls."),
            ("cost_usd", maybe(number()), "Of the calls with a price."),
            (
                "unpriced_calls",
                count(),
                "Calls with tokens but without a price.",
            ),
            (
                "usd_per_million_output",
                maybe(number()),
                "Cost over a million output tokens, of the calls with a price.",
            ),
            (
                "bands",
                list(of("Band")),
                "Calls by class of their decode speed.",
            ),
            (
                "requests_per_second",
                maybe(number()),
                "Calls over the seconds from since to until.",
            ),
        ]
    };
    let mut named = group();
    named.push(("by", map_of(maybe(text())), "What they have in common."));
    vec![
        ("Group", object(&group())),
        ("NamedGroup", object(&named)),
        (
            "Speeds",
            object(&[
                ("p50", maybe(number()), "The median."),
                ("p10", maybe(number()), "10 % are slower."),
                (
                    "p5",
                    maybe(number()),
                    "5 % are slower: what others write as the p95 of TPS.",
                ),
                (
                    "p1",
                    maybe(number()),
                    "1 % are slower: what others write as the p99 of TPS.",
                ),
                (
                    "calls",
                    count(),
                    "Calls with a decode speed, which all of this is of.",
                ),
                (
                    "mean",
                    maybe(number()),
                    "All decode tokens over all decode seconds.",
                ),
            ]),
        ),
        (
            "Latencies",
            object(&[
                ("p50", maybe(number()), "The median."),
                ("p95", maybe(number()), "5 % take longer."),
                ("p99", maybe(number()), "1 % take longer."),
                (
                    "calls",
                    count(),
                    "Calls with a first token, which all of this is of.",
                ),
                (
                    "share",
                    maybe(number()),
                    "All seconds until first tokens over all seconds of these calls.",
                ),
            ]),
        ),
        (
            "Band",
            object(&[
                ("from", number(), "Tokens per second, included."),
                (
                    "to",
                    maybe(number()),
                    "Tokens per second, excluded; null is without end.",
                ),
                ("calls", count(), "Calls."),
            ]),
        ),
    ]
}

fn series() -> Named {
    vec![
        (
            "Timeseries",
            object(&[
                ("store", of("Store"), "Who answered."),
                ("metric", words(&["tps", "ttft"]), "What it is of."),
                ("step", count(), "Seconds of each point."),
                ("points", list(of("Point")), "In the order of time."),
            ]),
        ),
        (
            "Capacity",
            object(&[
                ("name", text(), "The upstream."),
                (
                    "points",
                    list(of("CapacityPoint")),
                    "By concurrency, ascending.",
                ),
                (
                    "knee",
                    maybe(of("Knee")),
                    "Beyond it an added call brings under a tenth of what one had at first.",
                ),
                ("reason", maybe(text()), "Why there is no knee."),
            ]),
        ),
        (
            "CapacityPoint",
            object(&[
                (
                    "concurrency",
                    count(),
                    "Streams under way in the mean of a second, from their requests to their last tokens.",
                ),
                (
                    "system_tps",
                    number(),
                    "Output tokens per second of all of them together.",
                ),
                (
                    "request_tps",
                    maybe(number()),
                    "Output tokens per second of one of them while it decodes.",
                ),
                (
                    "seconds",
                    count(),
                    "Seconds seen at this concurrency, told 8 seconds later, or when calls without a token have one, at most 5 minutes later.",
                ),
            ]),
        ),
        (
            "Knee",
            object(&[
                ("concurrency", count(), "Calls under way."),
                (
                    "system_tps",
                    number(),
                    "Output tokens per second of all of them together.",
                ),
            ]),
        ),
        (
            "Point",
            object(&[
                ("at", instant(), "When it begins."),
                (
                    "calls",
                    count(),
                    "Calls that began within it and have ended.",
                ),
                ("errors", count(), "Those of them that went wrong."),
                (
                    "requests_per_second",
                    number(),
                    "Calls that began within it over its length.",
                ),
                ("p10", maybe(number()), "10 % are lower."),
                ("p50", maybe(number()), "The median."),
                ("p90", maybe(number()), "10 % are higher."),
                ("p99", maybe(number()), "1 % are higher."),
                (
                    "tokens_per_second",
                    maybe(number()),
                    "Tokens generated within it over its length, whichever call they are of; null for times before that was kept.",
                ),
                (
                    "spread_tokens_per_second",
                    maybe(number()),
                    "What of it is of whole answers, spread over the time in which they were generated.",
                ),
            ]),
        ),
    ]
}
