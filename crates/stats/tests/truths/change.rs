//! Simulations for change.

use crate::Draw;
use tokengauge_stats::change::{Options, find};

fn indices(series: &[f64], options: &Options) -> Vec<usize> {
    let found = find(series, options).expect("a series");
    found.iter().map(|point| point.index).collect()
}

fn series(draw: &mut Draw, length: usize, level: impl Fn(usize) -> f64, noise: f64) -> Vec<f64> {
    (0..length)
        .map(|hour| level(hour) + noise * draw.normal())
        .collect()
}

#[test]
fn known_steps_are_found_where_they_are() {
    let mut draw = Draw::seeded(41);
    let level = |hour: usize| [0.5, 0.7, 0.4][hour / 48];
    for _ in 0..100 {
        let found = indices(&series(&mut draw, 144, level, 0.04), &Options::default());
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].abs_diff(48) <= 2 && found[1].abs_diff(96) <= 2,
            "{found:?}"
        );
    }
}

/// Independent values around one level: a day of 5-minute medians.
#[test]
fn noise_gives_few_change_points_and_none_of_ten_per_cent() {
    let mut draw = Draw::seeded(42);
    let any_size = Options {
        min_change: 0.0,
        ..Options::default()
    };
    let (mut any, mut large) = (0, 0);
    for _ in 0..300 {
        let flat = series(&mut draw, 288, |_| 0.5, 0.03);
        any += usize::from(!indices(&flat, &any_size).is_empty());
        large += usize::from(!indices(&flat, &Options::default()).is_empty());
    }
    println!("{any} of 300 days of noise have a change point of any size");
    assert!(any <= 30, "{any} of 300");
    assert_eq!(large, 0);
}

#[test]
fn sides_have_the_least_number_of_points() {
    let mut draw = Draw::seeded(43);
    // Six points at another level, then a step with six points after it.
    let level = |hour: usize| {
        if (30..36).contains(&hour) || hour >= 94 {
            2.0
        } else {
            1.0
        }
    };
    let rises = series(&mut draw, 100, level, 0.05);
    let few = Options {
        min_points: 3,
        ..Options::default()
    };
    assert_eq!(indices(&rises, &few), [30, 36, 94]);
    let found = find(&rises, &Options::default()).expect("a series");
    assert!(
        found
            .iter()
            .all(|point| point.before.points >= 10 && point.after.points >= 10)
    );
}

/// A series less its seasonal median is about 0, so the change must be relative to the season's level.
#[test]
fn a_level_makes_shares_of_deviations() {
    let mut draw = Draw::seeded(44);
    let deviations = series(
        &mut draw,
        96,
        |hour| if hour < 48 { 0.0 } else { 0.04 },
        0.01,
    );
    let of_level = |level| Options {
        level: Some(level),
        ..Options::default()
    };
    assert_eq!(indices(&deviations, &of_level(0.2)).len(), 1);
    assert_eq!(indices(&deviations, &of_level(1.0)).len(), 0);
}

#[test]
fn levels_without_spread_are_distinguished() {
    let steps: Vec<f64> = (0..60)
        .map(|hour| if hour < 25 { 1.0 } else { 2.0 })
        .collect();
    assert_eq!(indices(&steps, &Options::default()), [25]);
    assert_eq!(indices(&[1.0; 60], &Options::default()), []);
}
