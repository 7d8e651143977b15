//! The figures of a report.

use super::differences::{ComparedRow, Differences, differences};
use super::estimates::{self, Estimate, Figure};
use super::observations::{Judged, Observation, Observations, Sessions, Units};
use super::scores::{GroupScores, Scores};
use super::variants::Variants;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::fingerprint::Fingerprint;
use tokengauge_core::time::since_1970;
use tokengauge_store::history::{Groups, TimedCall, quantile, tasks};
use tokengauge_store::query::{Coverage, Dimension, GroupRow, Mark, Tasks};

const POINTS: f64 = 60.0;

/// Sums and percentiles of calls by group, and samples over time.
pub(super) struct Report {
    pub(super) made: SystemTime,
    pub(super) since: Option<SystemTime>,
    pub(super) until: Option<SystemTime>,
    pub(super) calls: u64,
    pub(super) coverage: Coverage,
    /// The number of warm-up calls, whose speeds are excluded.
    pub(super) left_out: u64,
    pub(super) first: Option<SystemTime>,
    pub(super) last: Option<SystemTime>,
    by: Vec<Dimension>,
    with_warm_up: bool,
    groups: Groups,
    observations: BTreeMap<Vec<Option<String>>, Observations>,
    units: Units,
    /// The names of the baseline row. The default is the row with the most calls.
    baseline: Option<Vec<Option<String>>>,
    /// The start of each session's first call and the end of its last call.
    sessions: HashMap<String, (SystemTime, SystemTime)>,
    /// The marks during the period, the newest first.
    pub(super) marks: Vec<Mark>,
    variants: Variants,
    scores: Scores,
    /// The name of the score that says whether a session succeeded.
    pub(super) success: String,
}

/// The start of a time step with its 10th, 50th and 90th percentile.
pub(super) type Quantiles = (f64, [Option<f64>; 3]);

impl Report {
    pub(super) fn new(by: &[Dimension], with_warm_up: bool, made: SystemTime) -> Report {
        Report {
            made,
            since: None,
            until: None,
            calls: 0,
            coverage: Coverage::default(),
            left_out: 0,
            first: None,
            last: None,
            by: by.to_vec(),
            with_warm_up,
            groups: Groups::by(by),
            observations: BTreeMap::new(),
            units: Units::default(),
            baseline: None,
            sessions: HashMap::new(),
            marks: Vec::new(),
            variants: Variants::default(),
            scores: Scores::default(),
            success: "success".to_owned(),
        }
    }

    pub(super) fn add(&mut self, call: &CallRecord) {
        let past = TimedCall::of(call);
        self.calls += 1;
        if call.operation_class.counts() {
            self.coverage.add(call);
        }
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
        if self.by.contains(&Dimension::Variant) {
            self.variants.add(&past);
        }
        let timed = !call.warm_up || self.with_warm_up;
        let names = self.groups.names(&past);
        let unit = self.units.of(call);
        let observations = self.observations.entry(names.clone()).or_default();
        observations.add(&past, unit, timed);
        self.scores.add(&past, &names, unit);
        let group = self.groups.named(names);
        if timed {
            group.add(&past);
        } else {
            self.left_out += 1;
            group.add_unmeasured(&past);
        }
    }

    pub(super) fn experiments(&self) -> Vec<tokengauge_experiments::Report> {
        self.variants.reports(self.made)
    }

    pub(super) fn mark_times(&self) -> Vec<f64> {
        let times = self.marks.iter().map(|mark| mark.time.time());
        times.map(since_1970).collect()
    }

