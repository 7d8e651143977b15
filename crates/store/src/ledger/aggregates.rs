//! Mergeable sums over calls. Values that were never reported remain unknown.

use super::interval_union::IntervalUnion;
use super::row::{BANDS, Share, micros};
use crate::sketch::Sketch;
use tokengauge_core::prompt::PromptSums;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    pub(crate) calls: i64,
    pub(crate) errors: i64,
    pub(crate) input: Option<i64>,
    pub(crate) cached_input: Option<i64>,
    pub(crate) output: Option<i64>,
    pub(crate) reasoning: Option<i64>,
    pub(crate) cost_nano: Option<i64>,
    /// The cost of generations, in billionths of a US dollar.
    pub(crate) generation_nano: Option<i64>,
    /// Calls with tokens but without a price.
    pub(crate) unpriced: i64,
    pub(crate) priced_output: i64,
    pub(crate) decode_tokens: i64,
    pub(crate) decode_us: i64,
    /// Times to first token and durations of calls with a first token.
    pub(crate) ttft_us: i64,
    pub(crate) waited_us: i64,
    /// Decode tokens in the provider's count, in thousandths, and the time they took.
    pub(crate) reported_millitokens: i64,
    pub(crate) reported_us: i64,
    pub(crate) bands: [i64; BANDS.len() + 1],
    pub(crate) tps: Sketch,
    pub(crate) reported: Sketch,
    pub(crate) ttft: Sketch,
    /// The parts of the prompts that were analyzed.
    pub(crate) prompt: PromptSums,
}

fn plus(sum: &mut Option<i64>, more: Option<i64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

impl Sums {
    pub(crate) fn add(&mut self, call: &Share) {
        self.calls += 1;
        self.errors += i64::from(call.error);
        self.tokens(call.input, call.cached_input, call.output, call.reasoning);
        if let Some(prompt) = &call.prompt {
            self.prompt.merge(prompt);
        }
        plus(&mut self.cost_nano, call.cost_nano);
        match call.cost_nano {
            Some(cost) if call.generates => {
                plus(&mut self.generation_nano, Some(cost));
                self.priced_output += call.output.unwrap_or(0);
            }
            Some(_) => {}
            None if call.input.or(call.output).is_some() => self.unpriced += 1,
            None => {}
        }
        let (tokens, us) = call.decode.unwrap_or_default();
        self.decode_tokens = self.decode_tokens.saturating_add(tokens);
        self.decode_us = self.decode_us.saturating_add(us);
        if let Some(tps) = call.tps {
            self.bands[BANDS.partition_point(|bound| *bound <= tps)] += 1;
            self.tps.add(tps);
        }
        if let Some(reported) = call.reported {
            let (tokens, us) = call.reported_decode.unwrap_or_default();
            self.reported_millitokens = self.reported_millitokens.saturating_add(tokens);
            self.reported_us = self.reported_us.saturating_add(us);
            self.reported.add(reported);
        }
        if let Some(ttft) = call.ttft {
            self.ttft.add(ttft);
            self.ttft_us += micros(ttft).unwrap_or(0);
            self.waited_us += call.duration_us.unwrap_or(0);
        }
    }

    /// Adds all sums of `other` except its sketches.
    pub(crate) fn merge_counts(&mut self, other: &Sums) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.tokens(
            other.input,
            other.cached_input,
            other.output,
            other.reasoning,
        );
        plus(&mut self.cost_nano, other.cost_nano);
        plus(&mut self.generation_nano, other.generation_nano);
        self.unpriced += other.unpriced;
        self.priced_output += other.priced_output;
        self.decode_tokens = self.decode_tokens.saturating_add(other.decode_tokens);
        self.decode_us = self.decode_us.saturating_add(other.decode_us);
        self.ttft_us = self.ttft_us.saturating_add(other.ttft_us);
        self.waited_us = self.waited_us.saturating_add(other.waited_us);
        self.reported_millitokens = self
            .reported_millitokens
            .saturating_add(other.reported_millitokens);
        self.reported_us = self.reported_us.saturating_add(other.reported_us);
        self.prompt.merge(&other.prompt);
        for (sum, more) in self.bands.iter_mut().zip(other.bands) {
            *sum += more;
        }
    }

    fn tokens(
        &mut self,
        input: Option<i64>,
        cached: Option<i64>,
        output: Option<i64>,
        reasoning: Option<i64>,
    ) {
        plus(&mut self.input, input);
        plus(&mut self.cached_input, cached);
        plus(&mut self.output, output);
        plus(&mut self.reasoning, reasoning);
    }
}

/// The sums of a session, and its times in microseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SessionSums {
    pub(crate) sums: Sums,
    pub(crate) started_us: i64,
    pub(crate) last_us: i64,
    pub(crate) busy: IntervalUnion,
}

impl SessionSums {
    pub(crate) fn empty() -> SessionSums {
        SessionSums {
            sums: Sums::default(),
            started_us: i64::MAX,
            last_us: i64::MIN,
            busy: IntervalUnion::default(),
        }
    }

    pub(crate) fn add(&mut self, call: &Share, start: i64, end: i64) {
        self.sums.add(call);
        self.lasted(start, end);
        self.busy.add(start, end);
    }

    /// Extends the session's time by a call from `start` to `end`, without adding the call to its
    /// sums.
    pub(crate) fn lasted(&mut self, start: i64, end: i64) {
        self.started_us = self.started_us.min(start);
        self.last_us = self.last_us.max(end);
    }
}
