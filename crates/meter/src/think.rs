//! Reasoning in the answer itself, between `<think>` and `</think>`: engines without a reasoning
//! parser send it so.

use crate::settings::ThinkTags;
use tokengauge_core::call::{Channel, Segment};

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Where the answer of a generation is. Only the first of several choices is split.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThinkSplit {
    pub(crate) tags: ThinkTags,
    state: State,
    /// The beginning of a tag at the end of the text so far.
    held: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No text but white space yet.
    #[default]
    Beginning,
    /// Between the tags.
    Reasoning,
    /// Behind them, or there are none.
    Answer,
}

impl ThinkSplit {
    /// Splits the next piece of the answer, and gives the parts by their channels. The tags belong
    /// to the reasoning.
    pub(crate) fn push(
        &mut self,
        (segment, text): (Segment, &str),
        give: &mut dyn FnMut(Segment, &str),
    ) {
        let is_answer = segment.channel == Channel::Answer && segment.choice == 0;
        if !is_answer || self.state == State::Answer || self.tags == ThinkTags::Answer {
            return give(segment, text);
        }
        let reasoning = Segment {
            channel: Channel::Reasoning,
            ..segment
        };
        if self.state == State::Beginning && self.tags == ThinkTags::Opened {
            self.state = State::Reasoning;
        }
        let tag = match self.state {
            State::Reasoning => CLOSE,
            State::Beginning | State::Answer => OPEN,
        };
        // What was held back is the beginning of the tag, so it need not be kept.
        let whole;
        let text = match self.held {
            0 => text,
            held => {
                whole = format!("{}{text}", &tag[..usize::from(held)]);
                self.held = 0;
                whole.as_str()
            }
        };
        match self.state {
            State::Beginning => self.begin((segment, reasoning), text, give),
            State::Reasoning | State::Answer => self.reason((segment, reasoning), text, give),
        }
    }

    /// No more text follows: gives what was held back.
    pub(crate) fn finish(&mut self, give: &mut dyn FnMut(Segment, &str)) {
        let (tag, channel) = match self.state {
            State::Reasoning => (CLOSE, Channel::Reasoning),
            State::Beginning | State::Answer => (OPEN, Channel::Answer),
        };
        let held = std::mem::take(&mut self.held);
        if held > 0 {
            let segment = Segment {
                choice: 0,
                index: 0,
                channel,
            };
            give(segment, &tag[..usize::from(held)]);
        }
    }

    fn begin(
        &mut self,
        (answer, reasoning): (Segment, Segment),
        text: &str,
        give: &mut dyn FnMut(Segment, &str),
    ) {
        let begun = text.trim_start();
        let (blank, begun) = text.split_at(text.len() - begun.len());
        let is_beginning = begun.starts_with(OPEN) || OPEN.starts_with(begun);
        if !is_beginning {
            self.state = State::Answer;
            return give(answer, text);
        }
        if !blank.is_empty() {
            give(answer, blank);
        }
        match begun.strip_prefix(OPEN) {
            None => self.held = begun.len() as u8,
            Some(inside) => {
                self.state = State::Reasoning;
                give(reasoning, OPEN);
                if !inside.is_empty() {
                    self.reason((answer, reasoning), inside, give);
                }
            }
        }
    }

    fn reason(
        &mut self,
        (answer, reasoning): (Segment, Segment),
        text: &str,
        give: &mut dyn FnMut(Segment, &str),
    ) {
        if let Some(at) = text.find(CLOSE) {
            self.state = State::Answer;
            let behind = at + CLOSE.len();
            give(reasoning, &text[..behind]);
            if behind < text.len() {
                give(answer, &text[behind..]);
            }
            return;
        }
        let ends = |length: &usize| text.ends_with(&CLOSE[..*length]);
        let held = (1..CLOSE.len()).rev().find(ends).unwrap_or(0);
        self.held = held as u8;
        if held < text.len() {
            give(reasoning, &text[..text.len() - held]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Segment = Segment {
        choice: 0,
        index: 0,
        channel: Channel::Answer,
    };

    /// Reasoning and answer of a text in pieces.
    fn split(tags: ThinkTags, pieces: &[&str]) -> (String, String) {
        let mut split = ThinkSplit {
            tags,
            ..ThinkSplit::default()
        };
        let (mut reasoning, mut answer) = (String::new(), String::new());
        let mut give = |segment: Segment, text: &str| {
            assert!(!text.is_empty(), "an empty piece");
            match segment.channel {
                Channel::Reasoning => reasoning.push_str(text),
                _ => answer.push_str(text),
            }
        };
        for piece in pieces {
            split.push((ANSWER, piece), &mut give);
        }
        split.finish(&mut give);
        (reasoning, answer)
    }

    #[test]
    fn a_text_is_split_alike_however_it_is_cut() {
        for (tags, text, reasoning, answer) in [
            (
                ThinkTags::Auto,
                "<think>so</think>Yes",
                "<think>so</think>",
                "Yes",
            ),
            (
                ThinkTags::Auto,
                "<think></think>Yes",
                "<think></think>",
                "Yes",
            ),
            (ThinkTags::Auto, "<think>no end <", "<think>no end <", ""),
            (
                ThinkTags::Auto,
                "Yes <think>so</think>",
                "",
                "Yes <think>so</think>",
            ),
            (ThinkTags::Auto, "<thin air", "", "<thin air"),
            (ThinkTags::Auto, "<", "", "<"),
            (
                ThinkTags::Opened,
                "so</think>Yes</think>",
                "so</think>",
                "Yes</think>",
            ),
            (
                ThinkTags::Answer,
                "<think>so</think>Yes",
                "",
                "<think>so</think>Yes",
            ),
        ] {
            let should = (reasoning.to_owned(), answer.to_owned());
            assert_eq!(split(tags, &[text]), should, "{text}");
            for cut in 1..text.len() {
                let (one, other) = text.split_at(cut);
                assert_eq!(split(tags, &[one, other]), should, "{text} at {cut}");
            }
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(split(tags, &letters), should, "{text} by letters");
        }
        for pieces in [
            &["\n<think>so</think>Yes"][..],
            &["\n", "<think>so</think>", "Yes"],
        ] {
            let (reasoning, answer) = split(ThinkTags::Auto, pieces);
            assert_eq!((&*reasoning, &*answer), ("<think>so</think>", "\nYes"));
        }
    }
}
