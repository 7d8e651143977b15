//! Compares the measurements of this client with the records of a tokengauge proxy for the same calls.

use crate::trial::{median, quantile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;
use tokengauge_core::call::CallRecord;

pub type AskGauge = Arc<dyn Fn(SystemTime) -> PendingRecords + Send + Sync>;

pub type PendingRecords = Pin<Box<dyn Future<Output = Result<Vec<CallRecord>, NoRecords>> + Send>>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoRecords(pub String);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AgentCall {
    pub trace: u128,
    pub ttft: Option<f64>,
    pub tps: Option<f64>,
    pub latency: f64,
    pub output: Option<u64>,
}

/// The calls of a load as this client and a tokengauge proxy measured them.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct BothSides {
    /// The number of calls that count on the client.
    pub calls: usize,
    /// The number of counted calls that the proxy has a record of.
    pub matched: usize,
    /// The number of matched calls whose output tokens differ.
    pub tokens_differ: usize,
    /// Time to first token, in seconds.
    pub ttft: Option<Sides>,
    /// Output tokens per second of a call.
    pub tps: Option<Sides>,
    /// End-to-end latency, in seconds.
    pub latency: Option<Sides>,
    /// Why the proxy could not be asked.
    pub error: Option<String>,
}

/// A figure as the client and the proxy measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Sides {
    /// The median that this client measured.
    pub agent: f64,
    /// The median that the proxy measured.
    pub gauge: f64,
    /// The median over calls of the client's value minus the proxy's value.
    pub difference: f64,
    /// The 95th percentile of the absolute difference over calls.
    pub difference_p95: f64,
}

impl BothSides {
    pub fn of(calls: &[AgentCall], records: &[CallRecord]) -> BothSides {
        let by_trace: HashMap<_, _> = records
            .iter()
            .filter_map(|record| Some((record.trace_id.as_deref()?, record)))
            .collect();
        let pairs: Vec<_> = calls
            .iter()
            .filter_map(|call| {
                let record = by_trace.get(format!("{:032x}", call.trace).as_str())?;
                Some((call, *record))
            })
            .collect();
        let differs = |(call, record): &&(&AgentCall, &CallRecord)| {
            call.output != record.tokens.normalised.output
        };
        let sides = |agent: fn(&AgentCall) -> Option<f64>,
                     gauge: fn(&CallRecord) -> Option<f64>| {
            let both = pairs.iter();
            Sides::of(
                both.filter_map(|(call, record)| agent(call).zip(gauge(record)))
                    .collect(),
            )
        };
        BothSides {
            calls: calls.len(),
            matched: pairs.len(),
            tokens_differ: pairs.iter().filter(differs).count(),
            ttft: sides(|call| call.ttft, |record| record.seconds.ttft),
            tps: sides(|call| call.tps, |record| record.tps.output),
            latency: sides(|call| Some(call.latency), |record| record.seconds.duration),
            error: None,
        }
    }

    pub fn failed(calls: usize, error: &NoRecords) -> BothSides {
        BothSides {
            calls,
            error: Some(error.to_string()),
            ..BothSides::default()
        }
    }
}

impl Sides {
    fn of(pairs: Vec<(f64, f64)>) -> Option<Sides> {
        if pairs.is_empty() {
            return None;
        }
        let (agent, gauge): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        let differences: Vec<_> = pairs.iter().map(|(agent, gauge)| agent - gauge).collect();
        let sizes: Vec<_> = differences
            .iter()
            .map(|difference| difference.abs())
            .collect();
        Some(Sides {
            agent: median(&agent),
            gauge: median(&gauge),
            difference: median(&differences),
            difference_p95: quantile(&sizes, 0.95),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_call_by_call() {
        let sides = Sides::of(vec![(0.5, 0.4), (0.3, 0.1), (0.9, 0.6)]).expect("pairs");
        assert_eq!((sides.agent, sides.gauge), (0.5, 0.4));
        assert!((sides.difference - 0.2).abs() < 1e-12);
        assert!((sides.difference_p95 - 0.29).abs() < 1e-12);
        assert_eq!(Sides::of(Vec::new()), None);
    }
}
