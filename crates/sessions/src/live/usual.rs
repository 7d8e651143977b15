//! The usual rates of sessions of one kind.

use super::Rates;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokengauge_core::call::CallRecord;

/// The usual rates are valid for this long per followed session, which is 10 s for ten thousand
/// sessions. So their computation takes a small part of the time.
const CURRENT: Duration = Duration::from_millis(1);

/// Sessions are compared within a kind: the workload and the agent of their last call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SessionKind {
    workload: Option<Box<str>>,
    agent: Option<Box<str>>,
}

impl SessionKind {
    pub(super) fn of(record: &CallRecord) -> SessionKind {
        SessionKind {
            workload: record.workload.as_deref().map(Box::from),
            agent: record.agent.as_deref().map(Box::from),
        }
    }
}

/// The medians of the kinds with enough sessions.
#[derive(Debug, Default)]
pub(super) struct Usual {
    /// The time until which the medians are valid.
    until: Option<Instant>,
    medians: HashMap<SessionKind, Rates>,
}

impl Usual {
    /// The medians of the highest rates of the sessions. A kind with fewer than `min_sessions` has
    /// no median.
    pub(super) fn among<'a>(
        sessions: impl Iterator<Item = (&'a SessionKind, Rates)>,
        min_sessions: usize,
        now: Instant,
    ) -> Usual {
        let mut kinds: HashMap<&SessionKind, Vec<Rates>> = HashMap::new();
        let mut holds = Duration::ZERO;
        for (kind, rates) in sessions {
            holds += CURRENT;
            kinds.entry(kind).or_default().push(rates);
        }
        let enough = kinds
            .into_iter()
            .filter(|(_, all)| all.len() >= min_sessions);
        let medians = enough.map(|(kind, all)| {
            let rates = Rates {
                tokens: median(all.iter().map(|rates| rates.tokens)),
                usd: median(all.iter().map(|rates| rates.usd)),
            };
            (kind.clone(), rates)
        });
        Usual {
            until: Some(now + holds),
            medians: medians.collect(),
        }
    }

    pub(super) fn of(&self, kind: &SessionKind) -> Option<Rates> {
        self.medians.get(kind).copied()
    }

    pub(super) fn is_old(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }
}

/// The lower median; 0 without values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    let middle = values.len().saturating_sub(1) / 2;
    if values.is_empty() {
        0.0
    } else {
        *values.select_nth_unstable_by(middle, f64::total_cmp).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_with_enough_sessions_have_a_median() {
        let kind = |agent: &str| SessionKind {
            workload: None,
            agent: Some(agent.into()),
        };
        let (coder, chat) = (kind("coder"), kind("chat"));
        let rates = |tokens| Rates {
            tokens,
            usd: tokens / 10.0,
        };
        let of_coder = [5.0, 900.0, 7.0].map(|tokens| (&coder, rates(tokens)));
        let of_chat = [(&chat, rates(3.0))];
        let now = Instant::now();
        let usual = Usual::among(of_coder.into_iter().chain(of_chat), 3, now);
        assert_eq!(usual.of(&coder), Some(rates(7.0)));
        assert_eq!(usual.of(&chat), None);
        assert!(!usual.is_old(now) && usual.is_old(now + 4 * CURRENT));
        assert!(Usual::default().is_old(now));
    }
}
