//! The cause in one sentence.

use crate::call::Dimension;
use crate::report::{
    CallBasis, Cause, ComparedWith, Load, MIN_BAD, MIN_CALLS, Mechanism, MinuteBasis, Moved,
    Quantile, Rates, Signal, ThroughputChange,
};
use tokengauge_core::time::whole_seconds_since_1970;

/// `may_have_begun` is true if the newest calls may be bad for another reason, and are too few to decide that.
pub(crate) fn sentence(cause: &Cause, basis: &CallBasis, may_have_begun: bool) -> String {
    if !cause.known {
        return unknown(cause, basis, may_have_begun);
    }
    let mut parts = vec![who(cause, basis)];
    let main = cause.mechanism.and_then(signal);
    let mut moved: Vec<&Moved> = cause
        .moved
        .iter()
        .filter(|one| is_shown(one.signal))
        .collect();
    moved.sort_by_key(|one| Some(one.signal) != main);
    parts.extend(moved.into_iter().map(|moved| clause(cause, moved)));
    parts.extend(
        cause
            .load
            .as_ref()
            .filter(|load| !is_named(cause, load))
            .map(sends),
    );
    let waits = [Signal::FirstToken, Signal::InterTokenGap];
    let same: Vec<String> = waits
        .into_iter()
        .filter(|signal| cause.unchanged.contains(signal))
        .map(|signal| format!("{} unchanged", noun(signal)))
        .collect();
    parts.extend(same);
    let mut text = parts.join("; ");
    match cause.mechanism {
        Some(found) => {
            let error = cause.error.as_ref();
            let error = error.map_or(String::new(), |error| format!(", mostly {error}"));
            text.push_str(&format!(": {}{error}.", in_words(found, cause)));
        }
        None => text.push_str(": the reason is not known."),
    }
    text
}

pub(crate) fn of_throughput(cause: &Cause, basis: &MinuteBasis) -> String {
    let Some(ThroughputChange { before, now }) = basis.change else {
        return format!(
            "The cause is not known: {} of {} minutes are bad, and throughput did not fall in the observed time.",
            basis.bad, basis.all
        );
    };
    let fell = format!(
        "tokens per second went from {} to {}{}",
        rate(before.tokens_per_second),
        rate(now.tokens_per_second),
        since(cause)
    );
    let calls = |rates: Rates| {
        let each = rates.of_each().map_or(String::new(), |each| {
            format!(" with {} tokens/s each", rate(each))
        });
        format!("{}{each}", rate(rates.under_way))
    };
    let under_way = format!("calls in flight {}, now {}", calls(before), calls(now));
    let fewer = matches!(
        cause.mechanism,
        Some(Mechanism::FewerCalls | Mechanism::ShorterAnswers)
    );
    let moved = cause.moved.iter().filter(|one| is_shown(one.signal));
    let moved = moved.filter(|_| !fewer).map(|one| clause(cause, one));
    let whose = cause.dimension.zip(cause.value.as_ref()).zip(basis.shares);
    let whose = whose.map(|((dimension, value), shares)| {
        format!(
            "{} of the loss is {} ({} of the tokens before)",
            percent(shares.of_lost.min(1.0)),
            kind(dimension, value),
            percent(shares.before)
        )
    });
    let parts: Vec<String> = whose.into_iter().chain([under_way]).chain(moved).collect();
    let parts = parts.join("; ");
    if !cause.known {
        return format!(
            "The cause is not known: {fell}; {parts}; no model, route, agent or node lost much more than its share."
        );
    }
    let begin = fell.replacen('t', "T", 1);
    match cause.mechanism {
        Some(found) => {
            let error = cause.error.as_ref();
            let error = error.map_or(String::new(), |error| format!(", mostly {error}"));
            format!("{begin}; {parts}: {}{error}.", in_words(found, cause))
        }
        None => format!("{begin}; {parts}: the reason is not known."),
    }
}

