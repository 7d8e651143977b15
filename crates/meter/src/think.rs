//! Separates reasoning between `<think>` and `</think>` from the answer. Engines without a
//! reasoning parser send it in the text of the answer.

use crate::settings::ThinkTags;
use tokengauge_core::call::{Channel, Segment};

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

const MAX_OTHERS: usize = 255;

#[derive(Debug, Default)]
pub(crate) struct ThinkSplit {
    pub(crate) tags: ThinkTags,
    first: Place,
    others: Vec<(u32, Place)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    state: ThinkPosition,
    /// The length of a partial tag at the end of the text so far.
    held: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ThinkPosition {
    #[default]
    Beginning,
    Reasoning,
    /// The text after the tags, or a text without tags.
    Answer,
}

impl ThinkSplit {
    /// Splits the next piece of a text, and passes the parts with their channels to `give`. The
    /// tags belong to the reasoning.
    pub(crate) fn push(
        &mut self,
        (segment, text): (Segment, &str),
        give: &mut dyn FnMut(Segment, &str),
    ) {
        let tags = self.tags;
        let looks_at = match segment.channel {
            Channel::Answer => tags != ThinkTags::Answer,
            Channel::Reasoning => tags == ThinkTags::Opened,
            Channel::ToolCall => false,
        };
        if !looks_at {
            return give(segment, text);
        }
        match self.place(segment.choice) {
            Some(place) if segment.channel == Channel::Answer => {
                place.push(tags, (segment, text), give);
            }
            Some(place) => {
                // This engine has a reasoning parser, so its answers contain no reasoning.
                place.finish(segment.choice, give);
                place.state = ThinkPosition::Answer;
                give(segment, text);
            }
            None => give(segment, text),
        }
    }

    /// Passes a partial tag at the end of the text to `give`.
    pub(crate) fn finish(&mut self, give: &mut dyn FnMut(Segment, &str)) {
        self.first.finish(0, give);
        for (choice, place) in &mut self.others {
            place.finish(*choice, give);
        }
    }

    /// The place in the answer of a choice; `None` if there are too many choices.
    fn place(&mut self, choice: u32) -> Option<&mut Place> {
        if choice == 0 {
            return Some(&mut self.first);
        }
        let known = self.others.iter().position(|(known, _)| *known == choice);
        if known.is_none() && self.others.len() < MAX_OTHERS {
            self.others.push((choice, Place::default()));
        }
        let at = known.unwrap_or(self.others.len().checked_sub(1)?);
        let (found, place) = &mut self.others[at];
        (*found == choice).then_some(place)
    }
}

impl Place {
    fn push(
        &mut self,
        tags: ThinkTags,
        (segment, text): (Segment, &str),
        give: &mut dyn FnMut(Segment, &str),
    ) {
        if self.state == ThinkPosition::Beginning && tags == ThinkTags::Opened {
            self.state = ThinkPosition::Reasoning;
        }
        let reasoning = Segment {
            channel: Channel::Reasoning,
            ..segment
        };
        let tag = match self.state {
            ThinkPosition::Answer => return give(segment, text),
            ThinkPosition::Reasoning => CLOSE,
            ThinkPosition::Beginning => OPEN,
        };
        // The withheld text is the beginning of the tag, so it need not be stored.
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
            ThinkPosition::Beginning => self.begin((segment, reasoning), text, give),
            ThinkPosition::Reasoning | ThinkPosition::Answer => {
                self.reason((segment, reasoning), text, give)
            }
        }
    }

    fn finish(&mut self, choice: u32, give: &mut dyn FnMut(Segment, &str)) {
        let (tag, channel) = match self.state {
            ThinkPosition::Reasoning => (CLOSE, Channel::Reasoning),
            ThinkPosition::Beginning | ThinkPosition::Answer => (OPEN, Channel::Answer),
        };
        let held = std::mem::take(&mut self.held);
        if held > 0 {
            let segment = Segment {
                choice,
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
            self.state = ThinkPosition::Answer;
            return give(answer, text);
        }
        if !blank.is_empty() {
            give(answer, blank);
        }
        match begun.strip_prefix(OPEN) {
            None => self.held = begun.len() as u8,
            Some(inside) => {
                self.state = ThinkPosition::Reasoning;
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
            self.state = ThinkPosition::Answer;
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
    use std::collections::BTreeMap;

    const ANSWER: Segment = Segment {
        choice: 0,
        index: 0,
        channel: Channel::Answer,
    };

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

    /// Reasoning and answer of each choice. The pieces are `(choice, channel, text)`.
    fn split_choices(
        tags: ThinkTags,
        pieces: &[(u32, Channel, &str)],
    ) -> BTreeMap<u32, (String, String)> {
        let mut split = ThinkSplit {
            tags,
            ..ThinkSplit::default()
        };
        let mut texts: BTreeMap<u32, (String, String)> = BTreeMap::new();
        let mut give = |segment: Segment, text: &str| {
            let (reasoning, answer) = texts.entry(segment.choice).or_default();
            match segment.channel {
                Channel::Reasoning => reasoning.push_str(text),
                _ => answer.push_str(text),
            }
        };
        for (choice, channel, text) in pieces {
            let segment = Segment {
                choice: *choice,
                channel: *channel,
                ..ANSWER
            };
            split.push((segment, text), &mut give);
        }
        split.finish(&mut give);
        texts
    }

    #[test]
    fn every_choice_is_split_however_they_interleave() {
        let answer = Channel::Answer;
        for (tags, open) in [(ThinkTags::Auto, "<think>"), (ThinkTags::Opened, "")] {
            let pieces = [
                (0, answer, &*format!("{open}a</th")),
                (1, answer, &*format!("{open}b")),
                (7, answer, &*format!("{open}c <")),
                (0, answer, "ink>A"),
                (1, answer, "</think>B</th"),
            ];
            let of = |reasoning: &str, answer: &str| (format!("{open}{reasoning}"), answer.into());
            let should = [
                (0, of("a</think>", "A")),
                (1, of("b</think>", "B</th")),
                (7, of("c <", "")),
            ];
            assert_eq!(split_choices(tags, &pieces), BTreeMap::from(should));
        }
        let many: Vec<_> = (0..1000)
            .map(|choice| (choice, answer, "<think>a</think>A"))
            .collect();
        let texts = split_choices(ThinkTags::Auto, &many);
        assert_eq!(texts[&255], ("<think>a</think>".into(), "A".into()));
        assert_eq!(texts[&256], (String::new(), "<think>a</think>A".into()));
    }

    #[test]
    fn an_answer_beside_reasoning_of_the_engine_is_an_answer() {
        let (reasoning, answer) = (Channel::Reasoning, Channel::Answer);
        let pieces = [
            (0, reasoning, "so"),
            (0, answer, "Yes"),
            (0, reasoning, " on"),
            (0, answer, "."),
            (1, answer, "well</thi"),
            (1, reasoning, "!"),
            (1, answer, "No"),
            (2, answer, "aye</think>Aye"),
        ];
        let should = [
            (0, ("so on".into(), "Yes.".into())),
            (1, ("well</thi!".into(), "No".into())),
            (2, ("aye</think>".into(), "Aye".into())),
        ];
        let texts = split_choices(ThinkTags::Opened, &pieces);
        assert_eq!(texts, BTreeMap::from(should));
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
