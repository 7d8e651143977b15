//! The process, calls under way, objectives.

use super::Named;
use crate::admin::api::openapi::words::{
    count, flag, instant, list, map_of, maybe, number, object, of, text, words,
};
use serde_json::Value;

pub(super) fn schemas() -> Named {
    [streams(), objectives(), process()].concat()
}

fn streams() -> Named {
    let stream = object(&[
        ("id", text(), "The call."),
        ("route", text(), "The route."),
        ("upstream", text(), "The upstream."),
        (
            "model",
            maybe(text()),
            "The model that answers, else the one asked for.",
        ),
        (
            "workload",
            maybe(text()),
            "Its workload, as far as it is known.",
        ),
        ("session", maybe(text()), "The session the agent named."),
        ("agent", maybe(text()), "The agent."),
        ("started_at", instant(), "When it began."),
        ("seconds", number(), "Since then."),
        ("tokens", of("TokensNow"), "Tokens so far."),
        (
            "tps",
            maybe(number()),
            "Tokens per second over the last 5 seconds that are measured; 0 in a stall.",
        ),
        (
            "last_gap",
            maybe(number()),
            "Seconds between the last two frames with tokens.",
        ),
        ("silent", maybe(number()), "Seconds since the last of them."),
    ]);
    let tokens = object(&[
        ("answer", count(), "Visible text."),
        ("reasoning", count(), "Reasoning."),
        ("tool_call", count(), "Arguments of tool calls."),
        ("output", count(), "All channels."),
    ]);
    let throughput = object(&[
        (
            "now",
            number(),
            "Tokens per second over the last 10 seconds that are measured, up to 3 seconds ago.",
        ),
        (
            "peak",
            number(),
            "The largest over 10 seconds on end within 5 minutes, of all together; 0 where an agent or a session is asked for.",
        ),
        (
            "sustained",
            number(),
            "The mean of 5 minutes, or since the first call; 0 where an agent or a session is asked for.",
        ),
        (
            "spread",
            of("SpreadThroughput"),
            "What of them is of whole answers.",
        ),
    ]);
    let spread = object(&[
        (
            "now",
            number(),
            "Of answers that came whole, spread over the time in which they were generated. Known when they end.",
        ),
        ("sustained", number(), "The same over 5 minutes."),
    ]);
    vec![
        ("Stream", stream),
        ("TokensNow", tokens),
        ("Throughput", throughput),
        ("SpreadThroughput", spread),
    ]
}

fn attainment() -> Value {
    object(&[
        (
            "month",
            text(),
            "Such as 2026-10; it begins and ends in UTC.",
        ),
        ("over", flag(), "Whether it is over."),
        ("good", count(), "Good events."),
        ("bad", count(), "Bad events."),
        ("excluded", count(), "Events that count neither way."),
        ("ratio", maybe(number()), "The share of good ones."),
        (
            "attained",
            maybe(flag()),
            "Whether that is at least the objective.",
        ),
    ])
}

