//! The first pass, which splits windows as long as the sides differ.

use super::Options;
use super::divergence::{self, Candidate};
use super::prune::compare;
use crate::error::Result;
use std::ops::Range;

/// Returns the indices of all candidate change points, in ascending order.
pub fn windows(series: &[f64], options: &Options) -> Result<Vec<usize>> {
    let mut found: Vec<usize> = vec![];
    let mut start = 0;
    while start < series.len() {
        let end = (start + options.window).min(series.len());
        let here = window(&series[start..end], options)?;
        let last = here.last().map_or(0, |index| start + index);
        found.extend(here.into_iter().map(|index| start + index));
        // Continue at the last change point, or half a window further.
        start = last.max(start + options.window / 2);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn window(series: &[f64], options: &Options) -> Result<Vec<usize>> {
    let mut found: Vec<usize> = vec![];
    while let Some((segment, index)) = next(series, &found) {
        if compare(series, &segment, index, options)?.p > first_pass(options.max_p) {
            break;
        }
        let rank = found.partition_point(|other| *other < index);
        found.insert(rank, index);
    }
    Ok(found)
}

/// The first pass accepts weaker candidates than the final result, because pruning tests them again.
fn first_pass(max_p: f64) -> f64 {
    match max_p {
        p if p < 0.05 => 10.0 * p,
        p if p < 0.5 => 2.0 * p,
        p => p,
    }
}

fn next(series: &[f64], found: &[usize]) -> Option<(Range<usize>, usize)> {
    let candidate = |segment: Range<usize>| {
        let best = divergence::best(&series[segment.clone()])?;
        let index = segment.start + best.index;
        Some((segment, Candidate { index, ..best }))
    };
    segments(series.len(), found)
        .filter_map(candidate)
        .reduce(|best, next| {
            if next.1.divergence > best.1.divergence {
                next
            } else {
                best
            }
        })
        .map(|(segment, best)| (segment, best.index))
}

fn segments(length: usize, found: &[usize]) -> impl Iterator<Item = Range<usize>> {
    let starts = std::iter::once(0).chain(found.iter().copied());
    let ends = found.iter().copied().chain(std::iter::once(length));
    starts.zip(ends).map(|(start, end)| start..end)
}
