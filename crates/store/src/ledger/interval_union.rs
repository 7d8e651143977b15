//! The union of intervals: the time with at least one call in progress.

use crate::varint::{put, put_signed, take, take_signed};

/// Maximum number of disjoint intervals. Older intervals are reduced to their total length, so that
/// a call that spans all of them counts from the end of the forgotten intervals on.
const MAX_SPANS: usize = 32;

/// A union of intervals, in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct IntervalUnion {
    forgotten: i64,
    /// End of the forgotten intervals. Time before it is not counted any more.
    from: Option<i64>,
    spans: Vec<(i64, i64)>,
}

impl IntervalUnion {
    pub(crate) fn add(&mut self, start: i64, end: i64) {
        let mut start = self.from.map_or(start, |from| start.max(from));
        let mut end = end.max(start);
        // Most calls end after all earlier calls.
        let first = self.spans.partition_point(|span| span.1 < start);
        let behind = self.spans.partition_point(|span| span.0 <= end);
        if let Some(touched) = self.spans.get(first..behind).filter(|all| !all.is_empty()) {
            start = start.min(touched[0].0);
            end = end.max(touched[touched.len() - 1].1);
        }
        self.spans.splice(first..behind, [(start, end)]);
        if self.spans.len() > MAX_SPANS {
            let (start, end) = self.spans.remove(0);
            self.forgotten += end - start;
            self.from = Some(end);
        }
    }

    pub(crate) fn length(&self) -> i64 {
        let spans = self.spans.iter().map(|(start, end)| end - start);
        self.forgotten + spans.sum::<i64>()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, self.forgotten as u64);
        put(&mut bytes, u64::from(self.from.is_some()));
        let mut last = 0;
        for edge in self.from.into_iter().chain(self.edges()) {
            put_signed(&mut bytes, edge - last);
            last = edge;
        }
        bytes
    }

    fn edges(&self) -> impl Iterator<Item = i64> + '_ {
        self.spans.iter().flat_map(|(start, end)| [*start, *end])
    }

    /// Decodes the bytes of `encode`. Damaged parts are left out.
    pub(crate) fn decode(mut bytes: &[u8]) -> IntervalUnion {
        let forgotten = take(&mut bytes).unwrap_or_default() as i64;
        let cut = take(&mut bytes).unwrap_or_default() == 1;
        let mut last = 0_i64;
        let mut edges = std::iter::from_fn(|| {
            last = last.saturating_add(take_signed(&mut bytes)?);
            Some(last)
        });
        let from = if cut { edges.next() } else { None };
        let mut spans = Vec::new();
        while let (Some(start), Some(end)) = (edges.next(), edges.next()) {
            spans.push((start, end));
        }
        IntervalUnion {
            forgotten,
            from,
            spans,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_forgotten_still_counts_and_is_not_counted_twice() {
        let mut busy = IntervalUnion::default();
        for at in 0..100 {
            busy.add(at * 10, at * 10 + 4);
        }
        assert_eq!(busy.length(), 400);
        assert_eq!(busy.spans.len(), MAX_SPANS);
        // The gaps after the forgotten intervals are filled; the gaps before are not.
        busy.add(0, 994);
        let forgotten = 100 - MAX_SPANS as i64;
        assert_eq!(
            busy.length(),
            forgotten * 4 + 994 - ((forgotten - 1) * 10 + 4)
        );
        assert_eq!(IntervalUnion::decode(&busy.encode()), busy);
    }

    proptest! {
        #[test]
        fn the_length_is_that_of_the_union(
            calls in proptest::collection::vec((0..500_i64, 0..60_i64), 1..=MAX_SPANS),
        ) {
            let mut busy = IntervalUnion::default();
            let mut seen = [false; 600];
            for (start, length) in calls {
                busy = IntervalUnion::decode(&busy.encode());
                busy.add(start, start + length);
                (start..start + length).for_each(|at| seen[at as usize] = true);
            }
            prop_assert_eq!(busy.length(), seen.iter().filter(|at| **at).count() as i64);
        }

        #[test]
        fn damaged_bytes_do_no_harm(bytes: Vec<u8>) {
            let _ = IntervalUnion::decode(&bytes);
        }
    }
}
