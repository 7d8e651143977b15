//! One sentence that says what changed, when and why, or that it is not known.

use crate::report::{ChangePoint, DriftState, Figures, Series, SignalDrift, Why};
use crate::signal::SignalName;

/// A decomposition is reported only up to this share of calls with unknown class.
const MOST_UNKNOWN: f64 = 0.2;
/// A mean is unchanged if it changed by less than this share.
const SAME_MEAN: f64 = 0.05;

/// The sentence of a series whose other fields are set. A part of a mean below the share `min_change` is small.
pub(crate) fn sentence(series: &Series, min_change: f64) -> String {
    if let Some(replaced) = &series.replaced {
        let model = series.model.as_deref().unwrap_or("another model");
        let (old, since) = (&replaced.model, &replaced.since);
        return format!(
            "Model replaced: {model} answers instead of {old} since {since}. {}",
            learning(series)
        );
    }
    match series.state {
        DriftState::Learning => learning(series),
        DriftState::Stable => stable(series),
        DriftState::Drifted => drifted(series, min_change),
    }
}

fn learning(series: &Series) -> String {
    let mut reasons = series
        .signals
        .iter()
        .filter_map(|one| one.learning.as_ref());
    match reasons.next() {
        Some(reason) => format!("Whether a signal has drifted is not known yet: {reason}."),
        None => "Whether a signal has drifted is not known yet: there are no calls.".to_owned(),
    }
}

fn stable(series: &Series) -> String {
    let outcomes = of(series, SignalName::Outcome);
    let size = |figures: Option<Figures>| {
        figures.map_or("no calls".to_owned(), |figures| {
            format!(
                "{:.0} calls of {:.0} sessions",
                figures.calls, figures.sessions
            )
        })
    };
    let now = size(outcomes.and_then(|found| found.current));
    let then = size(outcomes.and_then(|found| found.reference));
    format!("Nothing has drifted: {now} now, {then} in the reference.")
}

fn drifted(series: &Series, min_change: f64) -> String {
    let mut parts: Vec<String> = series
        .signals
        .iter()
        .filter(|one| one.state == DriftState::Drifted)
        .filter(|one| one.bucket.is_none() || !has_drifted(series, one.signal))
        .map(|one| clause(series, one))
        .collect();
    parts.extend(unchanged_ttft(series));
    let decomposed = series.why.iter().filter(|why| {
        series
            .signals
            .iter()
            .any(|one| one.signal == why.signal && one.state == DriftState::Drifted)
    });
    parts.extend(decomposed.map(|why| because(series, why, min_change)));
    let mut text = parts.join("; ");
    text.push('.');
    capitalised(&text)
}

fn of(series: &Series, signal: SignalName) -> Option<&SignalDrift> {
    let mut signals = series.signals.iter();
    signals.find(|one| one.signal == signal && one.bucket.is_none())
}

fn has_drifted(series: &Series, signal: SignalName) -> bool {
    of(series, signal).is_some_and(|one| one.state == DriftState::Drifted)
}

/// “prompts about doubled (mean 1204 → 2420 tokens) at 2026-11-25T14:00:00Z”.
fn clause(series: &Series, one: &SignalDrift) -> String {
    let bucket = one.bucket.as_ref().map_or(String::new(), |bucket| {
        let kind = match one.signal {
            SignalName::Ttft => "prompts",
            _ => "concurrency",
        };
        format!(" ({kind} {bucket})")
    });
    let (Some(was), Some(is)) = (one.reference, one.current) else {
        return format!("{}{bucket} changed", noun(one.signal));
    };
    let what = if one.signal.is_mix() {
        mix_of(one, was, is)
    } else {
        format!(
            "{}{bucket} {}",
            noun(one.signal),
            moved(one.signal, was, is)
        )
    };
    format!("{what} {}", when(series, one, is.mean - was.mean))
}

fn mix_of(one: &SignalDrift, was: Figures, is: Figures) -> String {
    let share = percent(one.distance.unwrap_or_default());
    let (what, kind) = match one.signal {
        SignalName::Outcome => ("calls end", "complete"),
        _ => ("finish reasons are", "stop"),
    };
    let rest = match one.signal {
        SignalName::Outcome => "differently",
        _ => "different",
    };
    let (was, is) = (percent(was.mean), percent(is.mean));
    format!("{share} of {what} {rest} ({kind}: {was} → {is})")
}

fn when(series: &Series, one: &SignalDrift, direction: f64) -> String {
    let same = |point: &&ChangePoint| {
        point.signal == one.signal
            && point.change.is_sign_positive() == direction.is_sign_positive()
    };
    match series.change_points.iter().rev().find(same) {
        Some(point) => format!("at {}", point.at),
        None => "(start unknown)".to_owned(),
    }
}

