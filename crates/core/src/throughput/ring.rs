//! Amounts by second, for the last few minutes.

use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const SECONDS: u64 = 320;
/// The number of seconds that are read. It is smaller than the ring, so that a slot that is being
/// reused is never read.
pub(super) const READ: u64 = 310;

/// Amounts by second. Each slot holds a second in its upper half and the amount in its lower half.
#[derive(Debug)]
pub(super) struct Ring {
    slots: Box<[AtomicU64]>,
}

impl Default for Ring {
    fn default() -> Ring {
        let slots = (0..SECONDS).map(|_| AtomicU64::new(0));
        Ring {
            slots: slots.collect(),
        }
    }
}

impl Ring {
    /// Adds an amount, which may be negative, to a second. Returns `false` if the slot already
    /// holds a later second.
    pub(super) fn add(&self, second: u64, amount: i64) -> bool {
        let add = |held: u64| {
            let before = match (held >> 32).cmp(&second) {
                std::cmp::Ordering::Greater => return None,
                std::cmp::Ordering::Equal => held & HALF,
                std::cmp::Ordering::Less => 0,
            };
            Some((second << 32) | before.saturating_add_signed(amount).min(HALF))
        };
        let slot = &self.slots[slot_of(second)];
        let (done, wrong) = (Ordering::Relaxed, Ordering::Relaxed);
        slot.fetch_update(done, wrong, add).is_ok()
    }

    pub(super) fn of(&self, second: u64) -> u64 {
        let held = self.slots[slot_of(second)].load(Ordering::Relaxed);
        if held >> 32 == second { held & HALF } else { 0 }
    }
}

const HALF: u64 = u32::MAX as u64;

pub(super) fn slot_of(second: u64) -> usize {
    (second % SECONDS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_does_not_inherit_from_the_one_that_had_its_slot() {
        let ring = Ring::default();
        assert!(ring.add(5, 1000) && ring.add(5, 1));
        assert_eq!(ring.of(5), 1001);
        assert!(ring.add(5, -1));
        assert_eq!(ring.of(5), 1000);
        assert!(ring.add(5 + SECONDS, 10));
        assert_eq!((ring.of(5), ring.of(5 + SECONDS)), (0, 10));
    }

    #[test]
    fn what_is_too_late_for_its_slot_is_refused_and_takes_nothing_from_the_later_second() {
        let ring = Ring::default();
        assert!(ring.add(1000, 7));
        assert!(!ring.add(1000 - SECONDS, 9));
        assert_eq!(ring.of(1000), 7);
    }
}