fn rate(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

fn unknown(cause: &Cause, basis: &CallBasis, may_have_begun: bool) -> String {
    let counts = format!("{} of {} calls are bad", basis.bad, basis.all);
    if basis.all < MIN_CALLS || basis.bad < MIN_BAD {
        return format!(
            "The cause is not known: there are too few calls. {counts}, and at least {MIN_BAD} bad calls of {MIN_CALLS} \
             are needed."
        );
    }
    if may_have_begun {
        return format!(
            "The cause is not known yet: {counts}; the newest calls may be bad for another reason, and there are too few \
             of them to decide."
        );
    }
    let moved = cause.moved.iter().map(|moved| clause(cause, moved));
    let moved: Vec<String> = moved.collect();
    let moved = if moved.is_empty() {
        "no phase became slower".to_owned()
    } else {
        format!(
            "the changes do not explain the bad calls ({})",
            moved.join("; ")
        )
    };
    format!(
        "The cause is not known: {counts}{}; no upstream, model, route, agent, node, prompt length or concurrency has much \
         more than its share of bad calls, and {moved}.",
        since(cause)
    )
}

/// “92 % of bad calls are upstream vllm-a (48 % of all calls) since 22:01:13 UTC”.
fn who(cause: &Cause, basis: &CallBasis) -> String {
    let (Some(dimension), Some(value), Some(shares)) =
        (cause.dimension, &cause.value, basis.shares)
    else {
        return format!(
            "{} of {} calls are bad{}, and no upstream, model, route, agent or node stands out",
            basis.bad,
            basis.all,
            since(cause)
        );
    };
    let before = shares
        .before
        .filter(|before| (before - shares.of_all).abs() >= 0.1)
        .map_or(String::new(), |before| {
            format!(", {} before", percent(before))
        });
    let besides = basis.besides.as_ref().map_or(String::new(), |besides| {
        format!(", mostly with {}", kind(besides.dimension, &besides.value))
    });
    format!(
        "{} of bad calls are {} ({} of all calls{before}){besides}{}",
        percent(shares.of_bad),
        kind(dimension, value),
        percent(shares.of_all),
        since(cause)
    )
}

fn kind(dimension: Dimension, value: &str) -> String {
    let least = value.trim_start_matches(">= ");
    match dimension {
        Dimension::PromptLength => {
            format!(
                "prompts of {} or more tokens",
                least.trim_start_matches("over ")
            )
        }
        Dimension::Concurrency => format!("{least} or more calls in flight"),
        name => format!("{} {value}", name.in_words()),
    }
}

fn since(cause: &Cause) -> String {
    let Some(since) = cause.since else {
        return " over the whole observed time".to_owned();
    };
    let seconds = whole_seconds_since_1970(since.time());
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!(" since {hour:02}:{minute:02}:{second:02} UTC")
}

/// Whether the sentence shows a signal. The first token says more than the connection where a delay begins.
fn is_shown(signal: Signal) -> bool {
    signal != Signal::ColdStarts
}

fn signal(mechanism: Mechanism) -> Option<Signal> {
    match mechanism {
        Mechanism::Errors => Some(Signal::Errors),
        Mechanism::ColdStart => Some(Signal::ColdStarts),
        Mechanism::Connect => Some(Signal::Connect),
        Mechanism::Queue
        | Mechanism::Prefill
        | Mechanism::FirstToken
        | Mechanism::LongerPrompts => Some(Signal::FirstToken),
        Mechanism::Decode => Some(Signal::InterTokenGap),
        Mechanism::Stalls => Some(Signal::Stalls),
        Mechanism::Traffic | Mechanism::FewerCalls | Mechanism::ShorterAnswers => None,
    }
}

fn noun(signal: Signal) -> &'static str {
    match signal {
        Signal::Errors => "calls with errors",
        Signal::Connect => "connecting",
        Signal::FirstToken => "first token",
        Signal::InterTokenGap => "inter-token gap",
        Signal::Stalls => "streams with stalls",
        Signal::Concurrency => "calls in flight",
        Signal::PromptTokens => "prompts",
        Signal::ColdStarts => "cold starts",
    }
}

/// “inter-token gap 3.1 times as long (20 ms, now 62 ms)”.
fn clause(cause: &Cause, moved: &Moved) -> String {
    let (than, then, this) = match cause.compared_with {
        Some(ComparedWith::Others) => (" as for other calls", "others", "these"),
        _ => ("", "before", "now"),
    };
    let (noun, before, now) = (noun(moved.signal), moved.before, moved.now);
    let figure = |value: f64| match moved.signal {
        Signal::Concurrency => format!("{value:.0}"),
        Signal::PromptTokens => format!("{value:.0} tokens"),
        _ if moved.of == Quantile::Share => percent(value),
        _ => seconds(value),
    };
    let which = match moved.of {
        Quantile::P50 => "",
        Quantile::P90 => " at the 90th percentile",
        Quantile::Share => return format!("{noun} {}, {then} {}", figure(now), figure(before)),
    };
    let ratio = moved.ratio().filter(|ratio| ratio.is_finite());
    let ratio = ratio.map_or("more".to_owned(), |ratio| match moved.signal {
        Signal::Concurrency => format!("{ratio:.1} times as many"),
        _ => format!("{ratio:.1} times as long"),
    });
    format!(
        "{noun}{which} {ratio}{than} ({}, {this} {})",
        figure(before),
        figure(now)
    )
}

fn is_named(cause: &Cause, load: &Load) -> bool {
    cause.dimension == Some(load.dimension) && cause.value.as_ref() == Some(&load.value)
}

fn sends(load: &Load) -> String {
    let Load {
        dimension,
        value,
        share_before,
        share_now,
        growth,
    } = load;
    format!(
        "{growth:.1} times as many calls as before, {} of them {} ({} before)",
        percent(*share_now),
        kind(*dimension, value),
        percent(*share_before)
    )
}

fn in_words(mechanism: Mechanism, cause: &Cause) -> &'static str {
    let first_same = cause.unchanged.contains(&Signal::FirstToken);
    let gap_same = cause.unchanged.contains(&Signal::InterTokenGap);
    match mechanism {
        Mechanism::Errors => "errors",
        Mechanism::ColdStart => "a cold start",
        Mechanism::Connect => "connecting to the upstream",
        Mechanism::Queue if cause.load.is_some() => "queueing, since there are more calls",
        Mechanism::Queue if gap_same => "queueing, not decoding",
        Mechanism::Queue => "queueing",
        Mechanism::Prefill if gap_same => "prefill, not queueing or decoding",
        Mechanism::Prefill => "prefill, not queueing",
        Mechanism::FirstToken => "queueing or prefill, which cannot be distinguished here",
        Mechanism::LongerPrompts if cause.compared_with == Some(ComparedWith::Others) => {
            "long prompts"
        }
        Mechanism::LongerPrompts => "longer prompts",
        Mechanism::Decode if first_same => "decoding, not queueing",
        Mechanism::Decode => "decoding",
        Mechanism::Stalls => "stalls",
        Mechanism::Traffic => "more calls of a kind that was already bad before",
        Mechanism::FewerCalls => "fewer calls are made, and each is as fast as before",
        Mechanism::ShorterAnswers => "shorter answers",
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn seconds(value: f64) -> String {
    match value {
        value if value < 1.0 => format!("{:.0} ms", value * 1_000.0),
        value => format!("{value:.1} s"),
    }
}
