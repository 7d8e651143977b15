//! The generator that resampling draws from.

use rand::SeedableRng;

/// A small generator whose sequence for a seed is the same in every version and on every machine (PCG XSL RR 128/64). Not for
/// secrets.
pub type Generator = rand_pcg::Pcg64;

/// The generator of a seed: the same seed gives the same answers.
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
