//! The state of the warehouse that a fleet reads.

use schemars::JsonSchema;
use serde::Serialize;
use std::time::SystemTime;
use tokengauge_core::time::Timestamp;

/// Whether the warehouse is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "StoreState")]
pub enum WarehouseState {
    /// The warehouse is being read for the first time since the start.
    Reading,
    /// Everything in the warehouse has been read, except for the last seconds.
    Following,
    /// The warehouse does not respond. Its calls are read once it responds again.
    Away,
}

/// The state of the warehouse that a fleet reads.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "FleetStore")]
pub struct WarehouseStatus {
    /// The address of the warehouse, without secrets.
    pub address: String,
    /// Whether the warehouse is followed.
    pub state: WarehouseState,
    /// When the warehouse entered this state, as RFC 3339 in UTC.
    pub since: Timestamp,
    /// Why the warehouse is away, and what to do.
    pub error: Option<String>,
    /// Number of calls read from the warehouse since the start.
    pub calls: u64,
    /// When all calls of the warehouse had last been read; null before the first time.
    pub read_at: Option<Timestamp>,
    /// Number of failed requests to the warehouse.
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

    /// Marks the warehouse as read to its end. Returns whether it was away before.
    pub(super) fn caught_up(&mut self, now: SystemTime) -> bool {
        let back = self.error.take().is_some();
        self.turn(WarehouseState::Following, now);
        self.read_at = Some(now.into());
        back
    }

    /// Marks the warehouse as away. Returns whether the state is new.
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
