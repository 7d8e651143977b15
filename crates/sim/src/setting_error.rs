//! Errors in a setting of [`super::profile::HELP`].

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("there is no such setting; known settings are {}, gzip, plain", .known.join(", "))]
    Unknown { known: &'static [&'static str] },
    #[error("takes no value")]
    UnexpectedValue,
    #[error("needs a value")]
    MissingValue,
    #[error("the number is too large")]
    TooLarge,
    #[error("not a whole number")]
    NotWhole,
    #[error("must be at least 1")]
    Zero,
    #[error("must be at most {most}")]
    TooManyTokens { most: u64 },
    #[error("the answer must have at most {most} tokens in total")]
    TooManyTokensInAll { most: u64 },
    #[error("an answer needs at least one token")]
    NoTokens,
    #[error("the first number is greater than the second")]
    ReversedRange,
    #[error("not a duration such as 20ms or 1.5s")]
    NotADuration,
    #[error("not between 0 and a day")]
    DurationOutOfBounds,
    #[error("the deviation must not be more than the mean")]
    DeviationAboveMean,
    #[error("arguments need at least {least} tokens")]
    TooFewArguments { least: u64 },
    #[error("must be at most 64 calls")]
    TooManyCalls,
    #[error("needs a position, as in ...@40")]
    MissingPosition,
    #[error("takes only a position, as in @60")]
    PositionAlone,
    /// A provider could not send this error type.
    #[error("an error type may contain only letters, digits and underscores")]
    ErrorType,
    #[error("not an HTTP error from 400 to 599")]
    NotAnErrorStatus,
    #[error("not a factor from 1x to 1000x")]
    FactorOutOfBounds,
    #[error("must be auto, on or off")]
    UsageMode,
    #[error("must be at least 1ms")]
    PingTooOften,
    #[error("must be stop, length, refused or invalid_tool_call")]
    Finish,
}
