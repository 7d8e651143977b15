//! The state of a fleet's warehouse.

use schemars::JsonSchema;
use serde::Serialize;
use std::time::SystemTime;
use tokengauge_core::time::Timestamp;

/// Whether the warehouse answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "StoreState")]
pub enum WarehouseState {
    /// The warehouse was asked for the first time and has not answered yet.
    Reading,
    /// The warehouse answers.
    Following,
    /// The warehouse does not answer, so stored calls are not shown.
    Away,
}

/// The state of a fleet's warehouse.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "FleetStore")]
pub struct WarehouseStatus {
    /// The address of the warehouse and its table, without secrets.
    pub address: String,
    /// Whether the warehouse answers.
    pub state: WarehouseState,
    /// When the state began.
    pub since: Timestamp,
    /// Why the warehouse does not answer, and what to do.
    pub error: Option<String>,
    /// Rows of calls in the warehouse. A call that was delivered twice counts twice until ClickHouse merges its parts.
    pub calls: u64,
    /// When the warehouse last answered; `null` before the first time.
    pub read_at: Option<Timestamp>,
    /// Requests to the warehouse that failed since the start.
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

    /// Records that the warehouse has `calls` rows. Returns whether it was unreachable before.
    pub(super) fn answered(&mut self, calls: u64, now: SystemTime) -> bool {
        let back = self.error.take().is_some();
        self.turn(WarehouseState::Following, now);
        self.read_at = Some(now.into());
        self.calls = calls;
        back
    }

    /// Records a failed query of the warehouse. Returns whether the previous query succeeded.
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
