//! The last evaluation of `[[drift]]`, made in the background.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_core::time::Timestamp;
use tokengauge_drift::Entry;

/// What the last evaluation found.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Drifts {
    /// When it was; `null` before the first one.
    pub evaluated_at: Option<Timestamp>,
    /// Why entries are missing, where the ledger did not answer.
    pub error: Option<String>,
    /// Each `[[drift]]`, in the order of the configuration.
    pub drifts: Vec<Entry>,
}
