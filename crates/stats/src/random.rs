//! The random number generator for resampling.

use rand::SeedableRng;

/// A small generator (PCG XSL RR 128/64) whose sequence for a seed is identical in all versions and on all machines.
/// Not for secrets.
pub type Generator = rand_pcg::Pcg64;

/// Returns the generator for a seed.
///
/// ```
/// use tokengauge_stats::seeded;
///
/// assert_eq!(seeded(7), seeded(7));
/// assert_ne!(seeded(7), seeded(8));
/// ```
#[must_use]
pub fn seeded(seed: u64) -> Generator {
    Generator::seed_from_u64(seed)
}
