//! Errors in a setting of [`super::profile::HELP`].

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("there is no such setting; there are {}, gzip, plain", .known.join(", "))]
    Unknown { known: &'static [&'static str] },
    #[error("takes no value")]
    UnexpectedValue,
    #[error("needs a value")]
    MissingValue,
    #[error("too large")]
    TooLarge,
    #[error("not a whole number")]
    NotWhole,
    #[error("must be at least 1")]
    Zero,
    #[error("more than {most}")]
    TooManyTokens { most: u64 },
    /// All parts of an answer together exceed the limit.
    #[error("more than {most} in all")]
    TooManyTokensInAll { most: u64 },
    /// The settings leave an answer without a token.
    #[error("an answer needs at least one token")]
    NoTokens,
    #[error("the first number is greater than the second")]
    ReversedRange,
    #[error("not a duration such as 20ms or 1.5s")]
    NotADuration,
    #[error("not between 0 and a day")]
    DurationOutOfBounds,
    /// Some gaps would be negative.
    #[error("deviates by more than the mean")]
    DeviationAboveMean,
    /// The arguments of a tool call need more tokens.
    #[error("arguments have at least {least} tokens")]
    TooFewArguments { least: u64 },
    #[error("more than 64 calls")]
    TooManyCalls,
    /// The token after which the fault happens is missing.
    #[error("needs a place, as in ...@40")]
    MissingPosition,
    /// The fault takes only the token after which it happens.
    #[error("takes a place alone, as in @60")]
    PositionAlone,
    /// A provider could not send this error type.
    #[error("an error type is letters, digits and underscores")]
    ErrorType,
    #[error("not an HTTP error from 400 to 599")]
    NotAnErrorStatus,
    /// The factor is not a number, or is out of range.
    #[error("not a factor from 1x to 1000x")]
    FactorOutOfBounds,
    #[error("is auto, on or off")]
    UsageMode,
    #[error("at least 1ms")]
    PingTooOften,
    #[error("is stop, length, refused or invalid_tool_call")]
    Finish,
}
