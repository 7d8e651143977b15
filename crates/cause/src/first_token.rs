//! Why the first token is later: a queue, a slow prefill, or longer prompts.

use crate::call::Call;
use crate::report::{Mechanism, Signal};
use crate::signals::{quantile, sorted};

/// The largest number of calls per side for a fit, which computes the slopes of all pairs.
const MOST: usize = 150;
const LEAST: usize = 10;
/// The longest prompts must be this many times as long as the shortest. Otherwise the slope has no meaning.
const MIN_SPREAD: f64 = 2.0;
const MOSTLY: f64 = 0.6;

/// Seconds to the first token as a linear function of prompt tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    fixed: f64,
    per_token: f64,
}

impl Line {
    fn at(self, tokens: f64) -> f64 {
        self.fixed + self.per_token * tokens
    }
}

/// Finds the reason for the delay. `late` are the calls with a late first token. `others` are the remaining calls of the
/// same time.
pub(crate) fn delay(before: &[&Call], late: &[&Call], others: &[&Call], busier: bool) -> Mechanism {
    let by_engine = by_engine(before, late);
    // A queue delays short prompts as much as long ones.
    let only_long = others.len() >= LEAST && longer_prompts(others, late);
    let by_lines =
        || by_lines(before, late).filter(|found| !(only_long && *found == Mechanism::Queue));
    by_engine
        .or_else(by_lines)
        .unwrap_or(if busier && !only_long {
            Mechanism::Queue
        } else {
            Mechanism::FirstToken
        })
}

/// Decides by the prefill time that the engine reports, if most calls have one.
fn by_engine(before: &[&Call], late: &[&Call]) -> Option<Mechanism> {
    let part = |calls: &[&Call], of: fn(f64, f64) -> f64| {
        let mut known: Vec<f64> = calls
            .iter()
            .filter_map(|call| Some(of(call.first_token?, call.prefill?)))
            .collect();
        known.sort_by(f64::total_cmp);
        (known.len() >= LEAST && 2 * known.len() >= calls.len()).then(|| quantile(&known, 0.5))
    };
    let prefill = part(late, |_, prefill| prefill)? - part(before, |_, prefill| prefill)?;
    let rest = |first_token: f64, prefill: f64| (first_token - prefill).max(0.0);
    let queue = part(late, rest)? - part(before, rest)?;
    let longer = longer_prompts(before, late);
    mostly(prefill, queue).map(|found| match found {
        Mechanism::Prefill if longer => Mechanism::LongerPrompts,
        other => other,
    })
}

fn longer_prompts(before: &[&Call], late: &[&Call]) -> bool {
    let tokens = |calls| quantile(&sorted(Signal::PromptTokens, calls), 0.5);
    tokens(late) >= MIN_SPREAD * tokens(before).max(1.0)
}

fn mostly(prefill: f64, queue: f64) -> Option<Mechanism> {
    let (prefill, queue) = (prefill.max(0.0), queue.max(0.0));
    match prefill / (prefill + queue) {
        share if share >= MOSTLY => Some(Mechanism::Prefill),
        share if share <= 1.0 - MOSTLY => Some(Mechanism::Queue),
        _ => None,
    }
}

/// Decides by the slope over the prompt length. A queue delays all prompts equally; a slow prefill delays long prompts
/// more.
fn by_lines(before: &[&Call], late: &[&Call]) -> Option<Mechanism> {
    let (was, is) = (points(before), points(late));
    let base = line(&was)?;
    let tokens = sorted(Signal::PromptTokens, late);
    let usual = quantile(&sorted(Signal::PromptTokens, before), 0.5);
    let (middle, now) = (
        quantile(&tokens, 0.5),
        median(is.iter().map(|point| point.1)),
    );
    let delay = now - base.at(usual);
    let by_length = base.per_token.max(0.0) * (middle - usual);
    if delay > 0.0 && by_length >= MOSTLY * delay {
        return Some(Mechanism::LongerPrompts);
    }
    let beyond: Vec<(f64, f64)> = is
        .iter()
        .map(|(tokens, seconds)| (*tokens, seconds - base.at(*tokens)))
        .collect();
    let spread = quantile(&tokens, 0.9) >= MIN_SPREAD * quantile(&tokens, 0.1).max(1.0);
    let more = line(&beyond).filter(|_| spread)?;
    mostly(more.per_token * middle, more.fixed)
}

/// Prompt tokens and seconds to the first token of every n-th call, at most [`MOST`] calls.
fn points(calls: &[&Call]) -> Vec<(f64, f64)> {
    let known: Vec<(f64, f64)> = calls
        .iter()
        .filter_map(|call| Some((call.prompt_tokens? as f64, call.first_token?)))
        .collect();
    let step = known.len().div_ceil(MOST).max(1);
    known.into_iter().step_by(step).collect()
}

/// The Theil–Sen line: the median slope of all pairs, so that single slow calls do not tilt it.
fn line(points: &[(f64, f64)]) -> Option<Line> {
    if points.len() < LEAST {
        return None;
    }
    let slopes = points.iter().enumerate().flat_map(|(place, one)| {
        let others = points[place + 1..].iter();
        others
            .filter(|other| other.0 != one.0)
            .map(|other| (other.1 - one.1) / (other.0 - one.0))
    });
    let slopes: Vec<f64> = slopes.collect();
    let per_token = if slopes.is_empty() {
        0.0
    } else {
        median(slopes.into_iter())
    };
    let fixed = median(points.iter().map(|point| point.1 - per_token * point.0));
    Some(Line { fixed, per_token })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}
