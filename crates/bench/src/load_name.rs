//! The description of a load in results.

use crate::load::{ArrivalPattern, Load};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A load: either a concurrency or a request rate.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct LoadName {
    /// The number of concurrent calls of a closed loop.
    pub concurrency: Option<u32>,
    /// The calls per second of an open loop.
    pub request_rate: Option<f64>,
    /// The arrival pattern of an open loop.
    pub arrival_pattern: Option<String>,
}

impl LoadName {
    pub fn of(load: &Load) -> LoadName {
        let name = |pattern: ArrivalPattern| Some(<&str>::from(pattern).to_owned());
        match load {
            Load::Concurrency(streams) => LoadName {
                concurrency: Some(*streams),
                request_rate: None,
                arrival_pattern: None,
            },
            Load::RequestRate(rate, pattern) => LoadName {
                concurrency: None,
                request_rate: Some(*rate),
                arrival_pattern: name(*pattern),
            },
            Load::Schedule(_) => LoadName {
                concurrency: None,
                request_rate: None,
                arrival_pattern: Some("fixed_schedule".to_owned()),
            },
            Load::Sessions(_) => LoadName {
                concurrency: None,
                request_rate: None,
                arrival_pattern: Some("multi_turn".to_owned()),
            },
        }
    }

    pub fn number(&self) -> f64 {
        let concurrency = self.concurrency.map(f64::from);
        concurrency.or(self.request_rate).unwrap_or_default()
    }
}

impl std::fmt::Display for LoadName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.concurrency, self.request_rate) {
            (Some(streams), _) => write!(f, "concurrency {streams}"),
            (_, Some(rate)) => write!(f, "{rate} calls/s"),
            _ => f.write_str("schedule"),
        }
    }
}
