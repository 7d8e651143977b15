//! Which phase makes the calls bad.

use crate::call::Call;
use crate::evidence::{Tally, beyond_chance, log_likelihood_ratio};
use crate::first_token;
use crate::report::{Mechanism, Moved, Signal};
use crate::signals::quantile;

/// Errors or cold starts make calls bad if at least this share of the bad calls has them.
const MOST_BAD: f64 = 0.5;

/// If a smaller share of the calls is bad, only the bad calls are compared.
const ALL_BAD: f64 = 0.8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    pub errors: bool,
    /// The objective depends on the time to the first token.
    pub first_token: bool,
    /// The objective depends on the time from the first token to the last.
    pub decode: bool,
}

/// The most expensive phase among those that became slower and that the objective depends on.
pub(crate) fn mechanism(
    phases: Phases,
    before: &[&Call],
    now: &[&Call],
    moved: &[Moved],
) -> Option<Mechanism> {
    let has = |signal| moved.iter().any(|one| one.signal == signal);
    let bad: Vec<&Call> = now.iter().copied().filter(|call| call.bad).collect();
    let errors = Tally::of(bad.iter().copied(), |call| call.error.is_some());
    if phases.errors && has(Signal::Errors) && errors.rate() >= MOST_BAD {
        return Some(Mechanism::Errors);
    }
    if is_cold(&bad, now, has(Signal::ColdStarts)) {
        return Some(Mechanism::ColdStart);
    }
    let cost = |one: &Moved| match one.signal {
        Signal::Connect if phases.first_token => one.now - one.before,
        Signal::FirstToken if phases.first_token => one.now - one.before,
        Signal::InterTokenGap if phases.decode => (one.now - one.before) * tokens(now),
        Signal::Stalls if phases.decode => (longest_gap(now) - longest_gap(before)).max(1e-3),
        _ => 0.0,
    };
    let costs = moved.iter().map(|one| (cost(one), one));
    let (_, most) = costs
        .filter(|(cost, _)| *cost > 0.0)
        .max_by(|one, other| one.0.total_cmp(&other.0))?;
    match most.signal {
        Signal::Connect => Some(Mechanism::Connect),
        Signal::InterTokenGap => Some(Mechanism::Decode),
        Signal::Stalls => Some(Mechanism::Stalls),
        _ => {
            // If many calls are good, the bad calls show the mechanism more clearly.
            let good: Vec<&Call> = now.iter().copied().filter(|call| !call.bad).collect();
            let (late, others) = if (bad.len() as f64) < ALL_BAD * now.len() as f64 {
                (bad.as_slice(), good.as_slice())
            } else {
                (now, [].as_slice())
            };
            let busier = has(Signal::Concurrency);
            Some(first_token::delay(before, late, others, busier))
        }
    }
}

/// Whether cold starts make the calls bad. Most bad calls must be cold. Cold calls must also be bad twice as often as
/// others, beyond chance or with more cold calls than before. If nearly all calls are cold, more cold calls than before are
/// enough.
fn is_cold(bad: &[&Call], now: &[&Call], moved: bool) -> bool {
    let cold: Vec<&Call> = now.iter().copied().filter(|call| call.cold).collect();
    let of_bad = Tally::of(bad.iter().copied(), |call| call.cold);
    if of_bad.rate() < MOST_BAD {
        return false;
    }
    let its = Tally::of(cold.iter().copied(), |call| call.bad);
    let others = Tally::of(now.iter().copied(), |call| call.bad).without(its);
    let more = its.rate() >= 2.0 * others.rate();
    let evident = moved || beyond_chance(log_likelihood_ratio(its, others), 1);
    (more && evident) || (moved && others.all * 10 < its.all)
}

fn tokens(calls: &[&Call]) -> f64 {
    let tokens = calls.iter().filter_map(|call| call.output_tokens);
    let mut tokens: Vec<f64> = tokens.map(|tokens| tokens as f64).collect();
    tokens.sort_by(f64::total_cmp);
    quantile(&tokens, 0.5).max(1.0)
}

fn longest_gap(calls: &[&Call]) -> f64 {
    let known: Vec<f64> = calls.iter().filter_map(|call| call.longest_gap).collect();
    known.iter().sum::<f64>() / (known.len() as f64).max(1.0)
}

/// Whether there are more calls of a kind that was already bad before.
pub(crate) fn more_of_them(share_before: Option<f64>, share_now: f64) -> bool {
    share_before.is_some_and(|before| share_now >= 1.5 * before && share_now - before >= 0.1)
}
