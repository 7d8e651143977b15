//! What can be wrong with a setting of [`super::profile::HELP`].

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("there is no such setting; there are {}, gzip, plain", .known.join(", "))]
    Unknown {
        /// The settings that take a value.
        known: &'static [&'static str],
    },
    #[error("takes no value")]
    UnexpectedValue,
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
    #[error("more than {most}")]
    TooManyTokens { most: u64 },
    /// The parts of an answer have more tokens together than it may have.
    #[error("more than {most} in all")]
    TooManyTokensInAll { most: u64 },
    /// Settings that leave an answer without a token.
    #[error("an answer needs at least one token")]
    NoTokens,
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
    TooFewArguments { least: u64 },
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
    #[error("not an HTTP error from 400 to 599")]
    NotAnErrorStatus,
    /// A factor that is no number, or out of bounds.
    #[error("not a factor from 1x to 1000x")]
    FactorOutOfBounds,
    #[error("is auto, on or off")]
    UsageMode,
    #[error("at least 1ms")]
    PingTooOften,
    /// No way for an answer to end.
    #[error("is stop, length, refused or invalid_tool_call")]
    Finish,
}
