//! Distributions of lengths in tokens.

use rand::RngExt;
use std::str::FromStr;
use tokengauge_stats::Generator;

/// The longest length that is accepted. Longer ones are probably typing errors.
pub const MAX_TOKENS: u32 = 10_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    Fixed(u32),
    Uniform {
        low: u32,
        high: u32,
    },
    /// A normal distribution, cut off below 1.
    Normal {
        mean: f64,
        deviation: f64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a length in tokens such as 512, 128..1024 (uniform) or 512~64 (mean~deviation)"
)]
pub struct InvalidLength(String);

impl Length {
    pub fn sample(&self, random: &mut Generator) -> u32 {
        match *self {
            Length::Fixed(tokens) => tokens,
            Length::Uniform { low, high } => random.random_range(low..=high),
            Length::Normal { mean, deviation } => {
                // Box–Muller; 1 − u is never 0.
                let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
                let angle = std::f64::consts::TAU * random.random::<f64>();
                let tokens = mean + deviation * radius * angle.cos();
                tokens.round().clamp(1.0, f64::from(MAX_TOKENS)) as u32
            }
        }
    }

    pub fn mean(&self) -> f64 {
        match *self {
            Length::Fixed(tokens) => f64::from(tokens),
            Length::Uniform { low, high } => f64::from(low).midpoint(f64::from(high)),
            Length::Normal { mean, .. } => mean,
        }
    }
}

impl FromStr for Length {
    type Err = InvalidLength;

    fn from_str(text: &str) -> Result<Length, InvalidLength> {
        parse(text).ok_or_else(|| InvalidLength(text.to_owned()))
    }
}

impl std::fmt::Display for Length {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Length::Fixed(tokens) => write!(f, "{tokens}"),
            Length::Uniform { low, high } => write!(f, "{low}..{high}"),
            Length::Normal { mean, deviation } => write!(f, "{mean}~{deviation}"),
        }
    }
}

fn parse(text: &str) -> Option<Length> {
    if let Some((low, high)) = text.split_once("..") {
        let (low, high) = (tokens(low)?, tokens(high)?);
        return (low <= high).then_some(Length::Uniform { low, high });
    }
    if let Some((mean, deviation)) = text.split_once('~') {
        let (mean, deviation) = (f64::from(tokens(mean)?), f64::from(tokens(deviation)?));
        return Some(Length::Normal { mean, deviation });
    }
    tokens(text).map(Length::Fixed)
}

fn tokens(text: &str) -> Option<u32> {
    let tokens = text.trim().parse().ok()?;
    (1..=MAX_TOKENS).contains(&tokens).then_some(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_stats::seeded;

    #[test]
    fn lengths_are_read_as_they_are_written() {
        for text in ["512", "128..1024", "512~64"] {
            let length: Length = text.parse().expect(text);
            assert_eq!(length.to_string(), text);
        }
        for text in ["", "0", "9..3", "-1", "1.5", "5~", "..", "99999999999"] {
            assert!(text.parse::<Length>().is_err(), "{text}");
        }
    }

    #[test]
    fn samples_have_the_mean_and_the_spread() {
        let mut random = seeded(1);
        let normal: Length = "500~50".parse().expect("a length");
        let drawn: Vec<f64> = (0..4000)
            .map(|_| f64::from(normal.sample(&mut random)))
            .collect();
        let mean = drawn.iter().sum::<f64>() / 4000.0;
        let spread = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 4000.0;
        assert!((mean - 500.0).abs() < 3.0, "{mean}");
        assert!((spread.sqrt() - 50.0).abs() < 2.0, "{}", spread.sqrt());
        let uniform: Length = "3..5".parse().expect("a length");
        let drawn: Vec<u32> = (0..100).map(|_| uniform.sample(&mut random)).collect();
        assert_eq!(
            (drawn.iter().min(), drawn.iter().max()),
            (Some(&3), Some(&5))
        );
    }
}
