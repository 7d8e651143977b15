//! The contribution of a finished call to the sums of experiments and to distributions, as whole
//! numbers. A record and a row of the ledger give equal numbers, so that sums do not depend on when
//! they are made.

use tokengauge_core::call::{CallRecord, OperationClass, Outcome};
use tokengauge_core::concurrency::concurrency_class;
use tokengauge_core::finish_class::FinishClass;
use tokengauge_core::lengths::prompt_length_class;
use tokengauge_core::time::duration_since_1970;

/// A set of [`FinishClass`], because each choice of an answer has a finish reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FinishClasses(u8);

impl FinishClasses {
    pub(crate) fn of<T: AsRef<str>>(reasons: &[T]) -> FinishClasses {
        let bits = reasons
            .iter()
            .map(|reason| 1 << FinishClass::of(reason.as_ref()) as u8);
        FinishClasses(bits.fold(0, |all, bit: u8| all | bit))
    }

    pub(crate) fn contains(self, class: FinishClass) -> bool {
        self.0 & (1 << class as u8) != 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CallFigures {
    /// Microseconds since 1970, rounded to a millisecond.
    pub(crate) started_us: i64,
    pub(crate) duration_us: Option<i64>,
    pub(crate) outcome: Outcome,
    pub(crate) class: OperationClass,
    pub(crate) warm_up: bool,
    /// Tokens as reported by the provider, otherwise as counted.
    pub(crate) input: Option<i64>,
    pub(crate) cached_input: Option<i64>,
    pub(crate) output: Option<i64>,
    pub(crate) normalised_output: Option<i64>,
    pub(crate) reported_output: Option<i64>,
    pub(crate) cost_nano: Option<i64>,
    pub(crate) ttft_us: Option<i64>,
    pub(crate) last_token_us: Option<i64>,
    pub(crate) tps_milli: Option<i64>,
    pub(crate) tps_unavailable: bool,
    pub(crate) finish: FinishClasses,
    pub(crate) concurrency: Option<u32>,
    /// Distinguishes sessions: see [`session_number`].
    pub(crate) session: u64,
}

impl CallFigures {
    pub(crate) fn of(record: &CallRecord, concurrency: Option<u32>) -> CallFigures {
        let (provider, counted) = (&record.tokens.reported, &record.tokens.normalised);
        let (seconds, whole) = (&record.seconds, |count| {
            i64::try_from(count).unwrap_or(i64::MAX)
        });
        let ms = i64::try_from(duration_since_1970(record.started_at.time()).as_millis())
            .unwrap_or(i64::MAX);
        CallFigures {
            started_us: ms.saturating_mul(1000),
            duration_us: scaled(seconds.duration, 1e6),
            outcome: record.outcome,
            class: record.operation_class,
            warm_up: record.warm_up,
            input: provider.input.or(counted.input).map(whole),
            cached_input: provider.cached_input.map(whole),
            output: provider.output.or(counted.output).map(whole),
            normalised_output: counted.output.map(whole),
            reported_output: provider.output.map(whole),
            cost_nano: scaled(record.cost_usd, 1e9),
            ttft_us: scaled(seconds.ttft, 1e6),
            last_token_us: scaled(seconds.last_token, 1e6),
            tps_milli: scaled(record.tps.output, 1e3),
            tps_unavailable: record.tps.unavailable.is_some(),
            finish: FinishClasses::of(&record.finish_reasons),
            concurrency,
            session: session_number(record.session.as_deref(), ms),
        }
    }

    /// Whether the call belongs to sums at all. For example, a list of models has neither speed nor
    /// tokens.
    pub(crate) fn counts(&self) -> bool {
        self.class.counts()
    }

    pub(crate) fn ended_us(&self) -> i64 {
        self.started_us
            .saturating_add(self.duration_us.unwrap_or(0))
    }

    /// Whether the call failed. A call that its agent cancelled did not fail.
    pub(crate) fn error(&self) -> bool {
        self.outcome.is_failure()
    }

    /// The time to the first token; `None` during warm-up of the backend, whose speed says nothing.
    pub(crate) fn ttft(&self) -> Option<i64> {
        self.ttft_us.filter(|_| !self.warm_up)
    }

    /// Decode speed in thousandths of tokens per second; `None` during warm-up of the backend.
    pub(crate) fn tps(&self) -> Option<i64> {
        self.tps_milli.filter(|_| !self.warm_up)
    }

    /// Tokens after the first chunk and the microseconds they took, if the call has a speed.
    pub(crate) fn decode(&self) -> Option<(i64, i64)> {
        let tps = self.tps()? as f64 / 1e3;
        // A response that the server started by itself begins with its first token.
        let us = self.last_token_us? - self.ttft_us.unwrap_or(0);
        Some(((tps * us as f64 / 1e6).round() as i64, us))
    }

    pub(crate) fn token_ratio(&self) -> Option<f64> {
        let normalised = self.normalised_output.filter(|tokens| *tokens > 0)?;
        let complete = self.outcome == Outcome::Complete;
        let reported = self.reported_output.filter(|_| complete)?;
        Some(reported as f64 / normalised as f64)
    }

    /// Whether a complete answer has no text on any channel and no tool call.
    pub(crate) fn empty(&self) -> bool {
        self.class == OperationClass::Generation
            && self.outcome == Outcome::Complete
            && self.normalised_output == Some(0)
            && !self.finish.contains(FinishClass::ToolCall)
    }

    /// Whether an answer began but did not end, unless the agent cancelled it.
    pub(crate) fn cut_off(&self) -> bool {
        let began =
            self.ttft_us.is_some() || self.normalised_output.is_some_and(|tokens| tokens > 0);
        let lost = matches!(
            self.outcome,
            Outcome::UpstreamReset | Outcome::ErrorEvent | Outcome::Timeout | Outcome::Drained
        );
        began && lost
    }

    pub(crate) fn prompt_class(&self) -> Option<usize> {
        self.input
            .map(|tokens| prompt_length_class(u64::try_from(tokens).unwrap_or(0)))
    }

    pub(crate) fn concurrency_class(&self) -> Option<usize> {
        self.concurrency.map(concurrency_class)
    }
}

/// A number for a session, from its name. A call without a session gets a number from its start, in
/// milliseconds since 1970. The numbers are stored in files, so the function must not change.
///
/// Source: Fowler, Noll and Vo, FNV-1a, RFC 9923.
pub(crate) fn session_number(session: Option<&str>, started_ms: i64) -> u64 {
    let own = started_ms.to_le_bytes();
    let bytes = session.map_or(own.as_slice(), str::as_bytes);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn scaled(value: Option<f64>, by: f64) -> Option<i64> {
    value
        .filter(|value| value.is_finite())
        .map(|value| (value * by).round() as i64)
}

#[cfg(test)]
impl CallFigures {
    pub(crate) fn example() -> CallFigures {
        CallFigures {
            started_us: 0,
            duration_us: Some(3_000_000),
            outcome: Outcome::Complete,
            class: OperationClass::Generation,
            warm_up: false,
            input: Some(100),
            cached_input: None,
            output: Some(11),
            normalised_output: Some(10),
            reported_output: Some(11),
            cost_nano: None,
            ttft_us: Some(500_000),
            last_token_us: Some(2_500_000),
            tps_milli: Some(4_500),
            tps_unavailable: false,
            finish: FinishClasses::default(),
            concurrency: None,
            session: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> CallFigures {
        CallFigures::example()
    }

    #[test]
    fn an_answer_without_text_is_empty_unless_it_asks_for_a_tool() {
        let mut silent = CallFigures {
            normalised_output: Some(0),
            ..call()
        };
        assert!(silent.empty() && !call().empty());
        assert_eq!(silent.token_ratio(), None);
        silent.finish = FinishClasses::of(&["stop", "tool_use"]);
        assert!(!silent.empty());
        let unread = CallFigures {
            normalised_output: None,
            ..call()
        };
        assert!(
            !unread.empty(),
            "a body that could not be read is not known to be empty"
        );
    }

    #[test]
    fn a_lost_answer_is_cut_off_once_it_had_begun() {
        let lost = CallFigures {
            outcome: Outcome::UpstreamReset,
            ..call()
        };
        assert!(lost.cut_off() && lost.error());
        let before = CallFigures {
            ttft_us: None,
            normalised_output: None,
            ..lost
        };
        assert!(!before.cut_off() && before.error());
        let left = CallFigures {
            outcome: Outcome::ClientCancelled,
            ..call()
        };
        assert!(!left.cut_off() && !left.error());
    }

    #[test]
    fn a_backend_that_warms_up_has_no_speed() {
        assert_eq!(call().decode(), Some((9, 2_000_000)));
        let warm = CallFigures {
            warm_up: true,
            ..call()
        };
        assert_eq!((warm.decode(), warm.ttft(), warm.tps()), (None, None, None));
    }
}
