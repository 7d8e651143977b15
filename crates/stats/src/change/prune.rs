//! The second pass: the weakest change points are taken out.

use super::{ChangePoint, Options, Side};
use crate::check;
use crate::distribution::student_two_sided;
use crate::error::Result;
use crate::moments;
use std::ops::Range;

/// The change points that are strong between those that are left.
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

/// The change point with this rank among those that were found, judged by the points up to its neighbours.
fn judge(series: &[f64], found: &[usize], rank: usize, options: &Options) -> Result<ChangePoint> {
    let start = rank.checked_sub(1).map_or(0, |before| found[before]);
    let end = found.get(rank + 1).copied().unwrap_or(series.len());
    compare(series, &(start..end), found[rank], options)
}

/// The one with the largest p value: of those with a side that is too short, else of all if it is too large; else the one with
/// the least change, if that is too small.
fn index_of_weakest(points: &[ChangePoint], options: &Options) -> Option<usize> {
    let is_short =
        |point: &ChangePoint| point.before.points.min(point.after.points) < options.min_points;
    let least_likely = |among: &dyn Fn(&ChangePoint) -> bool| {
        let candidates = (0..points.len())
            .rev()
            .filter(|index| among(&points[*index]));
        // The first one of equal ones.
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

/// The sides of a point in a segment, compared.
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

/// The size of the change as a share. A mean of 0 has no share, so that the other one counts.
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

/// Student's two-sided t test with equal variances. Sides of one point each do not differ.
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
        // Two levels without any spread.
        (false, false) => Ok(0.0),
        (false, true) => student_two_sided(difference / variance.sqrt(), free),
    }
}
