//! Notes on the figures of a report: meaning, coverage and method.

use super::differences::Differences;
use super::estimates::{CONFIDENCE, Estimate};
use super::figures::{Report, Row, joined};
use super::grid::{UNKNOWN, range, seconds, shortened};
use super::observations::Sessions;
use crate::command::measured_by::measured_by;
use std::collections::BTreeMap;
use std::time::SystemTime;
use tokengauge_core::time::rfc3339_seconds;
use tokengauge_stats::clustered::MIN_UNITS;
use tokengauge_store::query::{Coverage, Mark};

/// Escapes a name from traffic for a line of text or for Markdown.
pub(super) type Shown = fn(&str) -> String;

const MAX_NAMES: usize = 48;

const DESCRIBED: usize = 12;

/// A session with at least this share of a row's calls dominates its figures.
const MOST_OF_ONE: f64 = 1.0 / 3.0;

const LISTED: usize = 50;

pub(super) fn mark_lines(report: &Report, shown: Shown) -> Vec<String> {
    let line = |mark: &Mark| {
        let about = [
            ("model", &mark.model),
            ("upstream", &mark.upstream),
            ("route", &mark.route),
            ("workload", &mark.workload),
        ];
        let about = about
            .iter()
            .filter_map(|(what, name)| Some(format!("{what} {}", name.as_deref()?)));
        let about = about.collect::<Vec<_>>().join(", ");
        let about = if about.is_empty() {
            String::new()
        } else {
            format!(" ({about})")
        };
        shown(&format!("{} {}{about}", mark.time, mark.text))
    };
    let mut lines: Vec<String> = report.marks.iter().take(LISTED).map(line).collect();
    if report.marks.len() > LISTED {
        lines.push(format!("and {} earlier ones", report.marks.len() - LISTED));
    }
    lines
}

pub(super) fn about_differences(found: &Differences, shown: Shown) -> Vec<String> {
    let clear = found.rows.iter().flat_map(|row| &row.figures);
    let clear = clear.filter(|difference| difference.is_shown()).count();
    let baseline = row_name(&found.baseline, shown);
    let about = format!(
        "Differences from {baseline}, in percent; errors in percentage points. All intervals together hold in {:.0} of 100 \
         reports (Bonferroni: each has a confidence of {:.2} %). {clear} intervals exclude 0 and are marked `*`; the others do \
         not show a difference. `too few`: both rows need {MIN_UNITS} sessions.",
        found.confidence * 100.0,
        found.confidence_of_each * 100.0,
    );
    let other = found.rows.iter().filter(|row| !row.other_work.is_empty());
    let other = other.map(|row| {
        let (names, work) = (
            row_name(&row.names, shown),
            shown(&row.other_work.join("; ")),
        );
        format!(
            "The work of {names} differed from {baseline}, which may cause a difference: {work}."
        )
    });
    std::iter::once(about).chain(other).collect()
}

fn row_name(names: &[Option<String>], shown: Shown) -> String {
    shown(&shortened(&joined(names), MAX_NAMES))
}

pub(super) fn about(report: &Report, rows: &[Row], shown: Shown) -> Vec<String> {
    let at = |at: Option<SystemTime>| {
        at.map_or(UNKNOWN.to_owned(), |at| rfc3339_seconds(at).to_string())
    };
    let calls = report.calls;
    let mut about = vec![format!(
        "{calls} calls from {} to {}.",
        at(report.first),
        at(report.last)
    )];
    if report.left_out > 0 {
        about.push(format!(
            "{} calls ran during the warm-up of their upstream: TPS and TTFT exclude them, calls and costs include them; \
             --with-warm-up includes them everywhere.",
            report.left_out
        ));
    }
    about.push(coverage(&report.coverage));
    about.extend(judged(report));
    about.push(intervals(report));
    let sessions = rows.iter().filter_map(|row| sessions(row, shown));
    about.extend(sessions.take(DESCRIBED));
    about.push(
        "TPS is tokens per second of one stream while it decodes, counted with the same tokenizer for every model; \
         `judged` counts the calls that have a TPS. p10, p5 and p1 are the slow tail: 90, 95 and 99 of 100 calls are as \
         fast or faster. Other tools call them p90, p95 and p99 of TPS. \
         Bands are the shares of calls under 5, 15, 30 and 60 TPS, and from 60 TPS. `+` after a cost: some calls have no price."
            .to_owned(),
    );
    about.push(
        "`share` is the time to first token as a share of the total time of these calls. `req/s` is the number of calls \
         divided by the time from the first to the last."
            .to_owned(),
    );
    about.push(
        "`reported` is the median TPS in the tokens that the provider reports. The provider's tokenizer splits the same \
         text into more or fewer tokens. Engines and benchmarks usually count provider tokens."
            .to_owned(),
    );
    about.extend(about_scores(report, rows));
    let tasks = report.tasks();
    let [median, p95, _] = report.task_estimates();
    if let (Some(median), Some(p95), Some(per_minute)) = (median, p95, tasks.per_minute) {
        let with_range = |estimate: &Estimate| {
            format!("{} ({})", seconds(estimate.value), range(estimate, seconds))
        };
        about.push(format!(
            "{} sessions as tasks, from first call to last: half of them took up to {}, 95 of 100 up to {}; {per_minute:.2} \
             tasks per minute.",
            tasks.tasks,
            with_range(&median),
            with_range(&p95),
        ));
    }
    about.extend(rows.iter().take(DESCRIBED).map(|row| {
        let name = row_name(&row.group.names, shown);
        let work = shown(&row.fingerprint.to_string());
        format!("Work of {name}, with the 10th to 90th percentile of calls in brackets: {work}.")
    }));
    about.push(format!("Made by {}.", measured_by()));
    about
}

