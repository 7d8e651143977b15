//! Plans the content of an answer, and how it is cut into events and chunks.

use super::profile::{Fault, Finish, Profile, UsageMode};
use super::text_gen::{self, Random};
use std::ops::Range;
use std::time::Duration;
use tokengauge_core::call::{Channel, Usage};

#[derive(Clone, Debug)]
pub struct Text {
    pub channel: Channel,
    pub choice: u32,
    pub block: u32,
    pub call: u32,
    /// The text, one token per unit.
    pub units: Vec<&'static str>,
}

impl Text {
    pub fn whole(&self) -> String {
        self.units.concat()
    }
}

#[derive(Clone, Debug)]
pub struct PlannedResponse {
    /// Hexadecimal digits, from which dialects make their ids.
    pub id: String,
    pub model: String,
    pub created: u64,
    pub texts: Vec<Text>,
    pub choices: u32,
    pub tool_name: String,
    /// Why the answer ends, if no tool is called.
    pub finish: Finish,
    pub usage: Option<Counts>,
    pub empty_deltas: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Counts {
    pub input: u64,
    /// The input tokens that came from the cache. `None` without a cache.
    pub cached: Option<u64>,
    pub output: u64,
    pub reasoning: u64,
}

impl Counts {
    /// The input tokens that came from the cache.
    pub fn cached_tokens(self) -> u64 {
        self.cached.unwrap_or(0)
    }

    /// The counts for dialects that report reasoning separately.
    pub fn in_full(self) -> Usage {
        Usage {
            reasoning: Some(self.reasoning),
            ..self.without_reasoning()
        }
    }

    /// The counts for dialects that do not report reasoning.
    pub fn without_reasoning(self) -> Usage {
        Usage {
            input: Some(self.input),
            output: Some(self.output),
            ..Usage::default()
        }
    }
}

/// Why an answer ends, before a dialect translates it to its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Natural,
    Length,
    ToolCalls,
    Refused,
    InvalidToolCall,
}

impl PlannedResponse {
    pub fn stop(&self) -> Stop {
        if self
            .texts
            .iter()
            .any(|text| text.channel == Channel::ToolCall)
        {
            Stop::ToolCalls
        } else {
            match self.finish {
                Finish::Stop => Stop::Natural,
                Finish::Length => Stop::Length,
                Finish::Refused => Stop::Refused,
                Finish::InvalidToolCall => Stop::InvalidToolCall,
            }
        }
    }

    /// The complete texts of one choice and channel.
    pub fn joined(&self, choice: u32, channel: Channel) -> String {
        let of = |text: &&Text| text.choice == choice && text.channel == channel;
        self.texts.iter().filter(of).map(Text::whole).collect()
    }

    pub fn calls(&self, choice: u32) -> impl Iterator<Item = &Text> {
        self.texts
            .iter()
            .filter(move |text| text.choice == choice && text.channel == Channel::ToolCall)
    }

    /// The id of a tool call in the style of `prefix_…`.
    pub fn call_id(&self, prefix: &str, text: &Text) -> String {
        format!(
            "{prefix}{}{:02}{:02}",
            &self.id[..16],
            text.choice,
            text.call
        )
    }

    pub fn tokens(&self) -> u64 {
        self.texts.iter().map(|text| text.units.len() as u64).sum()
    }
}

#[derive(Clone, Debug, Default)]
pub struct GenerationRequest {
    pub model: String,
    pub choices: u32,
    pub tool_name: Option<String>,
    pub input_tokens: u64,
    /// The input tokens that came from the cache. `None` without a cache.
    pub cached_tokens: Option<u64>,
    /// Whether the dialect reports usage without being asked.
    pub reports_usage: bool,
}

