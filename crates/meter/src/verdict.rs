//! How a call ended, and whether its speed is known.

use super::generation::Generation;
use crate::settings::Measure;
use std::time::Instant;
use tokengauge_core::call::{Dialect, EMPTY_RESPONSE, NOT_JSON, Outcome, TpsUnavailable};
use tokengauge_core::observer::{End, FailureKind};
use tokengauge_wire::{BeyondText, DIALECTS};

/// The number of chunks with generated text that an `output_tps` needs.
const MIN_CHUNKS: u64 = 4;

/// Facts, in addition to the generation, that decide the outcome and the availability of speeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) dialect: Dialect,
    /// The dialect of the path, even if the stream had no content of this dialect.
    pub(crate) expected: Dialect,
    pub(crate) status: Option<u16>,
    pub(crate) streamed: Option<bool>,
    /// Whether the body was read to its end, so that the end of the answer is known.
    pub(crate) readable: bool,
    /// Whether the framing or the encoding of the body was broken.
    pub(crate) broken: bool,
    pub(crate) asks_for_text: bool,
    pub(crate) lagged: bool,
    pub(crate) choices: Option<u32>,
    pub(crate) hidden: bool,
}

/// How the call ended. A failure of the proxy has priority. Next come the upstream's status and
/// error events, then the end of the body. An agent that leaves after the terminator has the whole
/// response.
pub(crate) fn outcome(end: &End, facts: &Facts, generation: &Generation) -> Outcome {
    let refused = facts.status.is_some_and(|status| status >= 400);
    match end {
        // If sending to the agent timed out, the upstream's status and errors have priority, as if
        // the agent had left.
        End::Failed(kind) if *kind != FailureKind::AgentSendTimeout => failed(*kind),
        _ if refused => Outcome::HttpError,
        _ if generation.failure().is_some() => Outcome::ErrorEvent,
        End::Drained if !generation.terminated => Outcome::Drained,
        End::ClientCancelled | End::Failed(_) if !generation.terminated => Outcome::ClientCancelled,
        End::UpstreamReset => Outcome::UpstreamReset,
        End::Complete if unterminated(facts, generation) => Outcome::UpstreamReset,
        End::Complete if no_answer(facts, generation).is_some() => Outcome::ErrorEvent,
        End::Complete | End::ClientCancelled | End::Drained | End::Failed(_) => Outcome::Complete,
    }
}

/// Whether the upstream processed the prompt, so that our own count of it is valid. The prompt must
/// be completely `sent` or `answered`. The upstream must not have refused it, not even with an
/// error in a 200 before anything was generated.
pub(crate) fn processed(
    outcome: Outcome,
    facts: &Facts,
    generation: &Generation,
    sent: Option<Instant>,
    answered: bool,
) -> bool {
    let generated = generation.timeline.all.is_some()
        || generation.tokens().all() > 0
        || (answered && !facts.readable);
    match outcome {
        Outcome::HttpError | Outcome::Rejected | Outcome::Unreachable => false,
        Outcome::ErrorEvent => generated,
        _ => sent.is_some() || facts.status.is_some(),
    }
}

pub(crate) fn failed(kind: FailureKind) -> Outcome {
    match kind {
        FailureKind::Dns | FailureKind::Connect | FailureKind::Tls => Outcome::Unreachable,
        FailureKind::ConnectTimeout
        | FailureKind::HeadTimeout
        | FailureKind::IdleTimeout
        | FailureKind::SendTimeout => Outcome::Timeout,
        FailureKind::AgentSendTimeout => Outcome::ClientCancelled,
        FailureKind::Reset | FailureKind::Protocol => Outcome::UpstreamReset,
        FailureKind::NoRoute
        | FailureKind::BadRequest
        | FailureKind::UnsupportedCoding
        | FailureKind::RateLimited
        | FailureKind::OverBudget
        | FailureKind::UnreadableBody
        | FailureKind::Overloaded
        | FailureKind::ConfigRefused => Outcome::Rejected,
    }
}

/// Whether a stream ended cleanly, but without terminator and finish reason, in a dialect that has
/// one of them.
fn unterminated(facts: &Facts, generation: &Generation) -> bool {
    let has_an_end = DIALECTS.registration(facts.dialect).ends_streams;
    let answered = facts.status.is_none_or(|status| status < 300);
    !facts.broken
        && !facts.lagged
        && answered
        && facts.streamed == Some(true)
        && has_an_end
        && !generation.concluded()
}

