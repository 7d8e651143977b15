use super::objective::{Objective, Sli, Weight};
use super::reason::{CallVerdict, Reason};
use super::verdict::{Events, PartialVerdict};
use std::time::{Duration, Instant};
use tokengauge_core::observer::UnmeasuredChunks;
use tokengauge_meter::Progress;
use tokengauge_meter::settings::Measure;

const SEGMENT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Minimum number of tokens after the first chunk.
    min_output_tokens: u64,
    /// A faster segment was buffered upstream.
    buffered_above: f64,
}

impl Bounds {
    pub fn of(measure: &Measure) -> Bounds {
        Bounds {
            min_output_tokens: measure.min_output_tokens,
            buffered_above: measure.buffered_above,
        }
    }
}

#[derive(Debug)]
pub struct JudgedCall {
    pub seen: Instant,
    pub by: Vec<(usize, Partial)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Partial {
    pub so_far: PartialVerdict,
    boundary: Option<Boundary>,
}

#[derive(Clone, Copy, Debug)]
pub struct Boundary {
    at: Instant,
    tokens: u64,
}

pub fn watches(objective: &Objective) -> bool {
    match objective.judgement.sli {
        Sli::Ttft(_) | Sli::TimeToFirstAnswer(_) | Sli::Duration(_) | Sli::Throughput(_) => true,
        Sli::OutputTps(_) => objective.judgement.weight == Weight::Token,
        _ => false,
    }
}

/// The verdict if a deadline has passed.
pub fn deadline(sli: Sli, progress: &Progress, now: Instant) -> Option<(Events, Partial)> {
    let most = Duration::from_secs_f64(sli.threshold()?);
    let waits = progress.streamed == Some(true);
    let came = match sli {
        Sli::Ttft(_) => !waits || progress.first.is_some(),
        // The time of the first answer is not known here, so the record decides.
        Sli::TimeToFirstAnswer(_) => !waits || progress.answered,
        _ => false,
    };
    let waited = now.saturating_duration_since(progress.received);
    if came || waited <= most + UnmeasuredChunks::MAX_NOTE_DELAY {
        return None;
    }
    // A chunk that arrived in time may contain the awaited token. The call is judged once that
    // chunk has been measured.
    let in_time = |since| since <= progress.received + most;
    let by_tokens = !matches!(sli, Sli::Duration(_));
    if by_tokens && (progress.unseen || progress.unmeasured_since.is_some_and(in_time)) {
        return None;
    }
    let events = Events {
        verdict: CallVerdict::Bad,
        reason: Reason::Deadline,
        count: 1,
        value: Some(waited.as_secs_f64()),
    };
    let partial = Partial {
        so_far: PartialVerdict {
            decided: true,
            ..PartialVerdict::default()
        },
        boundary: None,
    };
    Some((events, partial))
}

/// Closes a segment that is long enough, at the last chunk. A gap counts for the tokens after it.
pub fn segment(
    objective: &Objective,
    bounds: Bounds,
    progress: &Progress,
    now: Instant,
    Partial { so_far, boundary }: Partial,
) -> Option<(Events, Partial)> {
    let (first, in_first) = progress.first?;
    let begin = boundary.unwrap_or(Boundary {
        at: first,
        tokens: in_first,
    });
    let last = progress.last?;
    let over = now.saturating_duration_since(begin.at) >= SEGMENT && last > begin.at;
    let enough = progress.tokens.saturating_sub(in_first) >= bounds.min_output_tokens
        && progress.tokens >= objective.judgement.min_output_tokens;
    let tokens = progress.tokens.saturating_sub(begin.tokens);
    if !over || !enough || tokens == 0 || progress.several_choices {
        return None;
    }
    let seconds = last.duration_since(begin.at).as_secs_f64();
    let speed = tokens as f64 / seconds;
    if speed > bounds.buffered_above {
        return None;
    }
    let events = Events::held_against(objective.judgement.sli, speed, tokens);
    let so_far = PartialVerdict {
        decided: false,
        tokens: so_far.tokens + tokens,
        seconds: so_far.seconds + seconds,
    };
    let next = Boundary {
        at: last,
        tokens: progress.tokens,
    };
    let partial = Partial {
        so_far,
        boundary: Some(next),
    };
    Some((events, partial))
}
