//! Assigns the requests of an experiment to arms by a salted hash of their unit. So every process
//! chooses the same arm, and none has to remember it.

use crate::attribution::{HeaderAttribution, Rules};
use sha2::{Digest, Sha256};
use std::time::{Duration, SystemTime};
use tokengauge_core::experiment::{RequestHead, SplitBy};
use tokengauge_core::time::duration_since_1970;

/// The position of a request, from 0 to 1; `None` if its head names no unit.
pub fn split_position(
    by: SplitBy,
    salt: &str,
    head: RequestHead<'_>,
    rules: &Rules,
) -> Option<f64> {
    let unit = match by {
        SplitBy::Unit(unit) => {
            HeaderAttribution::of(head.headers, head.uri, head.port, rules)?.unit(unit)?
        }
        SplitBy::Block(length) => block(length, head.read_at),
    };
    Some(position(salt, &unit))
}

/// The first 53 bits of SHA-256 over the salt, a zero byte and the unit's name, as a number from 0
/// to 1.
fn position(salt: &str, unit: &str) -> f64 {
    let digest = Sha256::new()
        .chain_update(salt.as_bytes())
        .chain_update([0])
        .chain_update(unit.as_bytes())
        .finalize();
    let first = digest.iter().take(8);
    let bits = first.fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// The name of the block of time that contains `at`.
fn block(length: Duration, at: SystemTime) -> String {
    let block = duration_since_1970(at).as_secs() / length.as_secs().max(1);
    block.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_spread_evenly() {
        let mut counts = [0_u32; 10];
        for unit in 0..20_000 {
            counts[(position("s", &format!("session-{unit}")) * 10.0) as usize] += 1;
        }
        // Five standard deviations of a binomial distribution.
        let reach = 5.0 * (20_000.0 * 0.1 * 0.9_f64).sqrt();
        let even = |count: &u32| (f64::from(*count) - 2_000.0).abs() < reach;
        assert!(counts.iter().all(even), "{counts:?}");
    }

    /// Computed with Python's hashlib. A change of the hash would move every unit of a running
    /// experiment.
    #[test]
    fn the_hash_never_changes() {
        let half = |unit: String| {
            if position("decoder", &unit) < 0.5 {
                '0'
            } else {
                '1'
            }
        };
        let halves: String = (0..16).map(|unit| half(format!("s{unit}"))).collect();
        assert_eq!(halves, "0001000110001110");
    }

    #[test]
    fn two_salts_assign_independently() {
        let same = (0..10_000)
            .map(|unit| format!("session-{unit}"))
            .filter(|unit| (position("one", unit) < 0.5) == (position("two", unit) < 0.5))
            .count();
        assert!((4_750..5_250).contains(&same), "{same}");
    }

    #[test]
    fn a_block_of_time_has_one_position_and_blocks_differ() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let position = |seconds| position("s", &block(Duration::from_secs(600), at(seconds)));
        for block in 0..50 {
            assert!(position(block * 600) == position(block * 600 + 599));
        }
        let second = (0..1_000)
            .filter(|block| position(block * 600) >= 0.5)
            .count();
        assert!((400..600).contains(&second), "{second}");
    }
}