pub fn response(
    profile: &Profile,
    wanted: &GenerationRequest,
    created: u64,
    random: &mut Random,
) -> PlannedResponse {
    let choices = wanted.choices.max(1);
    let mut texts = Vec::new();
    for choice in 0..choices {
        texts.extend(choice_texts(profile, choice, random));
    }
    let mut planned = PlannedResponse {
        id: format!("{:016x}{:016x}", random.bits(), random.bits()),
        model: wanted.model.clone(),
        created,
        texts,
        choices,
        tool_name: wanted.tool_name.clone().unwrap_or_else(|| "lookup".into()),
        finish: profile.finish,
        usage: None,
        empty_deltas: profile.empty,
    };
    let reports = match profile.usage {
        UsageMode::Auto => wanted.reports_usage,
        UsageMode::On => true,
        UsageMode::Off => false,
    };
    planned.usage = reports.then(|| Counts {
        input: wanted.input_tokens,
        cached: wanted.cached_tokens,
        output: planned.tokens(),
        reasoning: profile.reasoning * u64::from(choices),
    });
    planned
}

fn choice_texts(profile: &Profile, choice: u32, random: &mut Random) -> Vec<Text> {
    let (low, high) = profile.tokens;
    let tokens = low + random.below(high - low + 1);
    let mut texts = Vec::new();
    let mut push = |channel, call, units: Vec<&'static str>| {
        if !units.is_empty() {
            let block = texts.len() as u32;
            texts.push(Text {
                channel,
                choice,
                block,
                call,
                units,
            });
        }
    };
    push(
        Channel::Reasoning,
        0,
        text_gen::answer(profile.reasoning, random),
    );
    let mut answer = text_gen::answer(tokens, random);
    if let Some((period, position)) = profile.repeat {
        text_gen::repeat(&mut answer, period, position, random);
    }
    push(Channel::Answer, 0, answer);
    if let Some(tool) = profile.tool {
        for call in 0..tool.calls as u32 {
            push(
                Channel::ToolCall,
                call,
                text_gen::arguments(tool.tokens, random),
            );
        }
    }
    texts
}

/// A run of tokens of one text, which one event carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub text: usize,
    pub units: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub pieces: Vec<Piece>,
    /// The number of tokens before this step.
    pub position: u64,
    pub pause: Duration,
}

/// The chunks of an answer, and whether a fault ends it early.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub fault: Option<Fault>,
}

/// Cuts an answer into chunks. Stalls and faults happen exactly at their token. The exception is
/// inside arguments that the dialect sends as one object (`whole_calls`).
pub fn plan(profile: &Profile, planned: &PlannedResponse, whole_calls: bool) -> Plan {
    let mut cutter = Cutter {
        profile,
        planned,
        whole_calls,
        position: 0,
        plan: Plan::default(),
    };
    let mut next: Vec<(usize, usize)> = Vec::new();
    // Choices alternate event by event. The texts of one choice follow each other.
    for choice in 0..planned.choices {
        next.extend(
            planned
                .texts
                .iter()
                .position(|text| text.choice == choice)
                .map(|text| (text, 0)),
        );
    }
    while !next.is_empty() {
        let mut later = Vec::with_capacity(next.len());
        for cursor in next {
            if cutter.over() {
                break;
            }
            later.extend(cutter.take(cursor));
        }
        next = later;
    }
    // A fault after the last token still happens.
    if cutter.position > 0 {
        cutter.over();
    }
    cutter.plan
}

struct Cutter<'a> {
    profile: &'a Profile,
    planned: &'a PlannedResponse,
    whole_calls: bool,
    position: u64,
    plan: Plan,
}

