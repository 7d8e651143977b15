//! Simulated traffic: three upstreams with several nodes each, two models, two routes, four agents.

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use std::sync::Arc;
use tokengauge_cause::{Call, Phases};

pub(crate) const BEGIN: f64 = 1_764_000_000.0;
pub(crate) const ONSET: f64 = BEGIN + 3_000.0;
/// Seconds of prefill per prompt token.
pub(crate) const PER_TOKEN: f64 = 0.000_08;
const APART: f64 = 0.8;

pub(crate) struct Traffic {
    pub(crate) random: StdRng,
}

impl Traffic {
    pub(crate) fn new(seed: u64) -> Traffic {
        Traffic {
            random: StdRng::seed_from_u64(seed),
        }
    }

    /// Calls between two instants. The agent `crawler` adds `crawler` times as many calls.
    pub(crate) fn calls(&mut self, from: f64, to: f64, crawler: f64) -> Vec<Call> {
        let mut calls = Vec::new();
        let mut at = from;
        loop {
            at += self.exponential(APART / (1.0 + crawler));
            if at >= to {
                return calls;
            }
            let mut call = self.call(at);
            if crawler > 0.0 && self.random.random_bool(crawler / (1.0 + crawler)) {
                call.names[3] = Some(Arc::from("crawler"));
            }
            calls.push(call);
        }
    }

    fn call(&mut self, at: f64) -> Call {
        let (upstream, nodes): (&str, &[&str]) = match self.random.random_range(0..10) {
            0..4 => (
                "vllm-a",
                &["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"],
            ),
            4..8 => ("vllm-b", &["10.0.1.1:8000", "10.0.1.2:8000"]),
            _ => ("vllm-c", &["10.0.2.1:8000"]),
        };
        let model = if self.random.random_bool(0.3) {
            "large"
        } else {
            "small"
        };
        let route = if self.random.random_bool(0.7) {
            "chat"
        } else {
            "batch"
        };
        let agents = ["coder", "support", "research", "crawler"];
        let agent = self.one_of(&agents);
        let node = self.one_of(nodes);
        let tokens = 2_000.0 * self.lognormal(0.9);
        let prefill = tokens * PER_TOKEN * self.lognormal(0.15);
        let gap = 0.02 * self.lognormal(0.2);
        let names = [upstream, model, route, agent, node].map(|name| Some(Arc::from(name)));
        Call {
            at,
            weight: 1.0,
            bad: false,
            names,
            prompt_tokens: Some(tokens as u64),
            output_tokens: Some((300.0 * self.lognormal(0.5)) as u64),
            concurrency: self.random.random_range(1..=6),
            cold: false,
            error: self
                .random
                .random_bool(0.004)
                .then(|| Arc::from("http_error 502")),
            connect: Some(0.001 + self.exponential(0.001)),
            first_token: Some(0.05 + self.exponential(0.03) + prefill),
            prefill: None,
            gap: Some(gap),
            stalls: u64::from(self.random.random_bool(0.01)),
            longest_gap: Some(gap * self.random.random_range(2.0..8.0)),
        }
    }

    fn one_of<'a>(&mut self, names: &[&'a str]) -> &'a str {
        names[self.random.random_range(0..names.len())]
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.random.random_range(0.0..1.0_f64)).ln()
    }

    /// A log-normal factor with a median of 1.
    pub(crate) fn lognormal(&mut self, deviation: f64) -> f64 {
        let (one, other): (f64, f64) = (
            1.0 - self.random.random_range(0.0..1.0_f64),
            self.random.random_range(0.0..1.0),
        );
        let normal = (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos();
        (deviation * normal).exp()
    }
}

/// Judges calls by an objective that depends on `phases`. A good call has no error, a first token within 1.2 s, gaps of at
/// most 40 ms and no stall, or takes at most 20 s in all.
pub(crate) fn judge(calls: &mut [Call], phases: Phases) {
    for call in calls {
        let first = call.first_token.unwrap_or(0.0) + call.connect.unwrap_or(0.0);
        let gap = call.gap.unwrap_or(0.0);
        let decode = gap * call.output_tokens.unwrap_or(0) as f64;
        call.bad = match (phases.first_token, phases.decode) {
            (true, true) => first + decode > 20.0,
            (true, false) => first > 1.2,
            (false, true) => gap > 0.04 || call.longest_gap.is_some_and(|gap| gap > 1.0),
            (false, false) => call.error.is_some(),
        };
    }
}
