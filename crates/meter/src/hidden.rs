//! Detects responses that generated more tokens than they streamed. Their speed is unknown.

use super::generation::Generation;
use super::script::Script;
use tokengauge_core::call::Dialect;
use tokengauge_wire::{BeyondText, DIALECTS, Registration};

/// Reasoning tokens by which two ways of counting may differ, because of delimiters.
const SLACK: f64 = 8.0;
/// OpenAI rounds reasoning tokens down to a multiple of this number.
const ROUNDED_TO: u64 = 64;
/// Tokens of an answer outside of its text, such as its role and its end.
const AROUND: u64 = 16;
/// Tokens of a tool call outside of its arguments: name, id and delimiters. A hosted search takes
/// about as many.
const AROUND_CALL: f64 = 40.0;
/// With fewer answer tokens, the ratio between the provider's count and ours is not reliable.
const MIN_ANSWER: u64 = 32;
/// The margin above the ratio that the answer of the call shows.
const MARGIN: f64 = 1.2;
/// If the provider reports fewer tokens than this for each token of the answer, the answer includes
/// the reasoning.
const WITHIN_ANSWER: f64 = 0.7;

/// Whether more was generated than streamed.
///
/// If the provider reports reasoning tokens, they are compared with the streamed reasoning, and the
/// other tokens with the rest of the text. Otherwise all reported tokens are compared with all
/// streamed tokens. `Script::most_tokens` bounds how many tokens the provider's tokenizer makes
/// of one of ours. For reasoning, the answer of the call gives the ratio if it has enough text.
pub(crate) fn hidden(dialect: Dialect, generation: &Generation) -> bool {
    let usage = generation.usage();
    let streamed = generation.tokens();
    let dialect = DIALECTS.registration(dialect);
    let (Some(output), false) = (sendable(generation), is_textless(dialect, generation)) else {
        return false;
    };
    let [all, answer, reasoning] = generation.counts.scripts().map(Script::most_tokens);
    // A summary hides fewer tokens than a wide bound would accept.
    let is_summary = streamed.reasoning > 0 && dialect.summarises_reasoning;
    let widest = |most| if is_summary { halfway(most) } else { most };
    match usage.reasoning {
        Some(reported) if reported > 0 && !within_answer(generation, output, reported) => {
            let expected = by_answer(generation, output, reported);
            let thought = streamed.reasoning as f64;
            // Gateways that count the reasoning themselves report less than was billed.
            let of_reasoning = at_most(reported).max(thought * halfway(reasoning));
            reported as f64 > thought * expected.unwrap_or(widest(reasoning)) + SLACK
                || exceeds(
                    generation,
                    output as f64 - of_reasoning,
                    streamed.answered(),
                    answer,
                )
        }
        _ => exceeds(generation, output as f64, streamed.all(), widest(all)),
    }
}

/// The largest number of reasoning tokens that a provider which rounds could report as `reported`.
fn at_most(reported: u64) -> f64 {
    let rounded = reported.is_multiple_of(ROUNDED_TO);
    (reported + if rounded { ROUNDED_TO - 1 } else { 0 }) as f64
}

/// Whether some output tokens may be speech or pictures, which are tokens without text.
fn is_textless(dialect: &Registration, generation: &Generation) -> bool {
    let usage = generation.usage();
    let details = usage.details;
    match dialect.beyond_text {
        // A provider that reports reasoning tokens also reports tokens of speech.
        BeyondText::Mixed => {
            let spoken = details.audio_output.or(details.image_output);
            usage.reasoning.is_none() || spoken.is_some()
        }
        BeyondText::WholeAnswers => generation.tokens().all() == 0,
        BeyondText::Never => false,
    }
}

/// Whether the provider reports more tokens than `text` and the tool calls explain. `text` is our
/// count. The provider's tokenizer counts at most `most` times as many.
fn exceeds(generation: &Generation, reported: f64, text: u64, most: f64) -> bool {
    let searches = generation.usage().details.searches.unwrap_or(0);
    let calls = generation.calls().saturating_add(searches);
    let of_text = reported - calls as f64 * AROUND_CALL;
    of_text > (text as f64 * most).max((text + AROUND) as f64)
}

fn halfway(most: f64) -> f64 {
    (1.0 + most) / 2.0
}

/// The reported output tokens without tokens that were billed but never sent.
pub(crate) fn sendable(generation: &Generation) -> Option<u64> {
    let usage = generation.usage();
    let unsent = usage.details.unsent_output.unwrap_or(0);
    usage.output.map(|output| output.saturating_sub(unsent))
}

/// The number of reported tokens for each token of the answer, if it is known.
fn of_answer(generation: &Generation, output: u64, reasoning: u64) -> Option<f64> {
    let answered = generation.tokens().answered();
    let tells = answered >= MIN_ANSWER && generation.calls() == 0;
    tells.then(|| output.saturating_sub(reasoning) as f64 / answered as f64)
}

/// Whether the reasoning is part of the answer's text, for example in `<think>`.
fn within_answer(generation: &Generation, output: u64, reasoning: u64) -> bool {
    let ratio = of_answer(generation, output, reasoning);
    generation.tokens().reasoning == 0 && ratio.is_some_and(|ratio| ratio < WITHIN_ANSWER)
}

