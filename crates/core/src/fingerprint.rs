//! What figures depend on, apart from the speed of the backend: the work that was requested, what
//! responded, and what measured. Figures of two reports are comparable as far as their fingerprints
//! agree.

use crate::call::CallRecord;
use crate::printable::printable;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The version of the definitions of figures in docs/measurement.md and docs/reports.md. Increase
/// it when a change of a definition gives the same calls another figure.
pub const METHOD_VERSION: u32 = 2;

const MAX_NAMES: usize = 16;
const MAX_SHOWN: usize = 48;
/// Lengths are alike if they differ by less than this share.
const LENGTHS_ALIKE: f64 = 0.1;
/// Shares are alike if they differ by less than this: 5 percentage points.
const SHARES_ALIKE: f64 = 0.05;

/// The work of a set of calls, and what responded to it.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Number of calls.
    pub calls: u64,
    /// Input tokens per call, as reported by the provider, otherwise as counted by the proxy.
    pub input_tokens: Option<Spread>,
    /// Output tokens per call, as reported by the provider, otherwise as counted by the proxy.
    pub output_tokens: Option<Spread>,
    /// Share of input tokens that were read from a cache, from 0 to 1. Only calls that report both
    /// counts are included.
    pub cached_input_share: Option<f64>,
    /// Share of responses with arguments of a tool call.
    pub tool_call_share: Option<f64>,
    /// Share of responses that were streamed.
    pub streamed_share: Option<f64>,
    /// Calls in flight when a call began, including the call.
    pub concurrency: Option<Spread>,
    /// Models that responded, at most 16.
    pub models: Vec<String>,
    /// Engines with their versions and hardware, as configured in `[upstream.facts]`, at most 16.
    pub engines: Vec<String>,
}

/// The distribution of a count over calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Spread {
    /// 10th percentile.
    pub p10: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
}

/// The program and the machine that measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct MeasuredBy {
    /// Version of the program.
    pub version: String,
    /// Commit of the build. `unknown` in development builds.
    pub commit: String,
    /// Version of the definitions of figures.
    pub method_version: u32,
    /// The machine on which the program ran.
    pub machine: Machine,
}

/// The hardware and platform of a machine, without its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: Option<String>,
    /// Number of processors that the process may use.
    pub cores: Option<u64>,
    /// Memory that the process may use, in bytes: the lowest limit of its cgroups, otherwise all
    /// memory.
    pub memory_bytes: Option<u64>,
    /// Operating system and processor architecture, such as `linux x86_64`.
    pub platform: String,
}

/// Collects the fingerprint of calls. Its memory grows only with the number of distinct counts.
#[derive(Clone, Debug, Default)]
pub struct FingerprintBuilder {
    calls: u64,
    answers: u64,
    input: Counts,
    output: Counts,
    concurrency: Counts,
    cached: u64,
    cacheable: u64,
    tool_calls: u64,
    streamed: u64,
    models: BTreeSet<String>,
    engines: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
struct Counts(BTreeMap<u64, u64>);

impl Counts {
    fn add(&mut self, count: u64) {
        *self.0.entry(count).or_default() += 1;
    }

    fn spread(&self) -> Option<Spread> {
        let all: u64 = self.0.values().sum();
        let quantile = |tenths: u64| {
            let rank = (all * tenths).div_ceil(10).max(1);
            let mut seen = 0;
            self.0.iter().find_map(|(count, times)| {
                seen += times;
                (seen >= rank).then_some(*count)
            })
        };
        Some(Spread {
            p10: quantile(1)?,
            p50: quantile(5)?,
            p90: quantile(9)?,
        })
    }
}

impl FingerprintBuilder {
    /// Adds a call.
    pub fn add(&mut self, call: &CallRecord) {
        let (reported, counted) = (&call.tokens.reported, &call.tokens.normalised);
        self.calls += 1;
        if let Some(tokens) = reported.input.or(counted.input) {
            self.input.add(tokens);
        }
        if let Some(tokens) = reported.output.or(counted.output) {
            self.output.add(tokens);
        }
        if let Some((cached, input)) = reported.cached_input.zip(reported.input) {
            self.cached += cached;
            self.cacheable += input;
        }
        if let Some(streamed) = call.streamed {
            self.answers += 1;
            self.streamed += u64::from(streamed);
            self.tool_calls += u64::from(counted.tool_call.is_some_and(|tokens| tokens > 0));
        }
        let model = call.model.as_ref().or(call.model_requested.as_ref());
        keep(&mut self.models, model.cloned());
        self.add_engine(call);
    }

