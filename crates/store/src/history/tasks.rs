//! Tasks: sessions, with the time from their first call to their last.

use super::quantile::{quantile, sorted};
use crate::query::{TaskSeconds, Tasks};
use std::time::Duration;

pub fn tasks(seconds: impl IntoIterator<Item = f64>, within: Option<Duration>) -> Tasks {
    let seconds = sorted(seconds);
    let count = seconds.len();
    let minutes = within.map(|within| within.as_secs_f64() / 60.0);
    let sum: f64 = seconds.iter().sum();
    Tasks {
        tasks: count as u64,
        per_minute: minutes
            .filter(|minutes| *minutes > 0.0)
            .map(|minutes| count as f64 / minutes),
        seconds: TaskSeconds {
            p50: quantile(&seconds, 0.5),
            p95: quantile(&seconds, 0.95),
            mean: (count > 0).then(|| sum / count as f64),
        },
    }
}
