//! The last background evaluation of `[[drift]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_core::time::Timestamp;
use tokengauge_drift::Entry;

/// The result of the last evaluation.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Drifts {
    /// When the last evaluation ran; `null` before the first.
    pub evaluated_at: Option<Timestamp>,
    /// Why comparisons are missing, if the ledger did not answer.
    pub error: Option<String>,
    /// The result of each `[[drift]]`, in the order of the configuration.
    pub drifts: Vec<Entry>,
}