/// `None` without scores.
fn about_scores(report: &Report, rows: &[Row]) -> Option<String> {
    rows.iter().find(|row| !row.scores.scores.is_empty())?;
    let about = "Scores come from outside the proxy; each is an average with its interval.";
    let per_success = rows.iter().any(|row| row.scores.per_success.is_some());
    Some(if per_success {
        format!(
            "{about} Cost, time and tokens per success are sums over all sessions with the score `{}`, divided by the number \
             of sessions that succeeded.",
            report.success
        )
    } else {
        about.to_owned()
    })
}

fn coverage(coverage: &Coverage) -> String {
    let calls = coverage.calls;
    let of = |with: u64, what: &str, without: &BTreeMap<String, u64>| {
        let without = without
            .iter()
            .map(|(reason, calls)| (reason.as_str(), *calls));
        format!("{with} of {calls} calls have a {what}{}", others(without))
    };
    let cost = of(coverage.with_cost, "cost", &coverage.cost_unavailable);
    let speed = of(coverage.with_speed, "speed", &coverage.tps_unavailable);
    let skipped = match coverage.skipped_events {
        0 => String::new(),
        skipped => format!(" {skipped} stream events were unreadable and were skipped."),
    };
    format!("{cost}. {speed}.{skipped}")
}

fn others<'a>(without: impl Iterator<Item = (&'a str, u64)>) -> String {
    let reasons = without.map(|(reason, calls)| format!("{calls} {}", reason.replace('_', " ")));
    let reasons: Vec<_> = reasons.collect();
    if reasons.is_empty() {
        String::new()
    } else {
        format!("; the others: {}", reasons.join(", "))
    }
}

fn judged(report: &Report) -> Vec<String> {
    let names = ["TPS", "TTFT", "Cost per million output tokens"];
    let judged = report.judged();
    let all = names.iter().zip(&judged).map(|(name, judged)| {
        let without = judged.without.iter();
        let others = others(without.map(|(reason, calls)| (*reason, *calls)));
        format!(
            "{name} covers {} of {} calls{others}.",
            judged.calls, judged.of
        )
    });
    all.collect()
}

fn intervals(report: &Report) -> String {
    format!(
        "Below a figure is its {:.0} % interval. Intervals are clustered by session, because calls of one session depend on each \
         other. This report has {} sessions; a call without a session counts as one. `too few`: an interval needs at least \
         {MIN_UNITS} sessions. Calls, tokens, cost and req/s are exact and have no interval.",
        CONFIDENCE * 100.0,
        report.units(),
    )
}

fn sessions(row: &Row, shown: Shown) -> Option<String> {
    let name = row_name(&row.group.names, shown);
    let Sessions {
        count,
        calls_of_largest,
    } = row.sessions;
    if count < MIN_UNITS as u64 {
        return Some(format!(
            "{name} has too few sessions for intervals: {count} of {MIN_UNITS}. Choose a longer period."
        ));
    }
    let share = calls_of_largest as f64 / row.group.calls as f64;
    (share > MOST_OF_ONE).then(|| {
        format!(
            "One session has {:.0} % of the calls of {name} and dominates its figures.",
            share * 100.0
        )
    })
}
