//! The second pass, which removes the weakest change points.

use super::{ChangePoint, Options, Side};
use crate::check;
use crate::distribution::student_two_sided;
use crate::error::Result;
use crate::moments;
use std::ops::Range;

pub fn weakest(series: &[f64], weak: Vec<usize>, options: &Options) -> Result<Vec<ChangePoint>> {
    let mut indices = weak;
    loop {
        let points = (0..indices.len())
            .map(|index| judge(series, &indices, index, options))
            .collect::<Result<Vec<_>>>()?;
        match index_of_weakest(&points, options) {
            Some(index) => indices.remove(index),
            None => return Ok(points),
        };
    }
}

/// Tests the change point at index `rank` of `found`, using the points up to its neighbours.
fn judge(series: &[f64], found: &[usize], rank: usize, options: &Options) -> Result<ChangePoint> {
    let start = rank.checked_sub(1).map_or(0, |before| found[before]);
    let end = found.get(rank + 1).copied().unwrap_or(series.len());
    compare(series, &(start..end), found[rank], options)
}

/// Returns the change point to remove: among those with a side that is too short, the one with the largest p value;
/// otherwise the one with the largest p value of all, if it is too large; otherwise the one with the smallest change,
/// if that is too small.
fn index_of_weakest(points: &[ChangePoint], options: &Options) -> Option<usize> {
    let is_short =
        |point: &ChangePoint| point.before.points.min(point.after.points) < options.min_points;
    let least_likely = |among: &dyn Fn(&ChangePoint) -> bool| {
        let candidates = (0..points.len())
            .rev()
            .filter(|index| among(&points[*index]));
        // `max_by` returns the last of equal elements, so the candidates are in reverse order.
        candidates.max_by(|a, b| points[*a].p.total_cmp(&points[*b].p))
    };
    if let Some(short) = least_likely(&is_short) {
        return Some(short);
    }
    let unlikely = least_likely(&|_| true)?;
    if points[unlikely].p >= options.max_p {
        return Some(unlikely);
    }
    let smallest =
        (0..points.len()).min_by(|a, b| points[*a].change.total_cmp(&points[*b].change))?;
    (points[smallest].change <= options.min_change).then_some(smallest)
}

pub fn compare(
    series: &[f64],
    segment: &Range<usize>,
    index: usize,
    options: &Options,
) -> Result<ChangePoint> {
    let (left, right) = (&series[segment.start..index], &series[index..segment.end]);
    let (before, after) = (side(left)?, side(right)?);
    Ok(ChangePoint {
        index,
        before,
        after,
        change: change(before.mean, after.mean, options.level)?,
        p: t_test(left, right)?,
    })
}

fn side(points: &[f64]) -> Result<Side> {
    Ok(Side {
        mean: check::answer(moments::mean(points))?,
        points: points.len(),
    })
}

/// Returns the relative change. If one mean is 0, the share of the other mean is used.
fn change(before: f64, after: f64, level: Option<f64>) -> Result<f64> {
    let share = |level: f64| match level {
        0.0 => 0.0,
        level => ((after - before) / level).abs(),
    };
    check::answer(match level {
        Some(level) => share(level),
        None => share(before).max(share(after)),
    })
}

/// Student's two-sided t test with equal variances. Two sides of one point each never differ.
fn t_test(left: &[f64], right: &[f64]) -> Result<f64> {
    let (left_count, right_count) = (left.len() as f64, right.len() as f64);
    let free = left_count + right_count - 2.0;
    if free <= 0.0 {
        return Ok(1.0);
    }
    let difference = check::answer(moments::mean(left) - moments::mean(right))?;
    let squares = check::answer(moments::sum_of_squares(left) + moments::sum_of_squares(right))?;
    let variance = squares / free * (1.0 / left_count + 1.0 / right_count);
    match (difference == 0.0, variance > 0.0) {
        (true, _) => Ok(1.0),
        // Neither side varies.
        (false, false) => Ok(0.0),
        (false, true) => student_two_sided(difference / variance.sqrt(), free),
    }
}
