//! A call's record.

use super::Named;
use crate::admin::api::openapi::words::{
    count, flag, instant, list, maybe, number, object, of, text, words,
};
use crate::admin::api::query_params::OUTCOMES;
use serde_json::Value;

/// What is said of an upstream.
fn upstream_facts() -> Value {
    object(&[
        ("hardware", maybe(text()), "Accelerators and how many."),
        ("quantization", maybe(text()), "How weights are stored."),
        (
            "batch_size",
            maybe(text()),
            "Sequences decoded at once, at most.",
        ),
        ("engine", maybe(text()), "The engine."),
        ("engine_version", maybe(text()), "Its version."),
        (
            "model_version",
            maybe(text()),
            "The revision of the weights.",
        ),
    ])
}

pub(super) fn schemas() -> Named {
    let outcomes = OUTCOMES.map(|outcome| outcome.as_str());
    let sources = ["list", "configured", "gpu", "reported"];
    let call = object(&[
        ("id", text(), "Our own id, sorting by start."),
        (
            "started_at",
            instant(),
            "When its request head had been read.",
        ),
        ("route", text(), "The route that matched."),
        ("upstream", text(), "The upstream it went to."),
        (
            "upstream_facts",
            maybe(of("UpstreamFacts")),
            "What the operator said of its engine and hardware then.",
        ),
        ("endpoint", maybe(text()), "The endpoint of that upstream."),
        ("dialect", text(), "The shapes on the wire."),
        ("operation", text(), "What was asked for."),
        (
            "operation_class",
            words(&["generation", "embedding", "retrieve", "other"]),
            "The class of that operation.",
        ),
        ("method", maybe(text()), "The request's method."),
        (
            "path",
            maybe(text()),
            "The request's path without its query, identifiers replaced.",
        ),
        ("model_requested", maybe(text()), "The model asked for."),
        ("model", maybe(text()), "The model that answered."),
        (
            "streamed",
            maybe(flag()),
            "Whether the answer came as a stream.",
        ),
        ("status", maybe(count()), "The HTTP status."),
        ("outcome", of("Outcome"), "How it ended."),
        ("error_type", maybe(text()), "The kind of error."),
        (
            "finish_reasons",
            list(text()),
            "Why each choice ended, as sent.",
        ),
        ("session", maybe(text()), "The session the agent named."),
        (
            "session_guess",
            maybe(words(&["prompt_cache_key", "trace", "prefix"])),
            "What the session is guessed by; null where somebody names it.",
        ),
        ("agent", maybe(text()), "The agent, by its own name."),
        (
            "parent_agent",
            maybe(text()),
            "The agent that started this one.",
        ),
        (
            "user",
            maybe(text()),
            "The user, hashed unless configured otherwise.",
        ),
        ("workload", maybe(text()), "The workload."),
        (
            "experiment",
            maybe(text()),
            "The experiment the agent named.",
        ),
        ("variant", maybe(text()), "The variant of the experiment."),
        ("trace_id", maybe(text()), "The W3C trace."),
        (
            "hop",
            maybe(count()),
            "How many proxies of this kind the call had passed before.",
        ),
        (
            "response_id",
            maybe(text()),
            "The provider's id of the response.",
        ),
        (
            "service_tier",
            maybe(text()),
            "The service tier that was served, else the one asked for.",
        ),
        ("warm_up", flag(), "Whether the upstream had just come up."),
        ("tokens", of("CallTokens"), "Token counts."),
        ("seconds", of("CallSeconds"), "Durations."),
        (
            "tps",
            of("CallTps"),
            "Speeds in normalised tokens per second.",
        ),
        ("frames", count(), "Frames that carried generated text."),
        (
            "stalls",
            count(),
            "Gaps between them over the stall threshold.",
        ),
        (
            "segments",
            list(of("SpeedSegment")),
            "The speed within a long stream, by ten seconds.",
        ),
        (
            "first_token_event",
            maybe(count()),
            "Index of the event with the first generated text.",
        ),
        ("bytes", of("CallBytes"), "Body sizes."),
        (
            "cost_usd",
            maybe(number()),
            "Cost; unknown without a price.",
        ),
        ("cost_source", maybe(words(&sources)), "Whose price it is."),
        (
            "engine",
            maybe(of("EngineReport")),
            "The engine's own measurement.",
        ),
    ]);
    vec![
        ("Outcome", words(&outcomes)),
        ("Call", call),
        ("UpstreamFacts", upstream_facts()),
        (
            "CallTokens",
            object(&[
                (
                    "normalised",
                    of("Normalised"),
                    "o200k_base tokens of the text that came.",
                ),
                ("reported", of("Usage"), "The provider's own usage."),
                (
                    "source",
                    maybe(words(&["reported", "counted", "estimated"])),
                    "Which to account with.",
                ),
            ]),
        ),
        (
            "Normalised",
            object(&[
                ("answer", maybe(count()), "Visible text."),
                ("reasoning", maybe(count()), "Reasoning."),
                ("tool_call", maybe(count()), "Arguments of tool calls."),
                ("output", maybe(count()), "All channels."),
                (
                    "input",
                    maybe(count()),
                    "The request's texts, where the provider did not report.",
                ),
            ]),
        ),
        (
            "Usage",
            object(&[
                ("input", maybe(count()), "All input."),
                ("cached_input", maybe(count()), "Read from a cache."),
                ("cache_write", maybe(count()), "Written to a cache."),
                ("output", maybe(count()), "All output."),
                ("reasoning", maybe(count()), "Spent on reasoning."),
            ]),
        ),
        (
            "CallSeconds",
            object(&[
                ("ttft", maybe(number()), "Time to first token."),
                (
                    "ttft_upstream",
                    maybe(number()),
                    "The upstream's share of it.",
                ),
                (
                    "first_answer",
                    maybe(number()),
                    "Until the first token other than reasoning.",
                ),
                ("connect", maybe(number()), "Until a connection was ready."),
                (
                    "upload",
                    maybe(number()),
                    "Until the request had been passed on, from there.",
                ),
                ("last_token", maybe(number()), "Until the last token."),
                (
                    "longest_gap",
                    maybe(number()),
                    "Between frames with generated text.",
                ),
                ("duration", maybe(number()), "Until the end."),
                (
                    "agent_blocked",
                    maybe(number()),
                    "Waited, while tokens came, for an agent that did not read.",
                ),
            ]),
        ),
        (
            "CallTps",
            object(&[
                ("output", maybe(number()), "Decode speed."),
                ("answer", maybe(number()), "Decode speed without reasoning."),
                ("total", maybe(number()), "Prefill included."),
                (
                    "unavailable",
                    maybe(text()),
                    "Why there is no decode speed.",
                ),
                (
                    "reported",
                    maybe(number()),
                    "Decode speed in the provider's tokens.",
                ),
                (
                    "prefill",
                    maybe(number()),
                    "Input tokens per second of prefill.",
                ),
                (
                    "total_unavailable",
                    maybe(text()),
                    "Why there is no speed with prefill included.",
                ),
            ]),
        ),
        (
            "SpeedSegment",
            object(&[
                ("tokens", count(), "Normalised tokens that came within it."),
                ("seconds", number(), "How long it was."),
            ]),
        ),
        (
            "CallBytes",
            object(&[
                ("request", count(), "Of the request body."),
                ("response", count(), "Of the response body."),
            ]),
        ),
        (
            "EngineReport",
            object(&[
                ("prompt_tokens", maybe(count()), "Prompt tokens evaluated."),
                ("prompt_seconds", maybe(number()), "Of prefill."),
                ("output_tokens", maybe(count()), "Tokens generated."),
                ("output_seconds", maybe(number()), "Of decoding."),
                ("load_seconds", maybe(number()), "Of loading the model."),
                ("total_seconds", maybe(number()), "In all."),
            ]),
        ),
    ]
}
