//! Reads the settings of [`super::profile::HELP`].

use super::profile::{
    Cut, Fault, FaultKind, Finish, Gap, InvalidSetting, Profile, ToolCalls, UsageMode,
};
use super::setting_error::SettingError;
use super::text_gen::FEWEST_ARGUMENTS;
use std::str::FromStr;
use std::time::Duration;

/// A larger number is a typing error.
const MOST_TOKENS: u64 = 1_000_000;

impl FromStr for Profile {
    type Err = InvalidSetting;

    fn from_str(text: &str) -> Result<Self, InvalidSetting> {
        let mut profile = Profile::default();
        apply(&mut profile, text)?;
        Ok(profile)
    }
}

impl Profile {
    /// This profile, overridden by `text` in the grammar of [`HELP`](super::profile::HELP).
    pub fn with(&self, text: &str) -> Result<Profile, InvalidSetting> {
        let mut profile = self.clone();
        apply(&mut profile, text)?;
        Ok(profile)
    }
}

/// Overrides `profile` with `text`. After an error `profile` is incomplete and must be discarded.
fn apply(profile: &mut Profile, text: &str) -> Result<(), InvalidSetting> {
    for setting in text.split(',').map(str::trim).filter(|s| !s.is_empty()) {
        let (key, value) = match setting.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim())),
            None => (setting, None),
        };
        set(profile, key, value).map_err(|reason| invalid(setting, reason))?;
    }
    match profile.most_tokens() {
        0 => Err(invalid("tokens", SettingError::NoTokens)),
        n if n > MOST_TOKENS => Err(invalid(
            "tokens",
            SettingError::TooManyTokensInAll { most: MOST_TOKENS },
        )),
        _ => Ok(()),
    }
}

fn invalid(setting: &str, reason: SettingError) -> InvalidSetting {
    InvalidSetting {
        setting: setting.chars().take(80).collect(),
        reason,
    }
}

fn set(profile: &mut Profile, key: &str, value: Option<&str>) -> Result<(), SettingError> {
    match (key, value) {
        ("gzip", None) => profile.gzip = true,
        ("plain", None) => *profile = Profile::default(),
        ("gzip" | "plain", Some(_)) => return Err(SettingError::UnexpectedValue),
        (_, Some(value)) => return set_value(profile, key, value),
        (_, None) if KEYS.contains(&key) => return Err(SettingError::MissingValue),
        (_, None) => return Err(unknown()),
    }
    Ok(())
}

const KEYS: &[&str] = &[
    "ttft",
    "head",
    "gap",
    "tokens",
    "per_frame",
    "burst",
    "reasoning",
    "repeat",
    "tool",
    "prefill",
    "knee",
    "stall",
    "reset",
    "close",
    "error",
    "status",
    "slow_start",
    "cold_start",
    "usage",
    "cache",
    "empty",
    "ping",
    "finish",
    "seed",
    "cut",
];

fn unknown() -> SettingError {
    SettingError::Unknown { known: KEYS }
}

fn set_value(profile: &mut Profile, key: &str, value: &str) -> Result<(), SettingError> {
    match key {
        "ttft" => profile.ttft = duration(value)?,
        "head" => profile.head = duration(value)?,
        "gap" => profile.gap = gap(value)?,
        "tokens" => profile.tokens = range(value)?,
        "per_frame" => profile.per_frame = at_least_one(value)?,
        "burst" => profile.burst = at_least_one(value)?,
        "reasoning" => profile.reasoning = tokens(value)?,
        "repeat" => profile.repeat = Some(repeat(value)?),
        "tool" => profile.tool = tool(value)?,
        "prefill" => profile.prefill = duration(value)?,
        "knee" => {
            profile.knee = Some(
                at_least_one(value)?
                    .try_into()
                    .map_err(|_| SettingError::TooLarge)?,
            )
        }
        "stall" => profile.stalls.push(stall(value)?),
        "reset" => {
            profile.fault = Some(Fault {
                kind: FaultKind::Reset,
                after: after(value)?,
            })
        }
        "close" => {
            profile.fault = Some(Fault {
                kind: FaultKind::Close,
                after: after(value)?,
            })
        }
        "error" => profile.fault = Some(error(value)?),
        "status" => profile.status = Some(status(value)?),
        "slow_start" => profile.slow_start = Some(slow_start(value)?),
        "cold_start" => profile.cold_start = Some(stall(value)?),
        "usage" => profile.usage = usage(value)?,
        "cache" => profile.cache = Some(duration(value)?),
        "empty" => profile.empty = tokens(value)?,
        "ping" => profile.ping = Some(ping(value)?),
        "finish" => profile.finish = finish(value)?,
        "seed" => profile.seed = Some(number(value)?),
        "cut" => profile.cut = cut(value)?,
        _ => return Err(unknown()),
    }
    Ok(())
}