    pub(super) fn dimensions(&self) -> Vec<&'static str> {
        self.by.iter().map(|by| by.name()).collect()
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let seconds = self.length().map(|length| length.as_secs_f64());
        let concurrency = Concurrency::of(self.observations.values());
        let row = |mut group: GroupRow| {
            let calls = group.calls as f64;
            group.requests_per_second = seconds.map(|seconds| calls / seconds);
            let found = &self.observations[&group.names];
            let bands = group.bands.iter();
            Row {
                estimates: estimates::estimates(found).into_iter().collect(),
                bands: bands
                    .map(|band| estimates::band(found, band.from, band.to))
                    .collect(),
                judged: [&found.tps, &found.ttft, &found.cost].map(Clone::clone),
                fingerprint: concurrency.fingerprint(found),
                sessions: found.sessions(),
                scores: self.scores.of(&group.names, &self.success),
                group,
            }
        };
        self.groups.clone().rows().into_iter().map(row).collect()
    }

    /// Returns the number of sessions. A call without a session counts as one.
    pub(super) fn units(&self) -> u32 {
        self.units.count()
    }

    /// Returns how many calls of the whole report have a decode speed, a time to first token and a cost.
    pub(super) fn judged(&self) -> [Judged; 3] {
        let mut all: [Judged; 3] = Default::default();
        for group in self.observations.values() {
            let parts = [&group.tps, &group.ttft, &group.cost];
            all.iter_mut()
                .zip(parts)
                .for_each(|(all, part)| all.merge(part));
        }
        all
    }

    /// Selects the baseline row by name: the values of its dimensions, separated by commas.
    ///
    /// # Errors
    /// Returns the names of all rows if none has this name.
    pub(super) fn set_baseline(&mut self, name: &str) -> Result<(), Vec<String>> {
        let mut names = self.observations.keys();
        match names.find(|names| joined(names) == name) {
            Some(found) => self.baseline = Some(found.clone()),
            None => {
                return Err(self
                    .observations
                    .keys()
                    .map(|names| joined(names))
                    .collect());
            }
        }
        Ok(())
    }

    pub(super) fn differences(&self, rows: &[Row]) -> Option<Differences> {
        let baseline = self
            .baseline
            .as_ref()
            .or(Some(&rows.first()?.group.names))?;
        let compared = rows.iter().map(|row| ComparedRow {
            names: &row.group.names,
            calls: &self.observations[&row.group.names],
            fingerprint: &row.fingerprint,
        });
        let (baseline, others): (Vec<_>, Vec<_>) =
            compared.partition(|row| row.names == baseline.as_slice());
        differences(*baseline.first()?, &others)
    }

    fn task_seconds(&self) -> impl Iterator<Item = f64> {
        let took = self.sessions.values();
        let took = took.filter_map(|(began, ended)| ended.duration_since(*began).ok());
        took.map(|took| took.as_secs_f64())
    }

    pub(super) fn task_estimates(&self) -> [Option<Estimate>; 3] {
        let seconds: Vec<_> = self.task_seconds().collect();
        [Some(0.5), Some(0.95), None].map(|share| estimates::independent(&seconds, share))
    }

    pub(super) fn tasks(&self) -> Tasks {
        tasks(self.task_seconds(), self.length())
    }

    fn length(&self) -> Option<Duration> {
        let length = self.last?.duration_since(self.first?).ok();
        length.filter(|length| !length.is_zero())
    }

    pub(super) fn tps(&self) -> Vec<Quantiles> {
        self.over_time(|call| call.tps)
    }

    pub(super) fn ttft(&self) -> Vec<Quantiles> {
        self.over_time(|call| call.ttft)
    }

    fn over_time(&self, value: impl Fn(&Observation) -> f64) -> Vec<Quantiles> {
        let (Some(first), Some(last)) = (self.first, self.last) else {
            return Vec::new();
        };
        let begin = since_1970(first);
        let step = ((since_1970(last) - begin) / POINTS).max(1.0).ceil();
        let mut steps = vec![Vec::new(); POINTS as usize + 1];
        let calls = self.observations.values().flat_map(|group| &group.calls);
        for call in calls.filter(|call| !value(call).is_nan()) {
            let at = ((call.started - begin) / step) as usize;
            if let Some(values) = steps.get_mut(at) {
                values.push(value(call));
            }
        }
        let point = |(at, mut values): (usize, Vec<f64>)| {
            values.sort_by(f64::total_cmp);
            let quantiles = [0.1, 0.5, 0.9].map(|share| quantile(&values, share));
            (begin + at as f64 * step, quantiles)
        };
        steps.into_iter().enumerate().map(point).collect()
    }
}

pub(super) struct Row {
    pub(super) group: GroupRow,
    pub(super) estimates: BTreeMap<Figure, Estimate>,
    /// The shares of the experience bands.
    pub(super) bands: Vec<Option<Estimate>>,
    pub(super) judged: [Judged; 3],
    pub(super) fingerprint: Fingerprint,
    pub(super) sessions: Sessions,
    pub(super) scores: GroupScores,
}

struct Concurrency {
    /// Seconds since 1970, ascending.
    starts: Vec<f64>,
    ends: Vec<f64>,
}

impl Concurrency {
    fn of<'a>(groups: impl Iterator<Item = &'a Observations> + Clone) -> Concurrency {
        let sorted = |at: fn(&Observation) -> f64| {
            let calls = groups.clone().flat_map(|group| &group.calls);
            let mut instants: Vec<f64> = calls.map(at).collect();
            instants.sort_by(f64::total_cmp);
            instants
        };
        Concurrency {
            starts: sorted(|call| call.started),
            ends: sorted(|call| call.started + call.duration),
        }
    }

    fn fingerprint(&self, group: &Observations) -> Fingerprint {
        let mut builder = group.fingerprint.clone();
        for call in &group.calls {
            let begun = self.starts.partition_point(|start| *start <= call.started);
            let ended = self.ends.partition_point(|end| *end <= call.started);
            builder.add_concurrency(begun.saturating_sub(ended).max(1) as u64);
        }
        builder.build()
    }
}

pub(super) fn joined(names: &[Option<String>]) -> String {
    let names = names.iter().map(|name| name.as_deref().unwrap_or("–"));
    names.collect::<Vec<_>>().join(",")
}
