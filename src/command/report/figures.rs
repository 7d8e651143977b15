//! The figures of a report.

use crate::call::CallRecord;
use crate::history::{Groups, TimedCall, UnitTally, quantile, tasks};
use crate::query::{Dimension, GroupRow, Mark, Tasks, UnitKind, UnitQuery};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};
use tokengauge_core::time::since_1970;
use tokengauge_experiments::{self as experiments, Experiment, Observed, Rules, judge};

/// The number of points of a plot over time.
const POINTS: f64 = 60.0;

/// Sums and percentiles of calls by group, and samples over time.
pub(super) struct Report {
    pub(super) made: SystemTime,
    pub(super) since: Option<SystemTime>,
    pub(super) until: Option<SystemTime>,
    pub(super) calls: u64,
    /// Calls while their upstream warmed up, whose speed is left out.
    pub(super) left_out: u64,
    pub(super) first: Option<SystemTime>,
    pub(super) last: Option<SystemTime>,
    /// What happened meanwhile, the newest first.
    pub(super) marks: Vec<Mark>,
    by: Vec<Dimension>,
    with_warm_up: bool,
    groups: Groups,
    /// Start, decode speed and time to first token of each call.
    samples: Vec<(f64, Option<f64>, Option<f64>)>,
    /// When each session's first call began and its last ended.
    sessions: HashMap<String, (SystemTime, SystemTime)>,
    /// The units of each experiment, where calls are grouped by variant.
    experiments: BTreeMap<String, UnitTally>,
}

/// Quantiles of one step in time: where it begins, and the 10th, 50th and 90th.
pub(super) type Quantiles = (f64, [Option<f64>; 3]);

impl Report {
    pub(super) fn new(by: &[Dimension], with_warm_up: bool, made: SystemTime) -> Report {
        Report {
            made,
            since: None,
            until: None,
            calls: 0,
            left_out: 0,
            first: None,
            last: None,
            marks: Vec::new(),
            by: by.to_vec(),
            with_warm_up,
            groups: Groups::by(by),
            samples: Vec::new(),
            sessions: HashMap::new(),
            experiments: BTreeMap::new(),
        }
    }

    /// Adds a call.
    pub(super) fn add(&mut self, call: &CallRecord) {
        let Some(past) = TimedCall::of(call) else {
            return;
        };
        self.calls += 1;
        self.first = Some(
            self.first
                .map_or(past.started, |first| first.min(past.started)),
        );
        self.last = Some(self.last.map_or(past.ended, |last| last.max(past.ended)));
        if let Some(session) = &call.session {
            let known = self.sessions.entry(session.clone());
            let (began, ended) = known.or_insert((past.started, past.ended));
            *began = past.started.min(*began);
            *ended = past.ended.max(*ended);
        }
        self.add_unit(&past);
        let group = self.groups.of(&past);
        if call.warm_up && !self.with_warm_up {
            self.left_out += 1;
            return group.add_unmeasured(&past);
        }
        group.add(&past);
        let (tps, ttft) = (call.tps.output, call.seconds.ttft);
        if tps.or(ttft).is_some() {
            self.samples.push((since_1970(past.started), tps, ttft));
        }
    }

    /// Adds a call to the units of its experiment, where variants are compared.
    fn add_unit(&mut self, past: &TimedCall<'_>) {
        let Some(experiment) = &past.record.experiment else {
            return;
        };
        if !self.by.contains(&Dimension::Variant) {
            return;
        }
        if let Some(tally) = self.experiments.get_mut(experiment) {
            return tally.add(past);
        }
        let mut tally = UnitTally::new(UnitQuery {
            experiment: experiment.clone(),
            ..UnitQuery::default()
        });
        tally.add(past);
        self.experiments.insert(experiment.clone(), tally);
    }

    /// How the variants of each experiment compare by session, with intervals, where calls are grouped by variant.
    pub(super) fn experiments(&self) -> Vec<experiments::Report> {
        let reports = self.experiments.iter().map(|(name, tally)| {
            let experiment = Experiment {
                name: name.clone(),
                arms: Vec::new(),
                unit: UnitKind::Session,
                rules: Rules::default(),
            };
            let observed = Observed::of(&tally.units(), &experiment.rules);
            judge(&experiment, &observed, self.made)
        });
        reports.collect()
    }

