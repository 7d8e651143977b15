//! Mergeable percentiles: a DDSketch (Masson, Rim, Lee, VLDB 2019) with classes that grow by 2 %,
//! so that a percentile is within 1 % of the exact value.

use crate::varint::{put, put_signed, take, take_signed};

const GAMMA: f64 = 1.02;
/// Values outside 10⁻⁹ to 10⁹ are counted in the outermost classes.
const MAX_CLASS: i32 = 1_046;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sketch {
    first: i32,
    counts: Vec<u64>,
}

impl Sketch {
    /// Counts one value. Zero, negative values and NaN are counted in the lowest class.
    pub(crate) fn add(&mut self, value: f64) {
        self.count(Sketch::class_of(value), 1);
    }

    pub(crate) fn class_of(value: f64) -> i32 {
        let class = (value.ln() / GAMMA.ln()).ceil();
        let class = if class.is_nan() {
            -f64::INFINITY
        } else {
            class
        };
        let bound = f64::from(MAX_CLASS);
        class.clamp(-bound, bound) as i32
    }

    pub(crate) fn upper_bound(class: i32) -> f64 {
        GAMMA.powi(class)
    }

    /// The representative value of a class; 0 for the lowest class, which contains values ≤ 0.
    pub(crate) fn middle(class: i32) -> f64 {
        if class == -MAX_CLASS {
            return 0.0;
        }
        2.0 * GAMMA.powi(class) / (GAMMA + 1.0)
    }

    pub(crate) fn count(&mut self, class: i32, times: u64) {
        if self.counts.is_empty() {
            self.first = class;
        }
        if class < self.first {
            let more = (self.first - class) as usize;
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = class;
        }
        let at = (class - self.first) as usize;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += times;
    }

    fn classes(&self) -> impl Iterator<Item = (i32, u64)> + Clone + '_ {
        let counts = self.counts.iter().enumerate();
        let counted = counts.filter(|(_, times)| **times > 0);
        counted.map(|(at, times)| (self.first + at as i32, *times))
    }

    pub(crate) fn len(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The `q` quantile by nearest rank; `None` without values.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let rank = (q * self.len() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (class, times) in self.classes() {
            seen += times;
            if seen >= rank {
                return Some(Sketch::middle(class));
            }
        }
        None
    }

    pub(crate) fn at_most(&self, class: i32) -> u64 {
        let counted = self.classes().take_while(|(other, _)| *other <= class);
        counted.map(|(_, times)| times).sum()
    }

    /// A value and a count for each class, ascending.
    pub(crate) fn points(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let classes = self.classes();
        classes.map(|(class, times)| (Sketch::middle(class), times))
    }

    pub(crate) fn merge(&mut self, other: &Sketch) {
        for (class, times) in other.classes() {
            self.count(class, times);
        }
    }

    /// A compact encoding; `None` if nothing was counted.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut next = 0;
        for (class, times) in self.classes() {
            put_signed(&mut bytes, i64::from(class - next));
            put(&mut bytes, times);
            next = class + 1;
        }
        (!bytes.is_empty()).then_some(bytes)
    }

    /// Adds the counts of an encoded sketch. Bytes after damage are ignored.
    pub(crate) fn merge_encoded(&mut self, mut bytes: &[u8]) {
        let mut next = 0_i64;
        while let (Some(gap), Some(times)) = (take_signed(&mut bytes), take(&mut bytes)) {
            let class = next.saturating_add(gap);
            if class.abs() > i64::from(MAX_CLASS) {
                return;
            }
            self.count(class as i32, times.min(u64::from(u32::MAX)));
            next = class + 1;
        }
    }
}

/// Number of sketch classes in a class of a histogram. The classes of a histogram are 27 % apart.
const MERGED: i32 = 12;