    /// Adds only the engine of a call that another builder has counted.
    pub fn add_engine(&mut self, call: &CallRecord) {
        let facts = call.upstream_facts.as_ref();
        keep(&mut self.engines, facts.map(ToString::to_string));
    }

    /// Adds the number of calls in flight when a call began.
    pub fn add_concurrency(&mut self, calls: u64) {
        self.concurrency.add(calls);
    }

    /// The fingerprint of all calls so far.
    pub fn build(&self) -> Fingerprint {
        let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
        Fingerprint {
            calls: self.calls,
            input_tokens: self.input.spread(),
            output_tokens: self.output.spread(),
            cached_input_share: share(self.cached, self.cacheable),
            tool_call_share: share(self.tool_calls, self.answers),
            streamed_share: share(self.streamed, self.answers),
            concurrency: self.concurrency.spread(),
            models: self.models.iter().cloned().collect(),
            engines: self.engines.iter().cloned().collect(),
        }
    }
}

fn keep(names: &mut BTreeSet<String>, name: Option<String>) {
    if let Some(name) = name.filter(|_| names.len() < MAX_NAMES) {
        names.insert(name);
    }
}

impl Fingerprint {
    /// Describes each difference in one line: lengths whose 10th, 50th or 90th percentiles differ
    /// by more than 10 %, shares that differ by more than 5 percentage points, and engines.
    pub fn differences(&self, other: &Fingerprint) -> Vec<String> {
        let spreads = [
            ("input tokens", self.input_tokens, other.input_tokens),
            ("output tokens", self.output_tokens, other.output_tokens),
            ("calls in flight", self.concurrency, other.concurrency),
        ];
        let spreads = spreads.into_iter().filter_map(|(name, one, other)| {
            let (one, other) = one.zip(other)?;
            let differ = !one.is_alike(other);
            differ.then(|| format!("{name}: {one} against {other}"))
        });
        let shares = [
            (
                "cached input",
                self.cached_input_share,
                other.cached_input_share,
            ),
            (
                "answers with tool calls",
                self.tool_call_share,
                other.tool_call_share,
            ),
            (
                "streamed answers",
                self.streamed_share,
                other.streamed_share,
            ),
        ];
        let shares = shares.into_iter().filter_map(|(name, one, other)| {
            let (one, other) = one.zip(other)?;
            let differ = (one - other).abs() > SHARES_ALIKE;
            let percent = |share: f64| format!("{:.0} %", share * 100.0);
            differ.then(|| format!("{name}: {} against {}", percent(one), percent(other)))
        });
        let engines = (self.engines != other.engines).then(|| {
            let all = |engines: &[String]| {
                if engines.is_empty() {
                    "unknown".to_owned()
                } else {
                    engines.join(", ")
                }
            };
            format!(
                "engine: {} against {}",
                all(&self.engines),
                all(&other.engines)
            )
        });
        spreads.chain(shares).chain(engines).collect()
    }
}

impl Spread {
    fn is_alike(self, other: Spread) -> bool {
        let pairs = [
            (self.p10, other.p10),
            (self.p50, other.p50),
            (self.p90, other.p90),
        ];
        // For a few tokens or calls, a tenth is less than one.
        let alike = |(one, other): (u64, u64)| {
            one.abs_diff(other) as f64 <= (LENGTHS_ALIKE * one.max(other) as f64).max(1.0)
        };
        pairs.into_iter().all(alike)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} to {})", self.p50, self.p10, self.p90)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = |name, spread: Option<Spread>| spread.map(|spread| format!("{spread} {name}"));
        let share = |name, share: Option<f64>| {
            share.map(|share| format!("{:.0} % of {name}", share * 100.0))
        };
        let names = |names: &[String]| (!names.is_empty()).then(|| shortened(&names.join(", ")));
        let parts = [
            spread("input tokens", self.input_tokens),
            spread("output tokens", self.output_tokens),
            share("input cached", self.cached_input_share),
            share("answers with tool calls", self.tool_call_share),
            share("answers streamed", self.streamed_share),
            spread("calls in flight", self.concurrency),
            names(&self.models),
            names(&self.engines),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

/// Makes names safe to print, and truncates long ones.
fn shortened(names: &str) -> String {
    let names = printable(names);
    let mut shown: String = names.chars().take(MAX_SHOWN).collect();
    if names.chars().count() > MAX_SHOWN {
        shown.push('…');
    }
    shown
}

impl fmt::Display for MeasuredBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        write!(
            f,
            "tokengauge {} (commit {}, method {}) on {}",
            self.version,
            self.commit,
            self.method_version,
            machine.cpu.as_deref().unwrap_or("an unnamed processor"),
        )?;
        if let Some(cores) = machine.cores {
            write!(f, ", {cores} processors")?;
        }
        if let Some(bytes) = machine.memory_bytes {
            write!(f, ", {} of memory", gibibytes(bytes))?;
        }
        write!(f, ", {}", machine.platform)
    }
}

fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

impl MeasuredBy {
    /// Describes each difference between the programs and machines in one line.
    pub fn differences(&self, other: &MeasuredBy) -> Vec<String> {
        let or_unknown = |name: &Option<String>| name.clone().unwrap_or("unknown".to_owned());
        let bytes = |machine: &Machine| or_unknown(&machine.memory_bytes.map(gibibytes));
        let cores = |machine: &Machine| {
            let cores = machine.cores.map(|cores| cores.to_string());
            or_unknown(&cores)
        };
        let method = |by: &MeasuredBy| by.method_version.to_string();
        let (here, there) = (&self.machine, &other.machine);
        let compared = [
            ("method", method(self), method(other)),
            ("tokengauge", self.version.clone(), other.version.clone()),
            ("processor", or_unknown(&here.cpu), or_unknown(&there.cpu)),
            ("processors", cores(here), cores(there)),
            ("memory", bytes(here), bytes(there)),
        ];
        let differ = compared.into_iter().filter(|(_, one, other)| one != other);
        differ
            .map(|(name, one, other)| format!("{name}: {one} against {other}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(input: u64, cached: u64, tool_call: u64) -> CallRecord {
        serde_json::from_value(json!({
            "id": "1", "started_at": "2026-01-31T09:30:00.000Z", "route": "r", "upstream": "u", "dialect": "openai_chat",
            "operation": "chat", "model": "m", "streamed": true, "status": 200, "outcome": "complete", "finish_reasons": [],
            "warm_up": false, "frames": 41, "stalls": 0, "seconds": {}, "tps": {}, "bytes": {"request": 1, "response": 1},
            "tokens": {
                "normalised": {"output": 40, "tool_call": tool_call},
                "reported": {"input": input, "cached_input": cached, "output": 50}, "source": "reported",
            },
        }))
        .expect("a record")
    }

    fn of(inputs: &[u64], cached: u64, tool_call: u64) -> Fingerprint {
        let mut builder = FingerprintBuilder::default();
        for input in inputs {
            builder.add(&call(*input, cached, tool_call));
            builder.add_concurrency(2);
        }
        builder.build()
    }

    #[test]
    fn it_has_the_lengths_shares_and_names_of_its_calls() {
        let inputs: Vec<u64> = (1..=10).map(|number| number * 100).collect();
        let found = of(&inputs, 50, 3);
        let spread = Spread {
            p10: 100,
            p50: 500,
            p90: 900,
        };
        assert_eq!((found.calls, found.input_tokens), (10, Some(spread)));
        assert_eq!(found.cached_input_share, Some(500.0 / 5500.0));
        assert_eq!(
            (found.tool_call_share, found.streamed_share),
            (Some(1.0), Some(1.0))
        );
        assert_eq!(found.models, ["m"]);
        assert_eq!(found.concurrency.map(|spread| spread.p90), Some(2));
        assert_eq!(
            FingerprintBuilder::default().build(),
            Fingerprint::default()
        );
        assert_eq!(
            found.to_string(),
            "500 (100 to 900) input tokens, 50 (50 to 50) output tokens, 9 % of input cached, 100 % of answers with tool calls, \
             100 % of answers streamed, 2 (2 to 2) calls in flight, m"
        );
    }

    #[test]
    fn what_differs_is_said_and_what_is_alike_is_not() {
        let one = of(&[1000, 1000], 0, 0);
        assert_eq!(
            one.differences(&of(&[1050, 1000], 20, 0)),
            Vec::<String>::new()
        );
        assert_eq!(
            one.differences(&of(&[4000, 8000], 4000, 9)),
            [
                "input tokens: 1000 (1000 to 1000) against 4000 (4000 to 8000)",
                "cached input: 0 % against 67 %",
                "answers with tool calls: 0 % against 100 %",
            ]
        );
        let by = |cores| MeasuredBy {
            method_version: METHOD_VERSION,
            machine: Machine {
                cores: Some(cores),
                ..Machine::default()
            },
            ..MeasuredBy::default()
        };
        assert!(by(2).differences(&by(2)).is_empty());
        assert_eq!(by(2).differences(&by(8)), ["processors: 2 against 8"]);
    }
}
