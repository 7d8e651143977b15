//! Why there is no answer.

/// Why a function of this crate has no answer: too little data, or data that no answer exists for. An answer is never NaN or
/// infinite.
///
/// ```
/// use tokengauge_stats::{StatsError, student};
///
/// assert_eq!(student::mean(&[48.1], 0.95), Err(StatsError::TooFew { needed: 2, got: 1 }));
/// assert_eq!(student::mean(&[48.1, f64::NAN], 0.95), Err(StatsError::NotFinite));
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StatsError {
    /// There are fewer observations (or trials, units, batches) than the method needs.
    #[error("too few observations: {got} of the {needed} that are needed")]
    TooFew {
        /// The least number that would do.
        needed: usize,
        /// The number there is.
        got: usize,
    },
    /// There are more observations than the method has memory or time for.
    #[error("too many observations: {got}, and at most {allowed} are possible")]
    TooMany {
        /// The largest number that is possible.
        allowed: usize,
        /// The number there is.
        got: usize,
    },
    /// A value is NaN or infinite, or the answer would be too large for a number.
    #[error("a value is not a finite number")]
    NotFinite,
    /// Something that is divided by is zero: the level of a relative change, the sum under a ratio.
    #[error("the baseline is zero, so that no change relative to it exists")]
    ZeroLevel,
    /// All values are equal, so that their spread is zero and nothing can be judged by it.
    #[error("all values are equal, so that their spread says nothing")]
    NoVariation,
    /// A parameter is outside its range.
    #[error("{name} must be {wanted}, not {value}")]
    OutOfRange {
        /// The parameter's name.
        name: &'static str,
        /// What it has to be.
        wanted: &'static str,
        /// What it is.
        value: f64,
    },
    /// Two lists that belong together differ in length.
    #[error("{got} values where {wanted} are expected")]
    LengthsDiffer {
        /// The length of the first.
        wanted: usize,
        /// The length of the second.
        got: usize,
    },
}

/// An answer, or why there is none.
pub type Result<T> = std::result::Result<T, StatsError>;
