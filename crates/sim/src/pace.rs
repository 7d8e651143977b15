//! The deadlines of chunks. They are absolute, so that delays do not accumulate.

use super::profile::{Gap, Profile};
use super::text_gen::Random;
use std::time::{Duration, Instant};

/// The factor by which concurrent streams slow each other down. Up to `knee` streams, each further
/// stream costs the others a little. With more streams, the total throughput is constant and
/// shared.
pub fn slowdown(knee: Option<u32>, concurrency: u64) -> f64 {
    let Some(knee) = knee.map(f64::from) else {
        return 1.0;
    };
    let concurrency = concurrency.max(1) as f64;
    let below_knee = |streams: f64| 1.0 + COST_OF_COMPANY * (streams - 1.0) / knee;
    if concurrency <= knee {
        below_knee(concurrency)
    } else {
        below_knee(knee) * concurrency / knee
    }
}

/// The share of speed that a stream loses at the knee, compared with a single stream.
const COST_OF_COMPANY: f64 = 0.15;

/// The successive deadlines of one call.
pub struct Pace {
    gap: Gap,
    slow_start: Option<(f64, u64)>,
    knee: Option<u32>,
    random: Random,
    due: Instant,
}

impl Pace {
    /// Starts with `first_token`, the deadline of the first token.
    pub fn new(profile: &Profile, first_token: Instant, random: Random) -> Pace {
        Pace {
            gap: profile.gap,
            slow_start: profile.slow_start,
            knee: profile.knee,
            random,
            due: first_token,
        }
    }

    pub fn due(&self) -> Instant {
        self.due
    }

    pub fn delay(&mut self, pause: Duration) {
        self.due += pause;
    }

    /// Moves to the chunk that begins at token `position`, after an additional `pause`.
    pub fn advance(&mut self, position: u64, pause: Duration, concurrency: u64) {
        let slow = match self.slow_start {
            Some((factor, until)) if position < until => factor,
            _ => 1.0,
        };
        let factor = slow * slowdown(self.knee, concurrency);
        let gap = self.gap().mul_f64(factor);
        self.due += gap + pause;
    }

    fn gap(&mut self) -> Duration {
        match self.gap {
            Gap::Constant(gap) => gap,
            Gap::Jitter(mean, deviation) => {
                mean - deviation + (2 * deviation).mul_f64(self.random.fraction())
            }
            Gap::Exponential(mean) => mean.mul_f64(-(1.0 - self.random.fraction()).ln()),
        }
    }
}

/// The time between the end of the request and the first token.
pub fn time_to_first_token(
    profile: &Profile,
    prompt_tokens: u64,
    concurrency: u64,
    calls_before: u64,
) -> Duration {
    let prefill = profile.prefill.mul_f64(prompt_tokens as f64 / 1000.0);
    let cold = profile
        .cold_start
        .filter(|&(_, calls)| calls_before < calls)
        .map_or(Duration::ZERO, |(more, _)| more);
    profile.ttft + prefill.mul_f64(slowdown(profile.knee, concurrency)) + cold
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(settings: &str, count: usize) -> Vec<f64> {
        let profile: Profile = settings.parse().expect(settings);
        let mut pace = Pace::new(&profile, Instant::now(), Random::new(3));
        (0..count as u64)
            .map(|position| {
                let before = pace.due();
                pace.advance(position, Duration::ZERO, 1);
                (pace.due() - before).as_secs_f64()
            })
            .collect()
    }

    #[test]
    fn throughput_grows_up_to_the_knee_and_no_further() {
        let throughput = |streams: u64| streams as f64 / slowdown(Some(8), streams);
        for streams in 1..8 {
            assert!(
                throughput(streams + 1) > throughput(streams) * 1.08,
                "{streams}"
            );
            assert!(
                slowdown(Some(8), streams + 1) > slowdown(Some(8), streams),
                "{streams}"
            );
        }
        for streams in 8..100 {
            assert!(
                (throughput(streams + 1) / throughput(8) - 1.0).abs() < 1e-9,
                "{streams}"
            );
        }
        assert_eq!(slowdown(None, 1000), 1.0);
    }

    #[test]
    fn gaps_follow_their_distribution() {
        assert!(
            gaps("gap=20ms", 50)
                .iter()
                .all(|gap| (gap - 0.020).abs() < 1e-9)
        );
        let jitter = gaps("gap=20ms~5ms", 2000);
        assert!(jitter.iter().all(|gap| (0.015..=0.025).contains(gap)));
        let mean = |gaps: &[f64]| gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean(&jitter) - 0.020).abs() < 0.0005, "{}", mean(&jitter));
        let exponential = gaps("gap=exp:20ms", 20_000);
        assert!(
            (mean(&exponential) - 0.020).abs() < 0.001,
            "{}",
            mean(&exponential)
        );
        let long = exponential.iter().filter(|gap| **gap > 0.020).count() as f64 / 20_000.0;
        assert!((long - (-1.0f64).exp()).abs() < 0.02, "{long}");
    }

    #[test]
    fn a_slow_start_stretches_the_first_gaps_alone() {
        let gaps = gaps("gap=10ms,slow_start=4x@3", 5);
        let millis: Vec<u64> = gaps
            .iter()
            .map(|gap| (gap * 1000.0).round() as u64)
            .collect();
        assert_eq!(millis, [40, 40, 40, 10, 10]);
    }

    #[test]
    fn prefill_and_a_cold_start_add_to_the_first_token() {
        let profile: Profile = "ttft=100ms,prefill=500ms,cold_start=2s@3"
            .parse()
            .expect("settings");
        let ttft = |prompt, before| time_to_first_token(&profile, prompt, 1, before).as_millis();
        assert_eq!(ttft(0, 3), 100);
        assert_eq!(ttft(4000, 3), 2100);
        assert_eq!(ttft(0, 2), 2100);
    }
}