/// The largest plausible number of reported tokens for each of ours, from the answer of this call.
/// `None` if answer and reasoning have different scripts.
fn by_answer(generation: &Generation, output: u64, reasoning: u64) -> Option<f64> {
    let [_, answer, thought] = generation.counts.scripts();
    let ratio = of_answer(generation, output, reasoning).filter(|_| answer == thought)?;
    Some(ratio.clamp(1.0, thought.most_tokens()) * MARGIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_core::call::{Channel, Event, Segment, Usage};

    const THAI: &str = "แม่น้ำพาเรือไปทะเลในฤดูหนาวไม่มีอะไรเคลื่อนไหว ";

    fn segment(channel: Channel) -> Segment {
        Segment {
            choice: 0,
            index: 0,
            channel,
        }
    }

    /// A generation that streamed these texts and reports this usage.
    fn generation(thought: &str, answer: &str, usage: Usage) -> Generation {
        let mut generation = Generation::default();
        for (channel, text) in [(Channel::Reasoning, thought), (Channel::Answer, answer)] {
            let segment = segment(channel);
            if !text.is_empty() {
                generation.event(Event::Delta { segment, text });
            }
        }
        generation.event(Event::Usage(usage));
        generation.finish();
        generation
    }

    fn usage(output: u64, reasoning: u64) -> Usage {
        Usage {
            output: Some(output),
            reasoning: Some(reasoning),
            ..Usage::default()
        }
    }

    #[test]
    fn the_answer_cannot_be_more_than_its_text_whatever_reasoning_is_reported() {
        let words = |count: usize| " word".repeat(count);
        for dialect in [
            Dialect::OpenaiChat,
            Dialect::OpenaiResponses,
            Dialect::Anthropic,
            Dialect::Gemini,
            Dialect::OpenaiRealtime,
            Dialect::Ollama,
        ] {
            for (thought, reported, output, should) in [
                (0, 0, 1660, true),
                (0, 1, 1660, true),
                (0, 8, 1660, true),
                (40, 40, 1660, true),
                (25, 40, 1660, true),
                (1000, 1000, 2500, true),
                (40, 40, 104, false),
                (40, 44, 116, false),
                (0, 8, 72, false),
                (1000, 1002, 1075, false),
            ] {
                let generation = generation(&words(thought), &words(64), usage(output, reported));
                let case = format!("{dialect:?}: {thought} streamed, {reported} of {output}");
                assert_eq!(hidden(dialect, &generation), should, "{case}");
            }
        }
    }

    #[test]
    fn reasoning_that_a_gateway_counted_by_another_tokenizer_hides_nothing() {
        let (thought, answer) = (" word".repeat(1000), " word".repeat(100));
        // 1.3 tokens of the provider for each of ours.
        let counted = generation(&thought, &answer, usage(1430, 1000));
        assert!(!hidden(Dialect::OpenaiChat, &counted));
        let too_few = generation(&thought, &answer, usage(1100, 10));
        assert!(!hidden(Dialect::OpenaiChat, &too_few));
    }

    #[test]
    fn reasoning_that_openai_rounds_down_hides_nothing() {
        // These numbers come from a recording of `gpt-5` with a summary and a short call.
        let summary = " word".repeat(91);
        let mut called = generation(&summary, "", usage(212, 128));
        let segment = segment(Channel::ToolCall);
        let text = " word".repeat(8);
        called.event(Event::Delta {
            segment,
            text: &text,
        });
        called.finish();
        assert!(!hidden(Dialect::OpenaiResponses, &called));
        let mut more = generation(&summary, "", usage(300, 128));
        more.event(Event::Delta {
            segment,
            text: &text,
        });
        more.finish();
        assert!(hidden(Dialect::OpenaiResponses, &more));
    }

    #[test]
    fn each_channel_is_judged_by_its_own_kind_of_text() {
        let english = "The river carries boats to the sea and nothing moves in winter. ".repeat(60);
        let thai = THAI.repeat(3);
        let ours = |text: &str| tokengauge_tokenizer::count(text);
        let (long, short) = (ours(&english), ours(&thai));
        let in_thai = generation(&english, &thai, usage(long + short * 4, long));
        assert!(!hidden(Dialect::OpenaiChat, &in_thai), "a Thai answer");
        let more = generation(&english, &thai, usage(long + short * 12, long));
        assert!(hidden(Dialect::OpenaiChat, &more));
        let thai = THAI.repeat(20);
        let (long, short) = (ours(&thai), ours(&english));
        let thought = generation(&thai, &english, usage(long * 4 + short, long * 4));
        assert!(!hidden(Dialect::OpenaiChat, &thought), "Thai reasoning");
    }

    #[test]
    fn tool_calls_and_predictions_are_output_without_text() {
        let thought = " word".repeat(100);
        let mut called = generation(&thought, "", usage(200, 100));
        assert!(hidden(Dialect::OpenaiChat, &called));
        called.event(Event::ToolName {
            segment: segment(Channel::ToolCall),
            name: "now",
        });
        assert!(!hidden(Dialect::OpenaiChat, &called), "no arguments");
        let mut rejected = usage(1200, 100);
        rejected.details.unsent_output = Some(1000);
        let answer = " word".repeat(100);
        let rejected = generation(&thought, &answer, rejected);
        assert!(!hidden(Dialect::OpenaiChat, &rejected));
        let mut searched = usage(340, 100);
        searched.details.searches = Some(3);
        let searched = generation(&thought, &answer, searched);
        assert!(!hidden(Dialect::OpenaiResponses, &searched));
        let mut spoken = usage(1660, 8);
        spoken.details.audio_output = Some(1500);
        let spoken = generation("", &answer, spoken);
        assert!(!hidden(Dialect::OpenaiRealtime, &spoken), "speech");
    }
}
