//! The error type of this crate.

/// The reason why a function of this crate has no result: too little data, or data for which no result exists. Results
/// are never NaN or infinite.
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
    #[error("too few observations: {got}, but {needed} are needed")]
    TooFew {
        /// The minimum number.
        needed: usize,
        /// The actual number.
        got: usize,
    },
    /// There are more observations than the method has memory or time for.
    #[error("too many observations: {got}, but at most {allowed} are possible")]
    TooMany {
        /// The maximum number.
        allowed: usize,
        /// The actual number.
        got: usize,
    },
    /// A value is NaN or infinite, or the result would overflow.
    #[error("a value is not a finite number")]
    NotFinite,
    /// A divisor is zero, such as the level of a relative change or the denominator of a ratio.
    #[error("the baseline is zero, so there is no relative change")]
    ZeroLevel,
    /// All values are equal, so the spread that the method needs is zero.
    #[error("all values are equal, so the spread is zero")]
    NoVariation,
    /// A parameter is outside its range.
    #[error("{name} must be {wanted}, not {value}")]
    OutOfRange {
        /// The parameter's name.
        name: &'static str,
        /// The allowed values.
        wanted: &'static str,
        /// The actual value.
        value: f64,
    },
    /// Two lists that belong together differ in length.
    #[error("got {got} values, but {wanted} are expected")]
    LengthsDiffer {
        /// The length of the first list.
        wanted: usize,
        /// The length of the second list.
        got: usize,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, StatsError>;