/// Histograms with common bounds, which cover the classes of all sketches, and the counts of each
/// sketch; empty for a sketch without values. Class `i` is above bound `i`, up to bound `i + 1`.
pub(crate) fn histograms<'a>(
    sketches: impl Iterator<Item = &'a Sketch> + Clone,
) -> (Vec<f64>, Vec<Vec<u64>>) {
    let merged = |class: i32| (class - 1).div_euclid(MERGED);
    let classes = sketches.clone().flat_map(Sketch::classes);
    // Values ≤ 0 are in the lowest class of the others.
    let positive = classes
        .map(|(class, _)| class)
        .filter(|class| *class > -MAX_CLASS);
    let (Some(first), Some(last)) = (positive.clone().min(), positive.max()) else {
        return (Vec::new(), sketches.map(|_| Vec::new()).collect());
    };
    let (first, last) = (merged(first), merged(last));
    let counts = sketches.map(|sketch| {
        if sketch.counts.is_empty() {
            return Vec::new();
        }
        let mut counts = vec![0; (last - first + 1) as usize];
        for (class, times) in sketch.classes() {
            counts[(merged(class).max(first) - first) as usize] += times;
        }
        counts
    });
    let counts = counts.collect();
    let bounds = (first..=last + 1).map(|class| Sketch::upper_bound(class * MERGED));
    (bounds.collect(), counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sketch(values: &[f64]) -> Sketch {
        let mut sketch = Sketch::default();
        values.iter().for_each(|value| sketch.add(*value));
        sketch
    }

    proptest! {
        #[test]
        fn a_quantile_is_within_a_hundredth_of_the_value_it_stands_for(
            mut values in proptest::collection::vec(1e-6..1e6_f64, 1..300),
            q in 0.0..=1.0_f64,
        ) {
            let found = sketch(&values).quantile(q).expect("values");
            values.sort_by(f64::total_cmp);
            let exact = crate::history::quantile(&values, q).expect("values");
            prop_assert!((found / exact - 1.0).abs() <= 0.01, "{found} for {exact}");
        }

        #[test]
        fn parts_add_up_to_the_whole_through_their_bytes(
            one in proptest::collection::vec(1e-9..1e9_f64, 0..100),
            other in proptest::collection::vec(1e-9..1e9_f64, 0..100),
        ) {
            let mut merged = Sketch::default();
            for part in [&one, &other] {
                merged.merge_encoded(&sketch(part).encode().unwrap_or_default());
            }
            let whole = sketch(&[one, other].concat());
            prop_assert_eq!(merged.classes().collect::<Vec<_>>(), whole.classes().collect::<Vec<_>>());
        }

        #[test]
        fn damaged_bytes_do_no_harm(bytes: Vec<u8>) {
            Sketch::default().merge_encoded(&bytes);
        }
    }

    #[test]
    fn values_on_either_side_of_a_bound_are_told_apart() {
        let class = Sketch::class_of(0.5);
        let bound = Sketch::upper_bound(class);
        let all = sketch(&[0.1, bound * 0.999, bound * 1.001, 3.0]);
        assert_eq!((all.at_most(class), all.at_most(class - 2)), (2, 1));
        assert_eq!(all.points().map(|(_, times)| times).sum::<u64>(), 4);
        assert_eq!(sketch(&[0.0]).quantile(0.5), Some(0.0));
    }

    #[test]
    fn histograms_have_every_value_between_its_bounds() {
        let parts = [sketch(&[0.1, 0.1, 2.0]), sketch(&[]), sketch(&[0.0, 30.0])];
        let (bounds, counts) = histograms(parts.iter());
        assert_eq!(
            counts.iter().map(Vec::len).collect::<Vec<_>>(),
            [bounds.len() - 1, 0, bounds.len() - 1]
        );
        let class = |value: f64| {
            bounds
                .windows(2)
                .position(|edges| edges[0] < value && value <= edges[1])
        };
        let of = |part: usize, value: f64| class(value).map(|class| counts[part][class]);
        assert_eq!(
            (of(0, 0.1), of(0, 2.0), of(2, 30.0)),
            (Some(2), Some(1), Some(1))
        );
        assert_eq!(
            (counts[2][0], counts[2].iter().sum::<u64>()),
            (1, 2),
            "0 is in the lowest"
        );
        assert!(
            bounds
                .windows(2)
                .all(|edges| (edges[1] / edges[0] - 1.268).abs() < 0.001)
        );
        assert_eq!(histograms([sketch(&[])].iter()), (vec![], vec![vec![]]));
    }

    #[test]
    fn what_is_no_number_is_the_smallest_and_nothing_has_no_quantile() {
        assert_eq!(Sketch::default().quantile(0.5), None);
        let odd = sketch(&[f64::NAN, 0.0, -1.0, f64::INFINITY]);
        assert!(odd.quantile(0.5).expect("values") < 2e-9);
        assert!(odd.quantile(1.0).expect("values") > 9e8);
    }
}
