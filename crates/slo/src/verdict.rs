//! Judges a call by an objective: good, bad or excluded, with the reason.

use super::objective::{Judgement, Sli, Weight};
use super::reason::{CallVerdict, Reason};
use tokengauge_core::call::{CallRecord, Dialect, Outcome, PROMPT_BLOCKED, TpsUnavailable};
use tokengauge_core::finished::FinishedCall;
use tokengauge_core::inter_token::InterToken;
use tokengauge_core::selector::Names;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Events {
    pub verdict: CallVerdict,
    pub reason: Reason,
    pub count: u64,
    pub value: Option<f64>,
}

impl Events {
    fn excluded(reason: Reason, count: u64) -> Events {
        Events {
            verdict: CallVerdict::Excluded,
            reason,
            count,
            value: None,
        }
    }

    pub fn held_against(sli: Sli, value: f64, count: u64) -> Events {
        let threshold = sli.threshold().unwrap_or(f64::NAN);
        let met = if sli.at_least() {
            value >= threshold
        } else {
            value <= threshold
        };
        Events {
            verdict: if met {
                CallVerdict::Good
            } else {
                CallVerdict::Bad
            },
            reason: if met { Reason::Met } else { Reason::Missed },
            count,
            value: Some(value),
        }
    }

    pub fn bad(reason: Reason, value: Option<f64>) -> Events {
        Events {
            verdict: CallVerdict::Bad,
            reason,
            count: 1,
            value,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Finished<'a> {
    pub record: &'a CallRecord,
    /// Tokens after the first chunk and the seconds they took, if the call has a speed.
    pub decode: Option<(u64, f64)>,
    pub inter_token: Option<&'a InterToken>,
}

impl<'a> Finished<'a> {
    pub fn of(finished_call: &'a FinishedCall) -> Finished<'a> {
        Finished {
            record: &finished_call.record,
            decode: finished_call.decode,
            inter_token: finished_call.inter_token.as_deref(),
        }
    }

    /// Creates the call from its record. The record lacks the tokens of the first chunk, so that
    /// they count as decoded, and has no latencies by token.
    pub fn of_record(record: &'a CallRecord) -> Finished<'a> {
        let decode = record.tps.output.filter(|tps| *tps > 0.0).map(|tps| {
            let tokens = record.tokens.normalised.output.unwrap_or(0);
            (tokens, tokens as f64 / tps)
        });
        Finished {
            record,
            decode,
            inter_token: None,
        }
    }

    pub fn names(&self) -> Names<'a> {
        let record = self.record;
        Names {
            workload: record.workload.as_deref(),
            route: &record.route,
            upstream: &record.upstream,
            model: record
                .model
                .as_deref()
                .or(record.model_requested.as_deref()),
            agent: record.agent.as_deref(),
            team: record.team.as_deref(),
            cost_center: record.cost_center.as_deref(),
            tenant: record.tenant.as_deref(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PartialVerdict {
    /// Whether a deadline passed, so that the verdict is final.
    pub decided: bool,
    /// Tokens and seconds of closed segments.
    pub tokens: u64,
    pub seconds: f64,
}

pub fn judge(judgement: &Judgement, call: &Finished<'_>) -> Vec<Events> {
    judge_rest(judgement, call, &PartialVerdict::default())
}

/// Like [`judge`], but without the events that were counted while the call was in progress.
pub fn judge_rest(
    judgement: &Judgement,
    call: &Finished<'_>,
    so_far: &PartialVerdict,
) -> Vec<Events> {
    let record = call.record;
    // Throughput is not judged by call. Operations that generate nothing are excluded.
    let counts = record.operation_class.counts();
    if so_far.decided || matches!(judgement.sli, Sli::Throughput(_)) || !counts {
        return Vec::new();
    }
    if record.warm_up && !judgement.warm_up {
        return excluded(judgement, call, Reason::WarmUp, so_far);
    }
    if judgement.sli == Sli::Availability {
        return vec![availability(record)];
    }
    let output = record.tokens.normalised.output;
    let few = output.is_some_and(|output| output < judgement.min_output_tokens);
    let speed = matches!(
        judgement.sli,
        Sli::OutputTps(_) | Sli::TotalTps(_) | Sli::InterTokenLatency(_)
    );
    if few && so_far.tokens == 0 && (speed || record.outcome == Outcome::Complete) {
        return excluded(judgement, call, Reason::TooFewTokens, so_far);
    }
    match (judgement.sli, judgement.weight) {
        (Sli::OutputTps(_), Weight::Token) => segments(judgement, call, so_far),
        (Sli::InterTokenLatency(_), Weight::Token) => gaps(judgement, call),
        (sli, _) => match value(sli, call) {
            Ok(value) => vec![Events::held_against(sli, value, 1)],
            Err(Missing::Late(waited)) => vec![Events::bad(Reason::Deadline, Some(waited))],
            Err(Missing::For(reason)) => vec![Events::excluded(reason, 1)],
        },
    }
}

/// Excluded events. Weighted by token, their number is the number of tokens not judged yet, if
/// known.
fn excluded(
    judgement: &Judgement,
    call: &Finished<'_>,
    reason: Reason,
    so_far: &PartialVerdict,
) -> Vec<Events> {
    let tokens = call.record.tokens.normalised.output.unwrap_or(0);
    let count = match judgement.weight {
        Weight::Request => 1,
        Weight::Token => tokens.saturating_sub(so_far.tokens).max(1),
    };
    vec![Events::excluded(reason, count)]
}

fn availability(record: &CallRecord) -> Events {
    match outcome(record) {
        None => Events {
            verdict: CallVerdict::Good,
            reason: Reason::Met,
            count: 1,
            value: None,
        },
        Some(reason @ (Reason::ClientCancelled | Reason::ClientError | Reason::Rejected)) => {
            Events::excluded(reason, 1)
        }
        Some(reason) => Events::bad(reason, None),
    }
}

fn outcome(record: &CallRecord) -> Option<Reason> {
    match record.outcome {
        Outcome::Complete => None,
        Outcome::ClientCancelled => Some(Reason::ClientCancelled),
        Outcome::Rejected => Some(Reason::Rejected),
        Outcome::HttpError => {
            let own_fault = matches!(record.status, Some(400..=428 | 430..=499));
            Some(if own_fault {
                Reason::ClientError
            } else {
                Reason::HttpError
            })
        }
        Outcome::UpstreamReset => Some(Reason::UpstreamReset),
        // Equivalent to a refusal with status 400.
        Outcome::ErrorEvent if record.error_type.as_deref() == Some(PROMPT_BLOCKED) => {
            Some(Reason::ClientError)
        }
        Outcome::ErrorEvent => Some(Reason::ErrorEvent),
        Outcome::Timeout => Some(Reason::Timeout),
        Outcome::Unreachable => Some(Reason::Unreachable),
        Outcome::Drained => Some(Reason::Drained),
    }
}

/// Why a call failed, unless the agent or a limit of tokengauge caused it.
pub fn fault(record: &CallRecord) -> Option<Reason> {
    let agent = [
        Reason::ClientCancelled,
        Reason::ClientError,
        Reason::Rejected,
        Reason::Drained,
    ];
    outcome(record).filter(|reason| !agent.contains(reason))
}

enum Missing {
    /// The value missed the threshold.
    Late(f64),
    For(Reason),
}

fn value(sli: Sli, call: &Finished<'_>) -> Result<f64, Missing> {
    let record = call.record;
    let ended = outcome(record);
    let or_ended = |reason: Reason| Missing::For(ended.unwrap_or(reason));
    match sli {
        Sli::Availability | Sli::Throughput(_) => Err(Missing::For(Reason::NoTokens)),
        Sli::Ttft(most) => awaited(record, record.seconds.ttft, most),
        Sli::TimeToFirstAnswer(most) => awaited(record, record.seconds.first_answer, most),
        Sli::Duration(most) => {
            let duration = record
                .seconds
                .duration
                .ok_or(or_ended(Reason::EndedEarly))?;
            match ended {
                None => Ok(duration),
                Some(_) if duration > most => Err(Missing::Late(duration)),
                Some(reason) => Err(Missing::For(reason)),
            }
        }
        Sli::OutputTps(_) => record.tps.output.ok_or_else(|| no_speed(record)),
        Sli::InterTokenLatency(_) => {
            let speed = record.tps.output.filter(|speed| *speed > 0.0);
            speed
                .map(|speed| 1.0 / speed)
                .ok_or_else(|| no_speed(record))
        }
        Sli::TotalTps(_) => match ended {
            Some(reason) => Err(Missing::For(reason)),
            None => record.tps.total.ok_or_else(|| {
                let known = record.tps.total_unavailable.or(record.tps.unavailable);
                let specific = known.filter(|reason| {
                    use TpsUnavailable::{HiddenOutput, Lagged, Unparsed};
                    matches!(reason, Unparsed | Lagged | HiddenOutput)
                });
                Missing::For(specific.map_or(Reason::NoTokens, Reason::from))
            }),
        },
        Sli::Stalls(most) => {
            let stalls = streamed(record).map(|()| record.stalls as f64)?;
            // Stalls only increase, so too many are bad regardless of how the call ended.
            if stalls > most as f64 {
                Ok(stalls)
            } else {
                ended.map_or(Ok(stalls), |reason| Err(Missing::For(reason)))
            }
        }
        Sli::LongestGap(most) => {
            let gap = streamed(record).map(|()| record.seconds.longest_gap.unwrap_or(0.0))?;
            if gap > most {
                Ok(gap)
            } else {
                ended.map_or(Ok(gap), |reason| Err(Missing::For(reason)))
            }
        }
        Sli::CostUsd(_) => record.cost_usd.ok_or(Missing::For(Reason::NoPrice)),
    }
}

/// Judges a time since the request: a wait longer than `most` is bad, regardless of how the call
/// ended.
fn awaited(record: &CallRecord, time: Option<f64>, most: f64) -> Result<f64, Missing> {
    if let Some(time) = time {
        return Ok(time);
    }
    let unreadable = match record.tps.unavailable {
        _ if record.dialect == Dialect::Unknown => Some(Reason::Unparsed),
        Some(reason @ (TpsUnavailable::Unparsed | TpsUnavailable::Lagged)) => Some(reason.into()),
        _ => None,
    };
    if without_text(record) {
        return Err(Missing::For(Reason::NoText));
    }
    // A Realtime connection waits for its agent, not for tokens.
    let waits = record.streamed != Some(false)
        && !matches!(
            record.dialect,
            Dialect::OpenaiRealtime | Dialect::GeminiLive
        )
        && record.outcome != Outcome::Rejected
        && unreadable.is_none();
    let waited = record
        .seconds
        .duration
        .filter(|waited| waits && *waited > most);
    if let Some(waited) = waited {
        return Err(Missing::Late(waited));
    }
    let reason = outcome(record).or(unreadable);
    Err(Missing::For(reason.unwrap_or(
        match record.tps.unavailable {
            Some(TpsUnavailable::NotStreamed) => Reason::NotStreamed,
            _ => Reason::NoTokens,
        },
    )))
}

/// Whether a complete answer had tokens but no text, so that there is no time to first token.
fn without_text(record: &CallRecord) -> bool {
    let tokens = &record.tokens;
    record.outcome == Outcome::Complete
        && tokens.normalised.output == Some(0)
        && tokens.reported.output.is_some_and(|tokens| tokens > 0)
}

fn no_speed(record: &CallRecord) -> Missing {
    let cancelled = record.outcome == Outcome::ClientCancelled;
    Missing::For(match record.tps.unavailable {
        Some(TpsUnavailable::EndedEarly) | None if cancelled => Reason::ClientCancelled,
        Some(reason) => reason.into(),
        None => Reason::EndedEarly,
    })
}

fn streamed(record: &CallRecord) -> Result<(), Missing> {
    if record.seconds.ttft.is_some() {
        return Ok(());
    }
    let reason = record.tps.unavailable.map(Reason::from);
    Err(Missing::For(
        outcome(record).or(reason).unwrap_or(Reason::NoTokens),
    ))
}

/// The event of the last segment, whose tokens are in no closed segment.
fn segments(judgement: &Judgement, call: &Finished<'_>, so_far: &PartialVerdict) -> Vec<Events> {
    let Some((tokens, seconds)) = call.decode else {
        let Missing::For(reason) = no_speed(call.record) else {
            return Vec::new();
        };
        return excluded(judgement, call, reason, so_far);
    };
    let (tokens, seconds) = (
        tokens.saturating_sub(so_far.tokens),
        seconds - so_far.seconds,
    );
    if tokens == 0 || seconds <= 0.0 {
        return Vec::new();
    }
    let speed = tokens as f64 / seconds;
    vec![Events::held_against(judgement.sli, speed, tokens)]
}

/// Judges each token by the class of its latency; the threshold is a bound of the classes.
fn gaps(judgement: &Judgement, call: &Finished<'_>) -> Vec<Events> {
    let (Some(_), Some(latencies)) = (call.decode, call.inter_token) else {
        let Missing::For(reason) = no_speed(call.record) else {
            return Vec::new();
        };
        return excluded(judgement, call, reason, &PartialVerdict::default());
    };
    let classes = latencies.classes();
    classes
        .map(|(latency, tokens)| Events::held_against(judgement.sli, latency, u64::from(tokens)))
        .collect()
}

/// All verdicts and reasons that a judgement can have, so that their series exist from the start.
pub fn possible(judgement: &Judgement) -> Vec<(CallVerdict, Reason)> {
    use Reason::*;
    let mut all = vec![(CallVerdict::Good, Met), (CallVerdict::Bad, Missed)];
    if judgement.slice.is_some() {
        all.push((CallVerdict::Excluded, NoTraffic));
        return all;
    }
    let errors = [
        HttpError,
        UpstreamReset,
        ErrorEvent,
        Timeout,
        Unreachable,
        Drained,
    ];
    let own = [ClientCancelled, ClientError, Rejected];
    let (mut bad, mut out): (Vec<Reason>, Vec<Reason>) = (Vec::new(), own.to_vec());
    match judgement.sli {
        Sli::Availability => {
            all.pop();
            bad.extend(errors);
        }
        Sli::Ttft(_) | Sli::TimeToFirstAnswer(_) | Sli::Duration(_) => {
            bad.push(Deadline);
            out.extend(errors);
            out.extend([NotStreamed, NoTokens, NoText, Unparsed, Lagged]);
        }
        Sli::OutputTps(_) | Sli::InterTokenLatency(_) | Sli::Stalls(_) | Sli::LongestGap(_) => {
            out.extend(errors);
            out.extend([
                NotStreamed,
                TooFewTokens,
                TooFewChunks,
                Buffered,
                MultipleChoices,
                HiddenOutput,
                Lagged,
                Unparsed,
                EndedEarly,
                NoTokens,
            ]);
        }
        Sli::TotalTps(_) => {
            out.extend(errors);
            out.extend([NoTokens, Unparsed, Lagged, HiddenOutput]);
        }
        Sli::CostUsd(_) => out = vec![NoPrice],
        Sli::Throughput(_) => {
            all.extend([
                (CallVerdict::Excluded, TooFewStreams),
                (CallVerdict::Excluded, Lagged),
            ]);
            return all;
        }
    }
    if judgement.min_output_tokens > 0 && !out.contains(&TooFewTokens) {
        out.push(TooFewTokens);
    }
    if !judgement.warm_up {
        out.push(WarmUp);
    }
    all.extend(bad.into_iter().map(|reason| (CallVerdict::Bad, reason)));
    all.extend(
        out.into_iter()
            .map(|reason| (CallVerdict::Excluded, reason)),
    );
    all
}