fn objectives() -> Named {
    let slo = object(&[
        ("name", text(), "Its name."),
        ("promise", text(), "What is promised, in words."),
        ("description", maybe(text()), "What it is about."),
        ("objective", number(), "The share of good events promised."),
        ("window", text(), "Over which time."),
        (
            "event",
            text(),
            "What an event is: request, token, or the length of a slice.",
        ),
        ("select", of("Selector"), "Which calls count."),
        ("good", number(), "Good events of the window."),
        ("bad", number(), "Bad events of the window."),
        ("ratio", maybe(number()), "The share of good ones."),
        (
            "budget_remaining",
            number(),
            "1 is untouched, 0 spent, below 0 overspent.",
        ),
        (
            "exhausted_in_seconds",
            maybe(number()),
            "Until the budget is spent at the pace of the last hour.",
        ),
        (
            "burn",
            list(of("Burn")),
            "How fast the budget is spent, by window.",
        ),
        (
            "alerts",
            list(of("Alert")),
            "The pairs of windows that alerts look at.",
        ),
        (
            "events",
            map_of(map_of(count())),
            "Events by verdict and reason since the process started.",
        ),
        (
            "spent_by",
            list(of("Spent")),
            "The last calls that spent budget.",
        ),
        (
            "months",
            list(of("Attainment")),
            "Every calendar month with events, oldest first: 13 that are over, and this one.",
        ),
    ]);
    vec![
        ("Slo", slo),
        ("Attainment", attainment()),
        (
            "Selector",
            object(&[
                ("workload", maybe(text()), "The workload."),
                ("route", maybe(text()), "The route."),
                ("upstream", maybe(text()), "The upstream."),
                (
                    "model",
                    maybe(text()),
                    "The model; * stands for any characters.",
                ),
                (
                    "agent",
                    maybe(text()),
                    "The agent; * stands for any characters.",
                ),
            ]),
        ),
        (
            "Burn",
            object(&[
                ("window", text(), "Its length."),
                (
                    "rate",
                    number(),
                    "1 spends the budget exactly in its period.",
                ),
            ]),
        ),
        (
            "Alert",
            object(&[
                ("severity", words(&["page", "ticket"]), "How loud."),
                ("long", text(), "The window that tells that it matters."),
                (
                    "short",
                    text(),
                    "The window that tells that it still goes on.",
                ),
                ("factor", number(), "The burn rate above which it fires."),
                (
                    "unreachable",
                    maybe(number()),
                    "The factor that was meant, where it could never be reached.",
                ),
                ("burn_long", number(), "The burn rate over the long window."),
                (
                    "burn_short",
                    number(),
                    "The burn rate over the short window.",
                ),
                ("firing", flag(), "Whether both are above the factor."),
            ]),
        ),
        (
            "Spent",
            object(&[
                ("at", instant(), "When."),
                ("call", text(), "The call."),
                ("trace_id", maybe(text()), "Its trace."),
                ("reason", text(), "Why it was bad."),
                ("value", maybe(number()), "The indicator's value."),
                ("events", count(), "Calls or tokens."),
            ]),
        ),
    ]
}

fn process() -> Named {
    vec![
        (
            "About",
            object(&[
                ("version", text(), "Of the program."),
                ("started_at", instant(), "Since when it runs."),
                ("listeners", list(of("Listener")), "Where agents connect."),
                (
                    "routes",
                    list(of("Way")),
                    "Which requests go where; the first that matches wins.",
                ),
                ("measure", of("Measure"), "Settings that numbers depend on."),
                ("ready", flag(), "Whether traffic is welcome."),
            ]),
        ),
        (
            "Listener",
            object(&[
                ("address", text(), "The address."),
                ("tls", flag(), "Whether it speaks TLS."),
            ]),
        ),
        (
            "Way",
            object(&[
                ("name", text(), "The route."),
                ("path", text(), "The prefix of its paths."),
                ("host", maybe(text()), "The host that requests must name."),
                (
                    "headers",
                    list(text()),
                    "The headers that requests must have.",
                ),
                (
                    "dialect",
                    maybe(text()),
                    "The dialect, where the path does not tell it.",
                ),
                ("workload", maybe(text()), "The workload of its calls."),
                ("upstream", text(), "The upstream."),
                ("urls", list(text()), "Its endpoints."),
                (
                    "upstream_facts",
                    maybe(of("UpstreamFacts")),
                    "What is said of its engine and hardware.",
                ),
            ]),
        ),
        (
            "Measure",
            object(&[
                (
                    "min_output_tokens",
                    count(),
                    "Fewer tokens after the first frame give no decode speed.",
                ),
                (
                    "buffered_above",
                    number(),
                    "Tokens per second that no model reaches.",
                ),
                (
                    "stall_threshold",
                    number(),
                    "Seconds without a token that are a stall.",
                ),
                ("recent_calls", count(), "Finished calls kept in memory."),
            ]),
        ),
    ]
}
