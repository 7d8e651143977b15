//! What can be wrong with a setting of [`super::profile::HELP`].

/// Why the value of a setting cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No setting has this name.
    #[error("there is no such setting; there are {}, gzip, plain", .known.join(", "))]
    Unknown {
        /// The settings that take a value.
        known: &'static [&'static str],
    },
    /// A value where none is taken.
    #[error("takes no value")]
    UnexpectedValue,
    /// No value where one is needed.
    #[error("needs a value")]
    MissingValue,
    /// A number that this machine cannot count to.
    #[error("too large")]
    TooLarge,
    /// Something else than digits.
    #[error("not a whole number")]
    NotWhole,
    /// Zero where at least one is needed.
    #[error("must be at least 1")]
    Zero,
    /// More tokens than an answer may have.
    #[error("more than {most}")]
    TooManyTokens {
        /// How many it may have.
        most: u64,
    },
    /// The parts of an answer have more tokens together than it may have.
    #[error("more than {most} in all")]
    TooManyTokensInAll {
        /// How many it may have.
        most: u64,
    },
    /// Settings that leave an answer without a token.
    #[error("an answer needs at least one token")]
    NoTokens,
    /// A range that ends before it begins.
    #[error("the first number is greater than the second")]
    ReversedRange,
    /// No number with a unit.
    #[error("not a duration such as 20ms or 1.5s")]
    NotADuration,
    /// A negative duration, or one of more than a day.
    #[error("not between 0 and a day")]
    DurationOutOfBounds,
    /// Gaps that could be negative.
    #[error("deviates by more than the mean")]
    DeviationAboveMean,
    /// Fewer tokens than the arguments of a tool call need.
    #[error("arguments have at least {least} tokens")]
    TooFewArguments {
        /// How many they need.
        least: u64,
    },
    /// More tool calls than an answer may have.
    #[error("more than 64 calls")]
    TooManyCalls,
    /// A fault that does not say after which token it happens.
    #[error("needs a place, as in ...@40")]
    MissingPosition,
    /// A fault that takes nothing but the token after which it happens.
    #[error("takes a place alone, as in @60")]
    PositionAlone,
    /// An error type that providers could not send.
    #[error("an error type is letters, digits and underscores")]
    ErrorType,
    /// A status that is no error.
    #[error("not an HTTP error from 400 to 599")]
    NotAnErrorStatus,
    /// A factor that is no number, or out of bounds.
    #[error("not a factor from 1x to 1000x")]
    FactorOutOfBounds,
    /// No way to report usage.
    #[error("is auto, on or off")]
    UsageMode,
    /// Pings that come too often.
    #[error("at least 1ms")]
    PingTooOften,
    /// No way for an answer to end.
    #[error("is stop, length, refused or invalid_tool_call")]
    Finish,
}
