use crate::settings::Split;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use tokengauge_core::experiment::{AssignedVariant, RequestHead};
use tokengauge_core::observer::Observer;

/// The index of a request's arm, and the data for its record. A request that names no unit has no arm.
pub(super) struct Chosen {
    pub arm: Option<usize>,
    pub variant: AssignedVariant,
}

/// Chooses the arm of a request. A panic of the observer is counted, and the request has no unit.
pub(super) fn choose(
    split: &Split,
    observer: &dyn Observer,
    panics: &AtomicU64,
    head: RequestHead<'_>,
) -> Chosen {
    let ask = || observer.split_position(split.by, &split.salt, head);
    let position = catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|_| {
        panics.fetch_add(1, Ordering::Relaxed);
        None
    });
    let arm = position.map(|position| arm_at(split, position));
    let name = arm.and_then(|arm| split.arms.get(arm)).map(|arm| &arm.name);
    Chosen {
        arm,
        variant: AssignedVariant {
            experiment: split.experiment.clone(),
            variant: name.cloned(),
        },
    }
}

/// The arm at a position from 0 to 1. The arms divide that range in order, in proportion to their weights.
fn arm_at(split: &Split, position: f64) -> usize {
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
    use tokengauge_core::experiment::{AssignedUnit, SplitBy};
    use tokengauge_core::observer::{CallStart, ObservedCall};

    fn split(weights: &[f64]) -> Split {
        let arms = weights.iter().enumerate().map(|(index, weight)| Arm {
            name: format!("arm{index}").into(),
            weight: *weight,
            upstream: Arc::new(Upstream::new("u", Vec::new())),
        });
        Split {
            experiment: "e".into(),
            salt: "s".into(),
            by: SplitBy::Unit(AssignedUnit::Session),
            arms: arms.collect(),
        }
    }

    #[test]
    fn arms_share_positions_by_weight() {
        let split = split(&[70.0, 20.0, 10.0]);
        let positions = [0.0, 0.69, 0.71, 0.89, 0.91, 1.0];
        let arms = positions.map(|position| arm_at(&split, position));
        assert_eq!(arms, [0, 0, 1, 1, 2, 2]);
    }

    /// Returns a position for numeric paths, none for `/`, and panics for others.
    struct ByPath;

    impl Observer for ByPath {
        fn begin(&self, _: CallStart<'_>) -> Arc<dyn ObservedCall> {
            unreachable!("only positions are asked for")
        }

        fn split_position(&self, _: SplitBy, _: &str, head: RequestHead<'_>) -> Option<f64> {
            let named = head
                .uri
                .path()
                .strip_prefix('/')
                .filter(|path| !path.is_empty());
            named.map(|path| path.parse().unwrap())
        }
    }

    #[test]
    fn a_request_without_a_unit_has_the_experiment_and_no_variant() {
        let split = split(&[1.0, 1.0]);
        for (path, arm, panicked) in [("/", None, 0), ("/panic", None, 1), ("/0.7", Some(1), 0)] {
            let head = RequestHead {
                headers: &http::HeaderMap::new(),
                uri: &http::Uri::from_static(path),
                port: None,
                read_at: std::time::SystemTime::UNIX_EPOCH,
            };
            let panics = AtomicU64::new(0);
            let chosen = choose(&split, &ByPath, &panics, head);
            assert_eq!((chosen.arm, panics.into_inner()), (arm, panicked));
            assert_eq!(&*chosen.variant.experiment, "e");
            let name = arm.map(|arm| split.arms[arm].name.clone());
            assert_eq!(chosen.variant.variant, name);
        }
    }
}
