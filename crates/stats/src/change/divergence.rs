//! The energy distance between the two sides of a split.

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The index within the segment of the first point of the right side.
    pub index: usize,
    /// Matteson and James' Q with α = 1.
    pub divergence: f64,
}

/// Returns the split with the largest divergence, or the first of several equal ones. The right side may end before the
/// segment does, so that a second change does not hide the first. Returns `None` for fewer than two points.
pub fn best(segment: &[f64]) -> Option<Candidate> {
    let distances = Distances::of(segment);
    let mut best: Option<Candidate> = None;
    let mut left = 0.0;
    for index in 1..segment.len() {
        left += distances.to_earlier(index - 1, index - 1);
        let found = distances.best_right_side(index, left);
        best = [best, found].into_iter().flatten().reduce(larger);
    }
    best
}

/// Returns the candidate with the larger divergence, or the earlier one if both are equal.
pub fn larger(earlier: Candidate, later: Candidate) -> Candidate {
    if later.divergence > earlier.divergence {
        later
    } else {
        earlier
    }
}

/// Prefix sums of the distances between points.
struct Distances {
    points: usize,
    /// For each point, one row: entry `index` is the sum of the distances to the first `index` points.
    sums: Vec<f64>,
}

impl Distances {
    fn of(segment: &[f64]) -> Self {
        let points = segment.len();
        let mut sums = Vec::with_capacity(points * (points + 1));
        for point in segment {
            let mut sum = 0.0;
            sums.push(sum);
            for other in segment {
                sum += (point - other).abs();
                sums.push(sum);
            }
        }
        Self { points, sums }
    }

    fn to_earlier(&self, point: usize, count: usize) -> f64 {
        self.sums[point * (self.points + 1) + count]
    }

    /// Returns the best end of the right side that begins at `index`. `left` is the sum of the distances within the
    /// left side.
    fn best_right_side(&self, index: usize, left: f64) -> Option<Candidate> {
        let (mut between, mut right) = (0.0, 0.0);
        let mut best: Option<Candidate> = None;
        for point in index..self.points {
            between += self.to_earlier(point, index);
            right += self.to_earlier(point, point) - self.to_earlier(point, index);
            let sides = Sides {
                left: index as f64,
                right: (point + 1 - index) as f64,
            };
            let divergence = sides.divergence(between, left, right);
            let found = Candidate { index, divergence };
            best = Some(best.map_or(found, |best| larger(best, found)));
        }
        best
    }
}

struct Sides {
    left: f64,
    right: f64,
}

impl Sides {
    fn divergence(&self, between: f64, left: f64, right: f64) -> f64 {
        let all = self.left + self.right;
        let within = |points: f64, others: f64, sum: f64| {
            if points > 1.0 {
                others / (points - 1.0) * sum
            } else {
                0.0
            }
        };
        2.0 / all
            * (between - within(self.left, self.right, left) - within(self.right, self.left, right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes Q by the formula of the paper.
    fn by_definition(left: &[f64], right: &[f64]) -> f64 {
        let (n, m) = (left.len() as f64, right.len() as f64);
        let between: f64 = left
            .iter()
            .flat_map(|x| right.iter().map(move |y| (x - y).abs()))
            .sum();
        let within = |side: &[f64]| -> f64 {
            let pairs = (0..side.len()).flat_map(|i| (0..i).map(move |k| (i, k)));
            let sum: f64 = pairs.map(|(i, k)| (side[i] - side[k]).abs()).sum();
            let count = side.len() as f64;
            if count > 1.0 {
                sum / (count * (count - 1.0) / 2.0)
            } else {
                0.0
            }
        };
        n * m / (n + m) * (2.0 * between / (n * m) - within(left) - within(right))
    }

    #[test]
    fn the_best_split_is_the_best_of_all_by_definition() {
        for seed in 0..50_u32 {
            let point =
                |i: u32| f64::from((i * 37 + seed * 11) % 29) + f64::from(i / 9 * seed % 50);
            let segment: Vec<f64> = (0..23).map(point).collect();
            let found = best(&segment).expect("long enough");
            let ends = |index| index + 1..=segment.len();
            let splits =
                (1..segment.len()).flat_map(|index| ends(index).map(move |end| (index, end)));
            let all =
                splits.map(|(index, end)| by_definition(&segment[..index], &segment[index..end]));
            let largest = all.fold(f64::MIN, f64::max);
            assert!(
                (found.divergence - largest).abs() < 1e-9,
                "{seed}: {found:?} {largest}"
            );
        }
    }

    #[test]
    fn a_short_segment_has_no_split() {
        assert_eq!(best(&[1.0]), None);
        assert_eq!(best(&[]), None);
        assert_eq!(best(&[1.0, 5.0]).map(|found| found.index), Some(1));
    }
}
