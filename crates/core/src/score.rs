//! Scores: how good a call, a session or a trace was, according to a program outside the proxy.

use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest name of a score.
pub const MAX_NAME: usize = 64;
/// The largest absolute value of a score.
pub const MAX_VALUE: f64 = 1e9;

/// Whether a score may have this name: at most [`MAX_NAME`] of `a-z`, `0-9`, `_`, `.` and `-`. Names become labels.
///
/// ```
/// use tokengauge_core::score::is_name;
///
/// assert!(is_name("tests_passed.v2"));
/// assert!(!is_name("Tests passed") && !is_name(""));
/// ```
pub fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9') || b"_.-".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(allowed)
}

/// A score that a program outside the proxy gave.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Score {
    /// The name of the score, such as `success`.
    pub name: String,
    /// The value. For a boolean, 1 is true and 0 is false.
    pub value: f64,
    /// Whether the value is a number or a boolean.
    pub data_type: ScoreType,
    /// What was scored.
    pub target: ScoreTarget,
    /// The id of the scored call, session or trace.
    pub target_id: String,
    /// The program that gave the score, if it named itself.
    pub source: Option<String>,
    /// When the proxy received the score.
    pub time: Timestamp,
}

/// The type of a score's value.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", ascii_case_insensitive)]
pub enum ScoreType {
    /// A number.
    Numeric,
    /// True or false.
    Boolean,
}

/// The kind of a scored thing.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    JsonSchema,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ScoreTarget {
    /// A call.
    Call,
    /// A session with all its calls.
    Session,
    /// A trace with all its calls.
    Trace,
}

impl ScoreType {
    /// The name in the API and in the ledger.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl ScoreTarget {
    /// The name in the API and in the ledger.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
