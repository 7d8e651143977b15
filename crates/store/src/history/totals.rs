use super::timed_call::TimedCall;
use crate::query::TokenSums;
use tokengauge_core::call::{CallRecord, OperationClass};
use tokengauge_core::prompt::PromptSums;

/// The tokens of a call, as reported by the provider, otherwise as counted.
pub fn tokens(call: &CallRecord) -> TokenSums {
    let (reported, ours) = (&call.tokens.reported, &call.tokens.normalised);
    TokenSums {
        input: reported.input.or(ours.input),
        cached_input: reported.cached_input,
        output: reported.output.or(ours.output),
        reasoning: reported.reasoning.or(ours.reasoning),
    }
}

/// Sums over calls. A sum is `None` if it is unknown for all calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) tokens: TokenSums,
    pub(super) cost_usd: Option<f64>,
    pub(super) unpriced: u64,
    /// Cost of generations, and the output tokens of the generations with a known cost.
    generation_usd: Option<f64>,
    priced_output: u64,
    decode_tokens: f64,
    decode_seconds: f64,
    /// Times to first token and total durations of calls with a first token.
    ttft_seconds: f64,
    waited_seconds: f64,
    pub(super) prompt: PromptSums,
}

impl Totals {
    pub(super) fn add(&mut self, past: &TimedCall<'_>) {
        let of_call = tokens(past.record);
        self.calls += 1;
        self.errors += u64::from(past.failed());
        if let Some(prompt) = past.record.prompt.as_deref() {
            self.prompt.merge(&PromptSums::of(prompt));
        }
        add(&mut self.tokens.input, of_call.input);
        add(&mut self.tokens.cached_input, of_call.cached_input);
        add(&mut self.tokens.output, of_call.output);
        add(&mut self.tokens.reasoning, of_call.reasoning);
        match past.record.cost_usd {
            Some(cost) => {
                *self.cost_usd.get_or_insert(0.0) += cost;
                if past.record.operation_class == OperationClass::Generation {
                    *self.generation_usd.get_or_insert(0.0) += cost;
                    self.priced_output += of_call.output.unwrap_or(0);
                }
            }
            None if of_call.input.or(of_call.output).is_some() => self.unpriced += 1,
            None => {}
        }
    }

    pub(super) fn add_decode(&mut self, past: &TimedCall<'_>) {
        if let Some((tokens, seconds)) = past.decode() {
            self.decode_tokens += tokens;
            self.decode_seconds += seconds;
        }
    }

    pub(super) fn add_wait(&mut self, past: &TimedCall<'_>) {
        if let Some(ttft) = past.record.seconds.ttft {
            self.ttft_seconds += ttft;
            self.waited_seconds += past.record.seconds.duration.unwrap_or(0.0);
        }
    }

    pub(super) fn ttft_share(&self) -> Option<f64> {
        (self.waited_seconds > 0.0).then(|| self.ttft_seconds / self.waited_seconds)
    }

    pub(super) fn tps(&self) -> Option<f64> {
        (self.decode_seconds > 0.0).then(|| self.decode_tokens / self.decode_seconds)
    }

    /// US dollars per million output tokens of the generations with a known cost.
    pub(super) fn usd_per_million_output(&self) -> Option<f64> {
        let cost = self.generation_usd.filter(|_| self.priced_output > 0)?;
        Some(cost / self.priced_output as f64 * 1e6)
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}
