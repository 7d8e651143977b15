//! The properties of a unit that are known before it has an arm.

use std::time::{Duration, SystemTime};
use tokengauge_store::query::{UnitKind, UnitSums};

/// The prompt length and the time of the first call of a unit. The variant cannot have influenced them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stratum {
    /// The index of the first prompt's length in `PROMPT_LENGTHS` of `tokengauge_core::lengths`; `None` if it is
    /// unknown.
    prompt: Option<usize>,
    time: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Time {
    /// The hour of the day in UTC. Each arm has the same share of units at any time, so hours only explain differences
    /// between units.
    Hour(u8),
    /// The part of a rollout. Each part may split units differently.
    Slot(usize),
}

impl Stratum {
    /// Returns the stratum of a unit. Blocks of time have none, because a block is not assigned at its first call.
    pub fn of(sums: &UnitSums, kind: UnitKind) -> Stratum {
        match kind {
            UnitKind::Block(_) => Stratum::default(),
            UnitKind::Session | UnitKind::Agent | UnitKind::User => Stratum {
                prompt: sums.first_prompt,
                time: Some(Time::Hour(hour(sums.first_at()))),
            },
        }
    }

    pub fn in_slot(prompt: Option<usize>, slot: usize) -> Stratum {
        Stratum {
            prompt,
            time: Some(Time::Slot(slot)),
        }
    }

    #[cfg(test)]
    pub(crate) fn new(prompt: usize, hour: u8) -> Stratum {
        Stratum {
            prompt: Some(prompt),
            time: Some(Time::Hour(hour)),
        }
    }

    /// Removes the least important property.
    pub(crate) fn coarser(self) -> Stratum {
        match self.time {
            Some(Time::Slot(_)) => Stratum {
                prompt: None,
                ..self
            },
            _ => Stratum { time: None, ..self },
        }
    }
}

fn hour(at: SystemTime) -> u8 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    (since.unwrap_or(Duration::ZERO).as_secs() / 3_600 % 24) as u8
}
