//! Whether a model generated more than it streamed: then no speed of it is known.

use super::generation::Generation;
use tokengauge_core::call::Dialect;
use tokengauge_wire::{BeyondText, DIALECTS};

/// Reasoning tokens by which two ways of counting may differ: its delimiters.
const SLACK: f64 = 8.0;
/// Tokens of an answer that are not in its text: its end, its role.
const AROUND: u64 = 16;
/// Tokens of a tool call that are not in its arguments: its name, its id, its delimiters.
const AROUND_CALL: u64 = 40;
/// Fewer tokens of answer do not tell how the provider counts.
const MIN_ANSWER: u64 = 32;
/// The margin above the ratio of the answer of the same call.
const MARGIN: f64 = 1.2;
/// Reported for each token of the answer; less says that the answer holds the reasoning.
const WITHIN_ANSWER: f64 = 0.7;

/// Whether more was generated than streamed. If the provider reports reasoning tokens, they are
/// compared with the reasoning that was streamed; else all reported tokens with all that were
/// streamed. How many tokens the provider's tokenizer makes of one of ours is taken from the
/// answer of the same call, else from what tokenizers make of that kind of text.
pub(crate) fn hidden(dialect: Dialect, generation: &Generation) -> bool {
    let usage = generation.usage();
    let streamed = generation.tokens();
    // Speech and pictures are tokens without text.
    let dialect = DIALECTS.registration(dialect);
    let textless = match dialect.beyond_text {
        BeyondText::Mixed => true,
        BeyondText::WholeAnswers => streamed.all() == 0,
        BeyondText::Never => false,
    };
    let (Some(output), false) = (sendable(generation), textless) else {
        return false;
    };
    let most = generation.counts.scripts().widest().most_tokens();
    let summary = streamed.reasoning > 0 && dialect.summarises_reasoning;
    // A summary hides less than a wide bound would let pass.
    let widest = if summary { (1.0 + most) / 2.0 } else { most };
    match usage.reasoning {
        Some(reasoning) if reasoning > 0 && !within_answer(generation, output, reasoning) => {
            let expected = by_answer(generation, output, reasoning, most).unwrap_or(widest);
            reasoning as f64 > streamed.reasoning as f64 * expected + SLACK
        }
        _ => {
            let calls = u64::from(generation.counts.tool_calls());
            let of_text = output.saturating_sub(calls * AROUND_CALL);
            let all = streamed.all();
            of_text as f64 > (all as f64 * widest).max((all + AROUND) as f64)
        }
    }
}

/// The reported output tokens without those that were billed and never sent.
pub(crate) fn sendable(generation: &Generation) -> Option<u64> {
    let usage = generation.usage();
    let unsent = usage.details.unsent_output.unwrap_or(0);
    usage.output.map(|output| output.saturating_sub(unsent))
}

/// Reported tokens for each token of the answer, if that is known.
fn of_answer(generation: &Generation, output: u64, reasoning: u64) -> Option<f64> {
    let answered = generation.tokens().answered();
    let tells = answered >= MIN_ANSWER && generation.counts.tool_calls() == 0;
    tells.then(|| output.saturating_sub(reasoning) as f64 / answered as f64)
}

/// Whether the reasoning is part of the text of the answer, as with `<think>`.
fn within_answer(generation: &Generation, output: u64, reasoning: u64) -> bool {
    let ratio = of_answer(generation, output, reasoning);
    generation.tokens().reasoning == 0 && ratio.is_some_and(|ratio| ratio < WITHIN_ANSWER)
}

/// The most reported tokens for each of ours, by the answer of the same call.
fn by_answer(generation: &Generation, output: u64, reasoning: u64, most: f64) -> Option<f64> {
    let ratio = of_answer(generation, output, reasoning)?;
    Some(ratio.clamp(1.0, most) * MARGIN)
}
