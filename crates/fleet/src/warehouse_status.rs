//! How the store of a fleet stands.

use schemars::JsonSchema;
use serde::Serialize;
use std::time::SystemTime;
use tokengauge_core::time::Timestamp;

/// Whether the store is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "StoreState")]
pub enum WarehouseState {
    /// Its calls are read for the first time since the start.
    Reading,
    /// Everything that it has is here, but for the last seconds.
    Following,
    /// It does not answer; what it has is read when it does again.
    Away,
}

/// How the store of a fleet stands.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "FleetStore")]
pub struct WarehouseStatus {
    /// Where it is, without secrets.
    pub address: String,
    /// Whether it is followed.
    pub state: WarehouseState,
    /// Since when, RFC 3339, UTC.
    pub since: Timestamp,
    /// Why it is away, and what to do.
    pub error: Option<String>,
    /// Calls that were taken from it since the start.
    pub calls: u64,
    /// When it was last read to its end; null before the first time.
    pub read_at: Option<Timestamp>,
    /// Requests to it that failed.
    pub failures: u64,
}

impl WarehouseStatus {
    pub(super) fn new(address: String, now: SystemTime) -> WarehouseStatus {
        WarehouseStatus {
            address,
            state: WarehouseState::Reading,
            since: now.into(),
            error: None,
            calls: 0,
            read_at: None,
            failures: 0,
        }
    }

    /// It was read to its end. Whether it was away before.
    pub(super) fn caught_up(&mut self, now: SystemTime) -> bool {
        let back = self.error.take().is_some();
        self.turn(WarehouseState::Following, now);
        self.read_at = Some(now.into());
        back
    }

    /// It failed. Whether that is new.
    pub(super) fn failed(&mut self, error: String, now: SystemTime) -> bool {
        let new = self.state != WarehouseState::Away;
        self.turn(WarehouseState::Away, now);
        self.error = Some(error);
        self.failures += 1;
        new
    }

    fn turn(&mut self, state: WarehouseState, now: SystemTime) {
        if self.state != state {
            self.state = state;
            self.since = now.into();
        }
    }
}