fn number(value: &str) -> Result<u64, SettingError> {
    value.parse().map_err(|_| SettingError::NotWhole)
}

fn at_least_one(value: &str) -> Result<u64, SettingError> {
    match tokens(value)? {
        0 => Err(SettingError::Zero),
        n => Ok(n),
    }
}

fn tokens(value: &str) -> Result<u64, SettingError> {
    match number(value)? {
        n if n > MOST_TOKENS => Err(SettingError::TooManyTokens { most: MOST_TOKENS }),
        n => Ok(n),
    }
}

fn range(value: &str) -> Result<(u64, u64), SettingError> {
    let (low, high) = value.split_once("..").unwrap_or((value, value));
    match (tokens(low)?, tokens(high)?) {
        (low, high) if low > high => Err(SettingError::ReversedRange),
        range => Ok(range),
    }
}

/// A number with a unit: `250us`, `20ms`, `1.5s`, `2m`.
fn duration(value: &str) -> Result<Duration, SettingError> {
    let unit_at = value
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(value.len());
    let (count, unit) = value.split_at(unit_at);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err(SettingError::NotADuration),
    };
    let count: f64 = count.parse().map_err(|_| SettingError::NotADuration)?;
    match count * seconds {
        total if (0.0..=86_400.0).contains(&total) => Ok(Duration::from_secs_f64(total)),
        _ => Err(SettingError::DurationOutOfBounds),
    }
}

fn gap(value: &str) -> Result<Gap, SettingError> {
    if let Some(mean) = value.strip_prefix("exp:") {
        return Ok(Gap::Exponential(duration(mean)?));
    }
    match value.split_once('~') {
        None => Ok(Gap::Constant(duration(value)?)),
        Some((mean, deviation)) => match (duration(mean)?, duration(deviation)?) {
            (mean, deviation) if deviation > mean => Err(SettingError::DeviationAboveMean),
            (mean, deviation) => Ok(Gap::Jitter(mean, deviation)),
        },
    }
}

fn tool(value: &str) -> Result<Option<ToolCalls>, SettingError> {
    let (each, calls) = value.split_once('x').unwrap_or((value, "1"));
    match (tokens(each)?, number(calls)?) {
        (0, _) | (_, 0) => Ok(None),
        (each, _) if each < FEWEST_ARGUMENTS => Err(SettingError::TooFewArguments {
            least: FEWEST_ARGUMENTS,
        }),
        (_, calls) if calls > 64 => Err(SettingError::TooManyCalls),
        (tokens, calls) => Ok(Some(ToolCalls { calls, tokens })),
    }
}

/// `WHAT@N`: an event, and the token after which it happens.
fn at_position(value: &str) -> Result<(&str, u64), SettingError> {
    let (what, position) = value.split_once('@').ok_or(SettingError::MissingPosition)?;
    Ok((what.trim(), number(position.trim())?))
}

fn repeat(value: &str) -> Result<(u64, u64), SettingError> {
    let (period, position) = at_position(value)?;
    Ok((at_least_one(period)?, position))
}

fn stall(value: &str) -> Result<(Duration, u64), SettingError> {
    let (pause, position) = at_position(value)?;
    Ok((duration(pause)?, position))
}

fn after(value: &str) -> Result<u64, SettingError> {
    match at_position(value)? {
        ("", position) => Ok(position),
        _ => Err(SettingError::PositionAlone),
    }
}

fn error(value: &str) -> Result<Fault, SettingError> {
    let (kind, after) = at_position(value)?;
    if !kind.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(SettingError::ErrorType);
    }
    let kind = (!kind.is_empty()).then(|| kind.to_owned());
    Ok(Fault {
        kind: FaultKind::Error(kind),
        after,
    })
}

fn status(value: &str) -> Result<u16, SettingError> {
    match number(value)? {
        code @ 400..=599 => Ok(code as u16),
        _ => Err(SettingError::NotAnErrorStatus),
    }
}

fn slow_start(value: &str) -> Result<(f64, u64), SettingError> {
    let (factor, position) = at_position(value)?;
    let factor = factor.strip_suffix('x').unwrap_or(factor);
    match factor.parse::<f64>() {
        Ok(factor) if (1.0..=1_000.0).contains(&factor) => Ok((factor, position)),
        _ => Err(SettingError::FactorOutOfBounds),
    }
}

