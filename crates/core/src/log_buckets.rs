//! Exponential buckets, for Prometheus native histograms and for the latencies between tokens.
//!
//! Source: <https://prometheus.io/docs/specs/native_histograms/>, standard schemas.

/// The schema of native histograms. Bucket `i` ends at `2^(i/32)`, so a bucket is 2.2 % wide.
pub const SCHEMA: i32 = 5;
/// Buckets per factor of 2: 2 to the power of [`SCHEMA`].
pub const PER_OCTAVE: i32 = 32;
/// Exponents of 2 between which values have buckets: from 60 nanoseconds to twelve days, or up to a
/// million tokens per second.
pub const OCTAVES: std::ops::Range<i32> = -24..20;

/// The upper bound of the zero bucket.
pub fn zero_threshold() -> f64 {
    f64::from(OCTAVES.start).exp2()
}

/// The index of the bucket of `value`. `None` for the zero bucket, which also counts NaN. The last
/// bucket also counts all larger values.
///
/// ```
/// use tokengauge_core::log_buckets::number;
/// assert_eq!((number(1.0), number(1.01), number(0.0)), (Some(0), Some(1), None));
/// ```
pub fn number(value: f64) -> Option<i32> {
    if value.is_nan() || value <= zero_threshold() {
        return None;
    }
    let number = (value.log2() * f64::from(PER_OCTAVE)).ceil() as i32;
    // The logarithm of a value just above the threshold may be rounded down to the threshold.
    let first = OCTAVES.start * PER_OCTAVE + 1;
    Some(number.clamp(first, OCTAVES.end * PER_OCTAVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_at_its_bound_and_the_next_begins_above_it() {
        for exponent in [-20, -3, 0, 1, 10] {
            let bound = f64::from(exponent).exp2();
            assert_eq!(number(bound), Some(exponent * 32));
            assert_eq!(number(bound * 1.000_001), Some(exponent * 32 + 1));
            assert_eq!(number(bound * 0.999_999), Some(exponent * 32));
        }
        for nothing in [0.0, -1.0, zero_threshold(), f64::NAN] {
            assert_eq!(number(nothing), None);
        }
        for large in [1e7, 1e300, f64::INFINITY] {
            assert_eq!(number(large), Some(20 * 32));
        }
    }

    #[test]
    fn every_size_lies_between_the_bounds_of_its_bucket() {
        for step in 0..20_000 {
            let value = 1e-7 * 1.001_5_f64.powi(step);
            let bucket = number(value).expect("above zero");
            let bound = |number: i32| (f64::from(number) / 32.0).exp2();
            let (lower, upper) = (bound(bucket - 1), bound(bucket));
            let between = lower * (1.0 - 1e-12) < value && value <= upper * (1.0 + 1e-12);
            assert!(between || value > 1e6, "{lower} {value} {upper}");
        }
    }
}
