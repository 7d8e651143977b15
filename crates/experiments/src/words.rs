//! Verdicts as sentences.

use crate::metric::Metric;
use crate::report::{ArmComparison, Decision, MetricReport, Report};
use std::time::Duration;
use tokengauge_store::query::UnitKind;

pub fn unit(kind: UnitKind) -> String {
    match kind {
        UnitKind::Session => "session".to_owned(),
        UnitKind::Agent => "agent".to_owned(),
        UnitKind::User => "user".to_owned(),
        UnitKind::Block(length) => format!("block of {}", humantime::format_duration(length)),
    }
}

pub(crate) fn verdicts(report: &mut Report) {
    let mut comparisons = std::mem::take(&mut report.comparisons);
    for comparison in &mut comparisons {
        comparison.verdict = verdict(comparison, report);
    }
    report.verdict = match &report.withheld {
        Some(reason) => format!("the variants are not compared: {reason}"),
        None => {
            let all = comparisons.iter();
            let all = all.map(|comparison| comparison.verdict.as_str());
            all.collect::<Vec<_>>().join(". ")
        }
    };
    report.comparisons = comparisons;
}

/// Returns a sentence such as "with b, 8.0 points fewer calls wait more than 500ms for the first token (31 to 23 %; 95
/// %: 5.2 to 11); TPS equal within 3.0 %; cost per session +4.1 % (95 %: 1.2 to 7.0); 1,840 sessions".
fn verdict(comparison: &ArmComparison, report: &Report) -> String {
    let metrics = comparison.metrics.iter();
    let mut parts: Vec<String> = metrics.filter_map(|metric| part(metric, report)).collect();
    if parts.is_empty() {
        parts.push("no difference is shown".to_owned());
    }
    parts.push(format!(
        "{} {}",
        grouped(comparison.units),
        plural(&report.unit)
    ));
    format!("with {}, {}", comparison.variant, parts.join("; "))
}

/// Returns the part of the sentence for a metric. Speed, waiting time and cost always have one, other metrics only if
/// they differ.
fn part(metric: &MetricReport, report: &Report) -> Option<String> {
    let always = matches!(
        metric.metric,
        Metric::TtftAbove | Metric::Tps | Metric::Cost | Metric::Score
    );
    match metric.decision {
        Decision::Better | Decision::Worse => Some(differs(metric, report)),
        Decision::Equal if always => {
            let (lower, upper) = (metric.lower?, metric.upper?);
            let most = lower.abs().max(upper.abs());
            let scale = scale(metric);
            Some(format!(
                "{} equal within {}{scale}",
                noun(metric, report),
                amount(metric, most)
            ))
        }
        Decision::Open if always => Some(format!(
            "no difference shown in {} ({})",
            noun(metric, report),
            bounds(metric, report)?
        )),
        Decision::Withheld if always && metric.metric != Metric::Cost => {
            let reason = metric.withheld.as_deref()?;
            Some(format!("{} not compared: {reason}", noun(metric, report)))
        }
        _ => None,
    }
}

fn differs(metric: &MetricReport, report: &Report) -> String {
    let difference = metric.difference.unwrap_or(0.0);
    let bounds = bounds(metric, report).unwrap_or_default();
    let Some((subject, predicate)) = predicate(metric.metric, report) else {
        let (change, scale) = (change(metric, difference), scale(metric));
        return format!("{} {change}{scale} ({bounds})", noun(metric, report));
    };
    let more = if difference > 0.0 { "more" } else { "fewer" };
    let share = |value: Option<f64>| value.map_or("?".to_owned(), percent);
    format!(
        "{} points {more} {subject} {predicate} ({} to {} %; {bounds})",
        percent(difference.abs()),
        share(metric.baseline),
        share(metric.value),
    )
}