impl Cutter<'_> {
    /// Whether the fault is due.
    fn over(&mut self) -> bool {
        let due = self
            .profile
            .fault
            .as_ref()
            .filter(|fault| fault.after <= self.position);
        if let Some(fault) = due {
            self.plan.fault = Some(fault.clone());
        }
        due.is_some()
    }

    /// Cuts one event off a text. Returns the place at which its choice continues.
    fn take(&mut self, (index, from): (usize, usize)) -> Option<(usize, usize)> {
        let text = &self.planned.texts[index];
        let left = text.units.len() - from;
        let whole = self.whole_calls && text.channel == Channel::ToolCall;
        let length = if whole {
            left
        } else {
            self.length().min(left as u64) as usize
        };
        self.push(Piece {
            text: index,
            units: from..from + length,
        });
        if length < left {
            return Some((index, from + length));
        }
        let following = self.planned.texts.get(index + 1)?;
        (following.choice == text.choice).then_some((index + 1, 0))
    }

    /// The number of tokens that the next event may carry.
    fn length(&self) -> u64 {
        let stalls = self.profile.stalls.iter().map(|&(_, at)| at);
        let fault = self.profile.fault.iter().map(|fault| fault.after);
        let barrier = stalls.chain(fault).filter(|&at| at > self.position).min();
        barrier
            .map_or(u64::MAX, |at| at - self.position)
            .min(self.profile.per_frame)
    }

    fn push(&mut self, piece: Piece) {
        let tokens = piece.units.len() as u64;
        let reach = self.position..self.position + tokens;
        let due = self
            .profile
            .stalls
            .iter()
            .filter(|(_, at)| reach.contains(at));
        let pause: Duration = due.map(|&(pause, _)| pause).sum();
        match self.plan.steps.last_mut() {
            Some(step) if pause.is_zero() && (step.pieces.len() as u64) < self.profile.burst => {
                step.pieces.push(piece);
            }
            _ => self.plan.steps.push(Step {
                pieces: vec![piece],
                position: self.position,
                pause,
            }),
        }
        self.position += tokens;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(settings: &str, choices: u32, whole_calls: bool) -> (PlannedResponse, Plan) {
        let profile: Profile = settings.parse().expect(settings);
        let wanted = GenerationRequest {
            choices,
            reports_usage: true,
            ..GenerationRequest::default()
        };
        let planned = response(&profile, &wanted, 0, &mut Random::new(1));
        let plan = plan(&profile, &planned, whole_calls);
        (planned, plan)
    }

    fn lengths(plan: &Plan) -> Vec<usize> {
        plan.steps
            .iter()
            .map(|s| s.pieces.iter().map(|p| p.units.len()).sum())
            .collect()
    }

    #[test]
    fn chunks_carry_as_many_tokens_as_asked_and_texts_never_share_an_event() {
        let (_, plan) = planned("tokens=10,reasoning=5,per_frame=4", 1, false);
        assert_eq!(lengths(&plan), [4, 1, 4, 4, 2]);
        let (_, plan) = planned("tokens=10,per_frame=2,burst=2", 1, false);
        assert_eq!(lengths(&plan), [4, 4, 2]);
    }

    #[test]
    fn stalls_and_faults_fall_between_the_tokens_they_name() {
        let (_, plan) = planned("tokens=10,per_frame=4,stall=1s@6,reset=@9", 1, false);
        assert_eq!(lengths(&plan), [4, 2, 3]);
        let pauses: Vec<u64> = plan.steps.iter().map(|step| step.pause.as_secs()).collect();
        assert_eq!(pauses, [0, 0, 1]);
        assert!(plan.fault.is_some());
        assert!(planned("tokens=10,reset=@11", 1, false).1.fault.is_none());
        assert!(planned("tokens=10,reset=@10", 1, false).1.fault.is_some());
        assert!(planned("tokens=10,reset=@0", 1, false).1.steps.is_empty());
    }

    #[test]
    fn choices_interleave_and_each_is_sent_completely() {
        let (planned, plan) = planned("tokens=4", 2, false);
        let order: Vec<usize> = plan.steps.iter().map(|step| step.pieces[0].text).collect();
        assert_eq!(order, [0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(planned.usage.map(|usage| usage.output), Some(8));
    }

    #[test]
    fn arguments_come_in_one_piece_where_the_dialect_sends_objects() {
        let (planned, plan) = planned("tokens=3,tool=9x2", 1, true);
        assert_eq!(lengths(&plan), [1, 1, 1, 9, 9]);
        assert_eq!(planned.stop(), Stop::ToolCalls);
    }
}