fn noun(signal: SignalName) -> &'static str {
    match signal {
        SignalName::InputTokens => "prompts",
        SignalName::CachedInputTokens => "cached input",
        SignalName::OutputTokens => "answers",
        SignalName::Ttft => "TTFT",
        SignalName::Tps => "TPS",
        SignalName::TokenRatio => "reported ÷ counted tokens",
        SignalName::Outcome => "outcomes",
        SignalName::FinishReason => "finish reasons",
    }
}

fn unit(signal: SignalName) -> &'static str {
    match signal {
        SignalName::InputTokens | SignalName::CachedInputTokens | SignalName::OutputTokens => {
            " tokens"
        }
        SignalName::Ttft => " s",
        SignalName::Tps => " tokens/s",
        _ => "",
    }
}

fn moved(signal: SignalName, was: Figures, is: Figures) -> String {
    let ratio = if was.mean > 0.0 {
        is.mean / was.mean
    } else {
        f64::INFINITY
    };
    let how = match ratio {
        _ if !ratio.is_finite() => "appeared".to_owned(),
        1.8..2.2 => "about doubled".to_owned(),
        0.45..0.55 => "about halved".to_owned(),
        _ if ratio >= 1.0 + SAME_MEAN => format!("rose by {}", percent(ratio - 1.0)),
        _ if ratio <= 1.0 - SAME_MEAN => format!("fell by {}", percent(1.0 - ratio)),
        _ => "changed its spread but not its mean".to_owned(),
    };
    let (was, is) = (number(was.mean), number(is.mean));
    format!("{how} (mean {was} → {is}{})", unit(signal))
}

fn unchanged_ttft(series: &Series) -> Option<String> {
    let stable = series
        .signals
        .iter()
        .filter(|one| one.signal == SignalName::Ttft)
        .all(|one| one.state != DriftState::Drifted);
    let known = of(series, SignalName::Ttft).is_some_and(|one| one.state == DriftState::Stable);
    (has_drifted(series, SignalName::InputTokens) && stable && known)
        .then(|| "TTFT is unchanged".to_owned())
}

impl ChangePoint {
    /// The jump and its size, such as “prompts rose by 98 % (median 1204 → 2420 tokens)”.
    pub fn sentence(&self) -> String {
        let signal = self.signal;
        let how = if self.change < 0.0 { "fell" } else { "rose" };
        let by = percent(self.change.abs());
        match signal {
            SignalName::Outcome => format!(
                "the share of complete calls {how} ({} → {})",
                percent(self.before),
                percent(self.after)
            ),
            _ => format!(
                "{} {how} by {by} (median {} → {}{})",
                noun(signal),
                number(self.before),
                number(self.after),
                unit(signal)
            ),
        }
    }
}

fn because(series: &Series, why: &Why, min_change: f64) -> String {
    let (name, equal) = match why.signal {
        SignalName::Ttft => ("TTFT", "prompt length"),
        _ => ("TPS", "concurrency"),
    };
    let unknown = why.strata.iter().find(|one| one.name == "unknown");
    if let Some(one) = unknown.filter(|one| one.share_before.max(one.share_after) > MOST_UNKNOWN) {
        let share = percent(one.share_before.max(one.share_after));
        return format!("why {name} changed is not known: {share} of calls have no known {equal}");
    }
    let unit = unit(why.signal);
    let signed = |value: f64| {
        format!(
            "{}{}{unit}",
            if value < 0.0 { "−" } else { "+" },
            number(value.abs())
        )
    };
    let (all, mix, within) = (
        signed(why.after - why.before),
        signed(why.mix),
        signed(why.within),
    );
    let small = |part: f64| part.abs() < min_change * why.before;
    match (small(why.mix), small(why.within)) {
        (true, true) => format!("why {name} changed is not known: its mean is about the same"),
        (false, true) => format!(
            "for calls with the same {equal}, {name} is unchanged; the overall mean changed by {all}, of which {mix} comes \
             from a different mix of calls"
        ),
        (_, false) if grew_within_classes(series, why) => format!(
            "the overall mean {name} changed by {all}, of which {mix} comes from a different mix of prompt lengths and \
             {within} from changes within length classes. Prompts also changed within these classes, so it is not known \
             whether {name} changed for calls with the same {equal}"
        ),
        (true, false) => {
            format!(
                "{name} changed for calls with the same {equal}: the overall mean changed by {all}, of which {within} comes \
                 from these calls"
            )
        }
        (false, false) => format!(
            "the overall mean {name} changed by {all}, of which {mix} comes from a different mix of calls and {within} from \
             calls with the same {equal}"
        ),
    }
}

/// Whether prompts changed. If so, calls of one class also differ in length, and the store has no finer classes.
fn grew_within_classes(series: &Series, why: &Why) -> bool {
    why.signal == SignalName::Ttft && has_drifted(series, SignalName::InputTokens)
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() < 10.0 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

/// Three significant digits; whole numbers from 100 up.
fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
