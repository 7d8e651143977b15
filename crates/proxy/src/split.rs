//! Which arm of an experiment a request belongs to: by a salted hash, so that every process chooses the same arm and none
//! has to remember it.

use crate::settings::{Split, SplitBy};
use sha2::{Digest, Sha256};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use tokengauge_core::experiment::{AssignedVariant, RequestHead};
use tokengauge_core::observer::Observer;
use tokengauge_core::time::duration_since_1970;

/// The arm of a request, as an index, and what its record says; no arm for a request that names no unit.
pub(super) struct Chosen {
    pub arm: Option<usize>,
    pub variant: AssignedVariant,
}

/// Chooses the arm of a request that was read at `at`. A panic of the observer is counted, and the request is one without
/// a unit.
pub(super) fn choose(
    split: &Split,
    observer: &dyn Observer,
    panics: &AtomicU64,
    head: RequestHead<'_>,
    at: SystemTime,
) -> Chosen {
    let unit = match split.by {
        SplitBy::Unit(unit) => {
            let asked = catch_unwind(AssertUnwindSafe(|| observer.unit(unit, head)));
            asked.unwrap_or_else(|_| {
                panics.fetch_add(1, Ordering::Relaxed);
                None
            })
        }
        SplitBy::Block(length) => {
            let block = duration_since_1970(at).as_secs() / length.as_secs().max(1);
            Some(block.to_string())
        }
    };
    let arm = unit.map(|unit| arm_of(split, &unit));
    let name = arm.and_then(|arm| split.arms.get(arm)).map(|arm| &arm.name);
    Chosen {
        arm,
        variant: AssignedVariant {
            experiment: split.experiment.clone(),
            variant: name.cloned(),
        },
    }
}

/// The arm of a unit. The first 53 bits of SHA-256 over the salt, a zero byte and the unit's name are a number from 0 to 1;
/// the arms share that range in their order, each as much as its weight.
fn arm_of(split: &Split, unit: &str) -> usize {
    let digest = Sha256::new()
        .chain_update(split.salt.as_bytes())
        .chain_update([0])
        .chain_update(unit.as_bytes())
        .finalize();
    let first = digest.iter().take(8);
    let bits = first.fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    let position = (bits >> 11) as f64 / (1_u64 << 53) as f64;
    let mut left = position * split.arms.iter().map(|arm| arm.weight).sum::<f64>();
    for (index, arm) in split.arms.iter().enumerate() {
        if left < arm.weight {
            return index;
        }
        left -= arm.weight;
    }
    split.arms.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Arm, Upstream};
    use std::sync::Arc;
    use std::time::Duration;
    use tokengauge_core::experiment::AssignedUnit;
    use tokengauge_core::observer::{CallStart, ObservedCall};

    fn split(salt: &str, weights: &[f64]) -> Split {
        let arms = weights.iter().enumerate().map(|(index, weight)| Arm {
            name: format!("arm{index}").into(),
            weight: *weight,
            upstream: Arc::new(Upstream::new("u", Vec::new())),
        });
        Split {
            experiment: "e".into(),
            salt: salt.into(),
            by: SplitBy::Unit(AssignedUnit::Session),
            arms: arms.collect(),
        }
    }

    #[test]
    fn units_fall_into_arms_by_weight() {
        let split = split("s", &[70.0, 20.0, 10.0]);
        let mut counts = [0_u32; 3];
        for unit in 0..20_000 {
            counts[arm_of(&split, &format!("session-{unit}"))] += 1;
        }
        // Five standard deviations of a binomial.
        for (count, share) in counts.into_iter().zip([0.7_f64, 0.2, 0.1]) {
            let expected = 20_000.0 * share;
            let reach = 5.0 * (expected * (1.0 - share)).sqrt();
            assert!((f64::from(count) - expected).abs() < reach, "{counts:?}");
        }
    }

    /// Computed with Python's hashlib: a change of the hash would move every unit of a running experiment.
    #[test]
    fn the_hash_never_changes() {
        let split = split("decoder", &[1.0, 1.0]);
        let arms: String = (0..16)
            .map(|unit| arm_of(&split, &format!("s{unit}")).to_string())
            .collect();
        assert_eq!(arms, "0001000110001110");
    }

    #[test]
    fn two_salts_assign_independently() {
        let (one, other) = (split("one", &[1.0, 1.0]), split("two", &[1.0, 1.0]));
        let same = (0..10_000)
            .map(|unit| format!("session-{unit}"))
            .filter(|unit| arm_of(&one, unit) == arm_of(&other, unit));
        let same = same.count();
        assert!((4_750..5_250).contains(&same), "{same}");
    }

    /// Names the session by a header, and panics where that says so.
    struct ByHeader;

    impl Observer for ByHeader {
        fn begin(&self, _: CallStart<'_>) -> Arc<dyn ObservedCall> {
            unreachable!("only units are asked for")
        }

        fn unit(&self, _: AssignedUnit, head: RequestHead<'_>) -> Option<String> {
            let session = head.headers.get("session")?.to_str().ok()?;
            assert_ne!(session, "panic");
            Some(session.to_owned())
        }
    }

    fn chosen(split: &Split, session: Option<&str>, at: u64) -> (Chosen, u64) {
        let mut headers = http::HeaderMap::new();
        if let Some(session) = session {
            headers.insert("session", session.parse().unwrap());
        }
        let head = RequestHead {
            headers: &headers,
            uri: &http::Uri::from_static("/"),
            port: None,
        };
        let panics = AtomicU64::new(0);
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(at);
        let chosen = choose(split, &ByHeader, &panics, head, at);
        (chosen, panics.into_inner())
    }

    #[test]
    fn a_request_without_a_unit_has_the_experiment_and_no_variant() {
        let split = split("s", &[1.0, 1.0]);
        for (session, panics) in [(None, 0), (Some("panic"), 1)] {
            let (chosen, counted) = chosen(&split, session, 0);
            assert_eq!((chosen.arm, counted), (None, panics));
            assert_eq!(&*chosen.variant.experiment, "e");
            assert_eq!(chosen.variant.variant, None);
        }
        let (chosen, _) = chosen(&split, Some("a"), 0);
        let arm = chosen.arm.expect("an arm");
        assert_eq!(chosen.variant.variant, Some(split.arms[arm].name.clone()));
    }

    #[test]
    fn a_block_of_time_has_one_arm_and_blocks_differ() {
        let split = Split {
            by: SplitBy::Block(Duration::from_secs(600)),
            ..split("s", &[1.0, 1.0])
        };
        let arm = |at| chosen(&split, None, at).0.arm.expect("an arm");
        for block in 0..50 {
            assert_eq!(arm(block * 600), arm(block * 600 + 599));
        }
        let second = (0..1_000).filter(|block| arm(block * 600) == 1).count();
        assert!((400..600).contains(&second), "{second}");
    }
}
