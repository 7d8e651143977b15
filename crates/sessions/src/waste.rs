//! What failures, retries and repetition cost a session.

use crate::call_sums::CallSums;
use crate::session::Session;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Calls of a session that brought it no further.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Waste {
    /// Calls that failed.
    pub failed: CallSums,
    /// Calls that sent a request again after it had failed.
    pub retried: CallSums,
    /// Number of calls whose response repeats the same text.
    pub repetitive_calls: usize,
    /// Output tokens of these repetitions.
    pub repeated_tokens: u64,
}

pub(crate) fn waste(session: &Session<'_>) -> Waste {
    let calls = || session.calls().iter();
    let repetitions = calls().filter_map(|call| call.record.repetition.as_deref());
    Waste {
        failed: CallSums::of(calls().filter(|call| call.failed())),
        retried: CallSums::of(calls().filter(|call| call.record.retry_of.is_some())),
        repetitive_calls: repetitions.clone().count(),
        repeated_tokens: repetitions.map(|repetition| repetition.tokens).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::{TestCall, session_of};
    use tokengauge_core::call::{CallRecord, Outcome};
    use tokengauge_core::prompt::Repetition;

    #[test]
    fn a_failure_its_retry_and_a_repetition_are_counted_apart() {
        let call = |id, start| CallRecord {
            cost_usd: Some(0.5),
            ..TestCall {
                input: Some((90, None, None)),
                ..TestCall::new(id, "main", start, start + 1.0)
            }
            .record()
        };
        let repetition = Repetition {
            tokens: 7,
            ..Repetition::default()
        };
        let records = [
            CallRecord {
                outcome: Outcome::HttpError,
                ..call("a", 0.0)
            },
            CallRecord {
                retry_of: Some("a".to_owned()),
                ..call("b", 2.0)
            },
            CallRecord {
                repetition: Some(Box::new(repetition)),
                ..call("c", 4.0)
            },
        ];
        let found = waste(&session_of(&records));
        let told = |sums: &CallSums| (sums.calls, sums.tokens(), sums.cost_usd);
        assert_eq!(told(&found.failed), (1, 100, Some(0.5)));
        assert_eq!(told(&found.retried), (1, 100, Some(0.5)));
        assert_eq!((found.repetitive_calls, found.repeated_tokens), (1, 7));
    }
}