/// The `error_type` of a 200 without an answer to a request for text; `None` if there is an answer.
/// Such a response is empty, or has only events outside of the dialect, such as pings, or only
/// invalid JSON, such as an HTML page or a part of an answer.
pub(crate) fn no_answer(facts: &Facts, generation: &Generation) -> Option<&'static str> {
    let dialect = DIALECTS.registration(facts.expected);
    // Sounds and pictures are not JSON.
    let of_json = dialect.generates && facts.expected != Dialect::OpenaiMedia;
    let should = facts.asks_for_text && of_json && matches!(facts.status, Some(200 | 201));
    let [unread, damaged, skipped] = generation.lost();
    // A body that could not be decoded, or for which there was no memory, may contain an answer.
    let is_unknown = facts.lagged || facts.broken && unread == 0;
    if !should || is_unknown || !generation.is_empty() {
        return None;
    }
    let is_stream = facts.streamed == Some(true);
    let has_ids = dialect.beyond_text != BeyondText::Never && (damaged, skipped) == (0, 0);
    if unread > 0 || is_stream && damaged > 0 {
        Some(NOT_JSON)
    } else if has_ids {
        None
    } else {
        Some(EMPTY_RESPONSE)
    }
}

/// Why there is no `output_tps`; `None` if there is one.
///
/// Several reasons can apply at once. The first one in this order is recorded:
/// 1. `ended_early`: there was no answer.
/// 2. `unparsed`, `lagged`: the tokens are unknown.
/// 3. `not_streamed`, `multiple_choices`: the tokens have no pace.
/// 4. `ended_early`: the call failed before there were enough tokens.
/// 5. `too_few_tokens`: there are not enough tokens.
/// 6. `agent_limited`, `buffered`: the pace is not the model's.
/// 7. `too_few_frames`: there are not enough chunks.
/// 8. `hidden_output`: some tokens were not streamed.
pub(crate) fn unavailable(
    measure: &Measure,
    outcome: Outcome,
    facts: &Facts,
    generation: &Generation,
) -> Option<TpsUnavailable> {
    let answered = facts.status.is_some_and(|status| status < 400);
    if !answered {
        return Some(TpsUnavailable::EndedEarly);
    }
    if !facts.readable || facts.dialect == Dialect::Unknown {
        return Some(TpsUnavailable::Unparsed);
    }
    if facts.lagged {
        return Some(TpsUnavailable::Lagged);
    }
    if facts.streamed != Some(true) {
        return Some(TpsUnavailable::NotStreamed);
    }
    let several = facts.choices.is_some_and(|choices| choices > 1);
    if several || generation.counts.several_choices {
        return Some(TpsUnavailable::MultipleChoices);
    }
    pace(measure, outcome, facts, generation)
}

/// Why there is no `total_tps`; `None` if there is one.
pub(crate) fn total_unavailable(facts: &Facts, generation: &Generation) -> Option<TpsUnavailable> {
    let answered = facts.status.is_some_and(|status| status < 400);
    if !answered {
        Some(TpsUnavailable::EndedEarly)
    } else if !facts.readable || facts.dialect == Dialect::Unknown {
        Some(TpsUnavailable::Unparsed)
    } else if facts.lagged {
        Some(TpsUnavailable::Lagged)
    } else if facts.hidden {
        Some(TpsUnavailable::HiddenOutput)
    } else if generation.tokens().all() == 0 {
        Some(TpsUnavailable::TooFewTokens)
    } else {
        None
    }
}

fn pace(
    measure: &Measure,
    outcome: Outcome,
    facts: &Facts,
    generation: &Generation,
) -> Option<TpsUnavailable> {
    let total = generation.tokens().all();
    let span = generation.timeline.all;
    let decoded = span.map_or(0, |span| span.decoded(total));
    let chunks = span.map_or(0, |span| span.chunks);
    let rate = span.and_then(|span| span.rate(total)).unwrap_or(0.0);
    let too_few_tokens = decoded < measure.min_output_tokens.max(1);
    let too_few_chunks = chunks < MIN_CHUNKS;
    // If enough tokens arrived all at once, a proxy before us held them back.
    let at_once = span.is_some_and(|span| span.first_tokens >= measure.min_output_tokens.max(1));
    if outcome != Outcome::Complete && (too_few_tokens || too_few_chunks) {
        Some(TpsUnavailable::EndedEarly)
    } else if too_few_tokens && at_once {
        Some(TpsUnavailable::Buffered)
    } else if too_few_tokens {
        Some(TpsUnavailable::TooFewTokens)
    } else if generation.timeline.is_agent_limited() {
        Some(TpsUnavailable::AgentLimited)
    } else if rate > measure.buffered_above {
        Some(TpsUnavailable::Buffered)
    } else if too_few_chunks {
        Some(TpsUnavailable::TooFewChunks)
    } else if facts.hidden {
        Some(TpsUnavailable::HiddenOutput)
    } else {
        None
    }
}

/// The speed of the answer without reasoning. It needs the conditions of `output_tps`, applied to
/// the chunks and tokens of the answer.
pub(crate) fn answer_rate(measure: &Measure, generation: &Generation) -> Option<f64> {
    let answered = generation.tokens().answered();
    let span = generation.timeline.answer?;
    let enough = span.decoded(answered) >= measure.min_output_tokens && span.chunks >= MIN_CHUNKS;
    let rate = span.rate(answered).filter(|_| enough);
    rate.filter(|rate| *rate <= measure.buffered_above)
}