    /// The dimensions by which calls are grouped.
    pub(super) fn dimensions(&self) -> Vec<&'static str> {
        self.by.iter().map(|by| word(*by)).collect()
    }

    /// A row per group; those with most calls first.
    pub(super) fn rows(&self) -> Vec<GroupRow> {
        let mut rows = self.groups.clone().rows();
        let seconds = self.length().map(|length| length.as_secs_f64());
        for row in &mut rows {
            let calls = row.calls as f64;
            row.requests_per_second = seconds.map(|seconds| calls / seconds);
        }
        rows
    }

    /// The durations of the sessions, each from its first call in the report to its last.
    pub(super) fn tasks(&self) -> Tasks {
        let took = self.sessions.values();
        let took = took.filter_map(|(began, ended)| ended.duration_since(*began).ok());
        tasks(took.map(|took| took.as_secs_f64()), self.length())
    }

    /// The time from the first call's start to the last one's end.
    fn length(&self) -> Option<Duration> {
        let length = self.last?.duration_since(self.first?).ok();
        length.filter(|length| !length.is_zero())
    }

    /// Decode speeds over time.
    pub(super) fn tps(&self) -> Vec<Quantiles> {
        self.over_time(|(_, tps, _)| *tps)
    }

    /// Times to first token over time.
    pub(super) fn ttft(&self) -> Vec<Quantiles> {
        self.over_time(|(_, _, ttft)| *ttft)
    }

    fn over_time(
        &self,
        value: impl Fn(&(f64, Option<f64>, Option<f64>)) -> Option<f64>,
    ) -> Vec<Quantiles> {
        let (Some(first), Some(last)) = (self.first, self.last) else {
            return Vec::new();
        };
        let begin = since_1970(first);
        let step = ((since_1970(last) - begin) / POINTS).max(1.0).ceil();
        let mut steps = vec![Vec::new(); POINTS as usize + 1];
        for sample in &self.samples {
            let at = ((sample.0 - begin) / step) as usize;
            if let (Some(value), Some(values)) = (value(sample), steps.get_mut(at)) {
                values.push(value);
            }
        }
        let point = |(at, mut values): (usize, Vec<f64>)| {
            values.sort_by(f64::total_cmp);
            let quantiles = [0.1, 0.5, 0.9].map(|share| quantile(&values, share));
            (begin + at as f64 * step, quantiles)
        };
        steps.into_iter().enumerate().map(point).collect()
    }

    /// When the marks happened, in seconds since 1970.
    pub(super) fn mark_times(&self) -> Vec<f64> {
        let times = self.marks.iter();
        let times = times.filter_map(|mark| humantime::parse_rfc3339(&mark.time).ok());
        times.map(since_1970).collect()
    }

    /// The report as JSON.
    pub(super) fn document(&self) -> Value {
        let instant = |at: SystemTime| humantime::format_rfc3339_millis(at).to_string();
        let dimensions = self.dimensions();
        let rows = self.rows().into_iter().map(|row| {
            let names = dimensions.iter().zip(&row.names);
            let by: Map<_, _> = names
                .map(|(by, name)| ((*by).to_owned(), json!(name)))
                .collect();
            let mut row = json!(row);
            row["by"] = by.into();
            row
        });
        json!({
            "made_at": instant(self.made),
            "since": self.since.map(instant),
            "until": self.until.map(instant),
            "first_call_at": self.first.map(instant),
            "last_call_ended_at": self.last.map(instant),
            "calls": self.calls,
            "warm_up_calls_left_out": self.left_out,
            "tasks": self.tasks(),
            "marks": self.marks,
            "experiments": self.experiments(),
            "by": dimensions,
            "groups": rows.collect::<Vec<_>>(),
        })
    }
}

fn word(by: Dimension) -> &'static str {
    match by {
        Dimension::Model => "model",
        Dimension::Workload => "workload",
        Dimension::Route => "route",
        Dimension::Upstream => "upstream",
        Dimension::Agent => "agent",
        Dimension::User => "user",
        Dimension::Experiment => "experiment",
        Dimension::Variant => "variant",
        Dimension::Outcome => "outcome",
        Dimension::UpstreamFacts => "upstream_facts",
        Dimension::PromptLength => "prompt_length",
        Dimension::OutputLength => "output_length",
    }
}