fn usage(value: &str) -> Result<UsageMode, SettingError> {
    match value {
        "auto" => Ok(UsageMode::Auto),
        "on" => Ok(UsageMode::On),
        "off" => Ok(UsageMode::Off),
        _ => Err(SettingError::UsageMode),
    }
}

fn ping(value: &str) -> Result<Duration, SettingError> {
    match duration(value)? {
        pause if pause < Duration::from_millis(1) => Err(SettingError::PingTooOften),
        pause => Ok(pause),
    }
}

fn finish(value: &str) -> Result<Finish, SettingError> {
    match value {
        "stop" => Ok(Finish::Stop),
        "length" => Ok(Finish::Length),
        "refused" => Ok(Finish::Refused),
        "invalid_tool_call" => Ok(Finish::InvalidToolCall),
        _ => Err(SettingError::Finish),
    }
}

fn cut(value: &str) -> Result<Cut, SettingError> {
    match value.split_once(':') {
        Some(("random", seed)) => Ok(Cut::Random(Some(number(seed)?))),
        _ if value == "random" => Ok(Cut::Random(None)),
        _ if value == "events" => Ok(Cut::Events),
        _ => Ok(Cut::Bytes(at_least_one(value)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Profile {
        text.parse().expect(text)
    }

    fn refused(text: &str) -> String {
        text.parse::<Profile>().expect_err(text).to_string()
    }

    #[test]
    fn every_setting_is_understood() {
        let profile = parsed(
            "ttft=1.5s, head=10ms,gap=20ms~5ms,tokens=64..256,per_frame=4,burst=2,reasoning=32,tool=24x2,\
             prefill=300ms,knee=8,stall=500ms@40,stall=1s@50,reset=@60,gzip,slow_start=4x@16,cold_start=2s@5,\
             usage=off,empty=2,ping=250ms,finish=length,seed=7,cut=random:9",
        );
        assert_eq!(profile.ttft, Duration::from_millis(1500));
        assert_eq!(
            profile.gap,
            Gap::Jitter(Duration::from_millis(20), Duration::from_millis(5))
        );
        assert_eq!(profile.tokens, (64, 256));
        assert_eq!(
            profile.tool,
            Some(ToolCalls {
                calls: 2,
                tokens: 24
            })
        );
        assert_eq!(
            profile.stalls,
            [
                (Duration::from_millis(500), 40),
                (Duration::from_secs(1), 50)
            ]
        );
        assert_eq!(
            profile.fault,
            Some(Fault {
                kind: FaultKind::Reset,
                after: 60
            })
        );
        assert_eq!(profile.slow_start, Some((4.0, 16)));
        assert_eq!(profile.cut, Cut::Random(Some(9)));
        assert!(profile.gzip);
    }

    #[test]
    fn every_key_of_the_list_is_known_and_in_the_help() {
        for key in KEYS {
            let mut profile = Profile::default();
            let reason = set(&mut profile, key, Some("\u{1}"))
                .expect_err(key)
                .to_string();
            assert!(!reason.contains("no such setting"), "{key}: {reason}");
            assert!(
                super::super::profile::HELP.contains(&format!("\n  {key}=")),
                "{key}"
            );
        }
    }

    #[test]
    fn a_bad_setting_is_named_with_its_reason() {
        assert!(refused("ttft=200").contains("`ttft=200`: not a duration"));
        assert!(refused("gapp=20ms").contains("no such setting; known settings are ttft"));
        assert!(refused("gap").contains("needs a value"));
        assert!(refused("gzip=1").contains("takes no value"));
        assert!(refused("gap=5ms~9ms").contains("more than the mean"));
        assert!(refused("tokens=9..3").contains("greater"));
        assert!(refused("tokens=0").contains("at least one token"));
        assert!(refused("tokens=-1").contains("whole number"));
        assert!(refused("tool=3").contains("at least 5"));
        assert!(refused("stall=500ms").contains("position"));
        assert!(refused("reset=1s@60").contains("only a position"));
        assert!(refused("error=a b@3").contains("letters"));
        assert!(refused("status=200").contains("400 to 599"));
        assert!(refused("slow_start=0.5x@3").contains("factor"));
        assert!(refused("usage=yes").contains("auto, on or off"));
        assert!(refused("ttft=99999s").contains("a day"));
        assert!(refused("ttft=NaNs").contains("duration"));
    }

    #[test]
    fn plain_forgets_what_came_before() {
        assert_eq!(parsed("gzip,ttft=1s,plain"), Profile::default());
    }
}