/// Returns a string such as "95 %: 5.2 to 11". If the difference of two shares is found to be better or worse, its bounds have
/// no sign. All other bounds have a sign.
fn bounds(metric: &MetricReport, report: &Report) -> Option<String> {
    let (lower, upper) = (metric.lower?, metric.upper?);
    let confidence = percent(1.0 - report.alpha);
    let decided = matches!(metric.decision, Decision::Better | Decision::Worse);
    let share_of_calls = !metric.relative && metric.score.is_none();
    let by_size = decided && share_of_calls && lower * upper > 0.0;
    let (low, high) = if by_size {
        let (one, other) = (lower.abs(), upper.abs());
        (percent(one.min(other)), percent(one.max(other)))
    } else {
        (change(metric, lower), change(metric, upper))
    };
    let scale = if by_size || decided {
        ""
    } else {
        scale(metric)
    };
    Some(format!("{confidence} %: {low} to {high}{scale}"))
}

/// Returns the unit of a difference with a leading space. The difference of a score that is not a share has none.
pub fn scale(metric: &MetricReport) -> &'static str {
    if metric.relative {
        " %"
    } else if is_plain(metric) {
        ""
    } else {
        " points"
    }
}

/// Returns a difference with its sign, in the unit of [`scale`].
pub fn change(metric: &MetricReport, difference: f64) -> String {
    let sign = if difference < 0.0 { "−" } else { "+" };
    format!("{sign}{}", amount(metric, difference.abs()))
}

fn amount(metric: &MetricReport, difference: f64) -> String {
    if is_plain(metric) {
        plain(difference)
    } else {
        percent(difference)
    }
}

/// Whether values are in the unit of a score instead of shares.
pub fn is_plain(metric: &MetricReport) -> bool {
    metric.score.as_ref().is_some_and(|score| !score.is_share)
}

/// Formats a value of a score with three digits.
pub fn plain(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// Returns the metric as a noun, such as "calls that fail" and "cost per session".
pub fn noun(metric: &MetricReport, report: &Report) -> String {
    match predicate(metric.metric, report) {
        Some((subject, predicate)) => format!("{subject} that {predicate}"),
        None if metric.metric == Metric::Cost => format!("cost per {}", report.unit),
        None if metric.metric == Metric::Score => {
            let name = metric.score.as_ref().map_or("", |score| &score.name);
            format!("score {name}")
        }
        None => "TPS".to_owned(),
    }
}

/// Returns the calls that a share is computed from and the event that it counts; `None` if the metric is not a share.
fn predicate(metric: Metric, report: &Report) -> Option<(&'static str, String)> {
    let answers = |predicate: &str| ("answers", predicate.to_owned());
    Some(match metric {
        Metric::Tps | Metric::Cost | Metric::Score => return None,
        Metric::TtftAbove => {
            let threshold = milliseconds(report.ttft_above.unwrap_or(0.0));
            let predicate = format!("wait more than {threshold} for the first token");
            ("calls", predicate)
        }
        Metric::TpsBelow => {
            let threshold = rounded(report.tps_below.unwrap_or(0.0));
            ("calls", format!("decode at {threshold} TPS or less"))
        }
        Metric::Failures => ("calls", "fail".to_owned()),
        Metric::Truncated => answers("are truncated"),
        Metric::Refused => answers("are refused"),
        Metric::Empty => answers("are empty"),
        Metric::CutOff => answers("are cut off"),
        Metric::InvalidToolCalls => answers("have unreadable tool calls"),
    })
}

fn milliseconds(seconds: f64) -> String {
    let whole = Duration::from_millis((seconds * 1e3).round().max(0.0) as u64);
    humantime::format_duration(whole).to_string()
}

pub fn percent(share: f64) -> String {
    rounded(share * 100.0)
}

fn rounded(value: f64) -> String {
    if value.abs() < 9.95 && (value * 10.0).round() % 10.0 != 0.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

pub fn signed(share: f64) -> String {
    let sign = if share < 0.0 { "−" } else { "+" };
    format!("{sign}{}", percent(share.abs()))
}

/// Returns a plural such as `blocks of 10m`.
fn plural(unit: &str) -> String {
    match unit.split_once(' ') {
        Some((first, rest)) => format!("{first}s {rest}"),
        None => format!("{unit}s"),
    }
}

fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
