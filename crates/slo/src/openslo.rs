//! Reads and writes OpenSLO v1 (<https://openslo.com>). Annotations contain what OpenSLO cannot
//! express, such as weights.

use super::objective::{Judgement, MONTH, Objective, Sli, Slice, Weight};
use super::windows::label;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::pattern::Pattern;
use tokengauge_core::selector::Selector;

const VERSION: &str = "openslo/v1";
const OURS: &str = "tokengauge.dev/";

#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The file is not YAML or does not follow OpenSLO's schema.
    #[error("is not OpenSLO v1: {0}")]
    Shape(#[from] serde_saphyr::Error),
    /// An objective cannot be written.
    #[error("cannot be written: {0}")]
    Unwritten(#[from] serde_saphyr::SerializeError),
    #[error("is not OpenSLO v1: apiVersion is `{0}`, not `{VERSION}`")]
    Version(String),
    /// tokengauge cannot measure an objective.
    #[error("SLO `{slo}`: {reason}")]
    Slo {
        slo: String,
        #[source]
        reason: Unmeasurable,
    },
}

/// Why tokengauge cannot measure an objective.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmeasurable {
    #[error("its objective has no {0}")]
    NoMember(&'static str),
    #[error("it has no timeWindow")]
    NoWindow,
    #[error(
        "its timeWindow follows a calendar; only rolling windows and calendar months in UTC (`1M`) \
         are supported"
    )]
    Calendar,
    #[error("Timeslices need a {0}")]
    NoSlice(&'static str),
    #[error(
        "`{0}` is not a duration such as 5m, 1h or 28d (months and longer have no fixed length)"
    )]
    Duration(String),
    #[error("{OURS}sli is `{0}`, which is not an indicator")]
    Indicator(String),
    #[error("{OURS}{0} is missing")]
    NoAnnotation(&'static str),
    #[error("{OURS}{0} is not a number")]
    NoNumber(String),
    #[error("{OURS}{0} is too large")]
    TooLarge(&'static str),
    #[error(
        "it has neither a thresholdMetric nor annotations of tokengauge: a ratio of counters does \
         not say what is measured"
    )]
    NoMetric,
    #[error("its query has none of {0}")]
    Series(String),
    #[error("{sli} supports only op {op}")]
    Operator {
        sli: &'static str,
        /// The comparison that the indicator supports.
        op: &'static str,
    },
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    api_version: String,
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

/// The `spec` of an SLO or of a separate SLI, which uses only the first fields.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold_metric: Option<Metric>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_metric: Option<Ratio>,
    #[serde(skip_serializing_if = "Option::is_none")]
    indicator: Option<Indicator>,
    #[serde(skip_serializing_if = "Option::is_none")]
    indicator_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    time_window: Vec<TimeWindow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budgeting_method: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    objectives: Vec<Target>,
}

#[derive(Deserialize, Serialize)]
struct Indicator {
    metadata: Metadata,
    spec: IndicatorSpec,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct IndicatorSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold_metric: Option<Metric>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_metric: Option<Ratio>,
}

#[derive(Clone, Deserialize, Serialize)]
struct Ratio {
    counter: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    good: Option<Metric>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bad: Option<Metric>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Metric>,
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metric {
    metric_source: MetricSource,
}

#[derive(Clone, Deserialize, Serialize)]
struct MetricSource {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    spec: Query,
}

#[derive(Clone, Default, Deserialize, Serialize)]
struct Query {
    #[serde(default)]
    query: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct TimeWindow {
    duration: String,
    #[serde(default)]
    is_rolling: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    calendar: Option<Calendar>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Calendar {
    start_time: String,
    time_zone: String,
}

const CALENDAR_MONTH: &str = "1M";

fn time_window(objective: &Objective) -> TimeWindow {
    let month = objective.calendar_month;
    TimeWindow {
        duration: if month {
            CALENDAR_MONTH.to_owned()
        } else {
            label(objective.window)
        },
        is_rolling: !month,
        calendar: month.then(|| Calendar {
            start_time: "2026-01-01 00:00:00".to_owned(),
            time_zone: "UTC".to_owned(),
        }),
    }
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    op: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_slice_target: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_slice_window: Option<String>,
}

/// Creates an indicator with a threshold.
type Threshold = fn(f64) -> Sli;

/// The series of each indicator, by which queries in foreign SLOs are recognized.
const SERIES: [(&str, Threshold); 5] = [
    ("tokengauge_time_to_first_token_seconds", Sli::Ttft),
    (
        "tokengauge_time_to_first_answer_seconds",
        Sli::TimeToFirstAnswer,
    ),
    ("tokengauge_output_tokens_per_second", Sli::OutputTps),
    ("tokengauge_request_duration_seconds", Sli::Duration),
    (
        "tokengauge_time_per_output_token_seconds",
        Sli::InterTokenLatency,
    ),
];

/// Writes the objectives as OpenSLO documents; each is a ratio of the proxy's counters.
///
/// # Errors
/// Returns an error if an objective cannot be written as YAML.
pub fn write(objectives: &[Arc<Objective>]) -> Result<String, Unusable> {
    let mut text = String::new();
    for objective in objectives {
        let document = serde_saphyr::to_string(&document(objective))?;
        text.push_str("---\n");
        text.push_str(&document);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

fn document(objective: &Objective) -> Document {
    let judgement = &objective.judgement;
    let name = objective.name.to_string();
    let select = &judgement.select;
    let slice = judgement.slice;
    Document {
        api_version: VERSION.to_owned(),
        kind: "SLO".to_owned(),
        metadata: Metadata {
            name: name.clone(),
            display_name: None,
            annotations: annotations(objective),
        },
        spec: Spec {
            description: objective
                .description
                .clone()
                .or(Some(judgement.sli.in_words())),
            service: select.workload.clone().or(Some("tokengauge".to_owned())),
            indicator: Some(indicator(&name)),
            time_window: vec![time_window(objective)],
            budgeting_method: Some(method(slice).to_owned()),
            objectives: vec![Target {
                display_name: Some(judgement.sli.in_words()),
                op: None,
                value: None,
                target: Some(objective.objective),
                target_percent: None,
                time_slice_target: slice.map(|slice| slice.target),
                time_slice_window: slice.map(|slice| label(slice.every)),
            }],
            ..Spec::default()
        },
    }
}

/// Annotations for what OpenSLO cannot express.
fn annotations(objective: &Objective) -> BTreeMap<String, String> {
    let judgement = &objective.judgement;
    let select = &judgement.select;
    let threshold = judgement.sli.threshold();
    let mut annotations = BTreeMap::new();
    let mut annotate = |key: &str, value: Option<String>| {
        annotations.extend(value.map(|value| (format!("{OURS}{key}"), value)));
    };
    annotate("sli", Some(judgement.sli.as_str().to_owned()));
    annotate("threshold", threshold.map(|value| value.to_string()));
    annotate("workload", select.workload.clone());
    annotate("route", select.route.clone());
    annotate("upstream", select.upstream.clone());
    annotate("model", select.model.as_ref().map(ToString::to_string));
    annotate("agent", select.agent.as_ref().map(ToString::to_string));
    annotate("team", select.team.clone());
    annotate("cost-center", select.cost_center.clone());
    annotate("tenant", select.tenant.clone());
    let token = judgement.weight == Weight::Token;
    annotate("weight", token.then(|| "token".to_owned()));
    let few = judgement.min_output_tokens;
    annotate("min-output-tokens", (few > 0).then(|| few.to_string()));
    let streams = judgement.min_streams;
    annotate("min-streams", (streams > 0).then(|| streams.to_string()));
    annotate("warm-up", (!judgement.warm_up).then(|| "false".to_owned()));
    annotate("min-events", Some(objective.min_events.to_string()));
    annotate("runbook-url", objective.runbook_url.clone());
    annotate("dashboard-url", objective.dashboard_url.clone());
    annotations
}

/// Good events divided by all counted events, from the proxy's counters.
fn indicator(name: &str) -> Indicator {
    let counted = |verdicts: &str| Metric {
        metric_source: MetricSource {
            kind: Some("Prometheus".to_owned()),
            spec: Query {
                query: format!(
                    "sum(tokengauge_slo_events_total{{slo={name:?},verdict{verdicts}}})"
                ),
            },
        },
    };
    Indicator {
        metadata: Metadata {
            name: format!("{name}-events"),
            ..Metadata::default()
        },
        spec: IndicatorSpec {
            threshold_metric: None,
            ratio_metric: Some(Ratio {
                counter: true,
                good: Some(counted("=\"good\"")),
                bad: None,
                total: Some(counted("=~\"good|bad\"")),
            }),
        },
    }
}

fn method(slice: Option<Slice>) -> &'static str {
    if slice.is_some() {
        "Timeslices"
    } else {
        "Occurrences"
    }
}

/// Reads the objectives of a file of OpenSLO documents. An SLO that tokengauge wrote is restored.
/// Other SLOs are supported if they compare one of the proxy's series with a threshold
/// (`thresholdMetric`, with `op` and `value`); their label matchers become the selector.
///
/// # Errors
/// Returns an error if the file is not OpenSLO v1, or an SLO in it cannot be measured; the error
/// names the SLO.
pub fn read(text: &str) -> Result<Vec<Objective>, Unusable> {
    let documents: Vec<Document> = serde_saphyr::from_multiple(text)?;
    if let Some(other) = documents.iter().find(|one| one.api_version != VERSION) {
        return Err(Unusable::Version(other.api_version.clone()));
    }
    let mut objectives = Vec::new();
    for document in documents.iter().filter(|one| one.kind == "SLO") {
        let several = document.spec.objectives.len() > 1;
        for (at, target) in document.spec.objectives.iter().enumerate() {
            let mut objective = objective(document, target, &documents).map_err(|reason| {
                let slo = document.metadata.name.clone();
                Unusable::Slo { slo, reason }
            })?;
            if several {
                objective.name = format!("{}-{}", objective.name, at + 1).into();
            }
            objectives.push(objective);
        }
    }
    Ok(objectives)
}

fn objective(
    document: &Document,
    target: &Target,
    all: &[Document],
) -> Result<Objective, Unmeasurable> {
    let (metadata, spec) = (&document.metadata, &document.spec);
    let ours = |key: &str| metadata.annotations.get(&format!("{OURS}{key}")).cloned();
    let share = target
        .target
        .or(target.target_percent.map(|percent| percent / 100.0))
        .ok_or(Unmeasurable::NoMember("target"))?;
    let window = spec.time_window.first().ok_or(Unmeasurable::NoWindow)?;
    let utc = |calendar: &Calendar| calendar.time_zone.eq_ignore_ascii_case("utc");
    let calendar_month = !window.is_rolling
        && window.duration == CALENDAR_MONTH
        && window.calendar.as_ref().is_none_or(utc);
    if !window.is_rolling && !calendar_month {
        return Err(Unmeasurable::Calendar);
    }
    let (sli, select) = match ours("sli") {
        Some(name) => (
            of_annotations(&name, ours("threshold"))?,
            Selector {
                workload: ours("workload"),
                route: ours("route"),
                upstream: ours("upstream"),
                model: ours("model").map(Pattern::new),
                agent: ours("agent").map(Pattern::new),
                team: ours("team"),
                cost_center: ours("cost-center"),
                tenant: ours("tenant"),
            },
        ),
        None => of_threshold(spec, target, all)?,
    };
    let slice = match (&spec.budgeting_method, &target.time_slice_window) {
        (Some(method), Some(every)) if method == "Timeslices" => Some(Slice {
            every: duration(every)?,
            target: target
                .time_slice_target
                .ok_or(Unmeasurable::NoSlice("timeSliceTarget"))?,
        }),
        (Some(method), None) if method == "Timeslices" => {
            return Err(Unmeasurable::NoSlice("timeSliceWindow"));
        }
        _ => None,
    };
    let number = |key: &str, default: u64| match ours(key) {
        Some(text) => text
            .parse()
            .map_err(|_| Unmeasurable::NoNumber(key.to_owned())),
        None => Ok(default),
    };
    Ok(Objective {
        name: metadata.name.as_str().into(),
        objective: share,
        window: if calendar_month {
            MONTH
        } else {
            duration(&window.duration)?
        },
        calendar_month,
        judgement: Judgement {
            sli,
            select,
            weight: match ours("weight").as_deref() {
                Some("token") => Weight::Token,
                _ => Weight::Request,
            },
            min_output_tokens: number("min-output-tokens", 0)?,
            min_streams: u32::try_from(number("min-streams", 0)?)
                .map_err(|_| Unmeasurable::TooLarge("min-streams"))?,
            warm_up: ours("warm-up").as_deref() != Some("false"),
            slice,
        },
        min_events: number("min-events", 10)?,
        description: spec.description.clone(),
        runbook_url: ours("runbook-url"),
        dashboard_url: ours("dashboard-url"),
    })
}

fn of_annotations(name: &str, threshold: Option<String>) -> Result<Sli, Unmeasurable> {
    let all = [
        Sli::Availability,
        Sli::Ttft(0.0),
        Sli::OutputTps(0.0),
        Sli::TotalTps(0.0),
        Sli::TimeToFirstAnswer(0.0),
        Sli::Duration(0.0),
        Sli::InterTokenLatency(0.0),
        Sli::Stalls(0),
        Sli::LongestGap(0.0),
        Sli::CostUsd(0.0),
        Sli::Throughput(0.0),
    ];
    let sli = all.into_iter().find(|sli| sli.as_str() == name);
    let sli = sli.ok_or_else(|| Unmeasurable::Indicator(name.to_owned()))?;
    if sli == Sli::Availability {
        return Ok(sli);
    }
    let threshold = threshold.ok_or(Unmeasurable::NoAnnotation("threshold"))?;
    let value = threshold
        .parse()
        .map_err(|_| Unmeasurable::NoNumber("threshold".to_owned()))?;
    Ok(sli.with_threshold(value))
}

fn of_threshold(
    spec: &Spec,
    target: &Target,
    all: &[Document],
) -> Result<(Sli, Selector), Unmeasurable> {
    let alone = spec.indicator_ref.as_ref().and_then(|name| {
        let sli = all
            .iter()
            .find(|one| one.kind == "SLI" && one.metadata.name == *name)?;
        sli.spec.threshold_metric.as_ref()
    });
    let inline = spec.indicator.as_ref();
    let inline = inline.and_then(|indicator| indicator.spec.threshold_metric.as_ref());
    let metric = inline.or(alone).ok_or(Unmeasurable::NoMetric)?;
    let query = &metric.metric_source.spec.query;
    let known = SERIES.iter().find(|(series, _)| query.contains(series));
    let (_, make) = known.ok_or_else(|| {
        let names: Vec<&str> = SERIES.iter().map(|(series, _)| *series).collect();
        Unmeasurable::Series(names.join(", "))
    })?;
    let value = target
        .value
        .ok_or(Unmeasurable::NoMember("value to compare the metric with"))?;
    let sli = make(value);
    let fitting = match target.op.as_deref() {
        Some("lt" | "lte") => !sli.at_least(),
        Some("gt" | "gte") => sli.at_least(),
        _ => return Err(Unmeasurable::NoMember("op (lte, lt, gte, gt)")),
    };
    if !fitting {
        let op = if sli.at_least() { "gte" } else { "lte" };
        return Err(Unmeasurable::Operator {
            sli: sli.as_str(),
            op,
        });
    }
    let of = |name: &str| matcher(query, name);
    Ok((
        sli,
        Selector {
            workload: of("workload"),
            route: of("route"),
            upstream: of("upstream"),
            model: of("model").map(Pattern::new),
            ..Selector::default()
        },
    ))
}

fn matcher(query: &str, label: &str) -> Option<String> {
    let start = format!("{label}=\"");
    let mut from = 0;
    loop {
        let at = from + query[from..].find(&start)?;
        // Skips longer names: `upstream_route="…"` is another label.
        let own = query[..at].ends_with(['{', ',', ' ']);
        let value = &query[at + start.len()..];
        if own {
            return value.split('"').next().map(str::to_owned);
        }
        from = at + start.len();
    }
}

/// Parses `5m`, `1h`, `28d`, `4w`.
fn duration(text: &str) -> Result<Duration, Unmeasurable> {
    let wrong = || Unmeasurable::Duration(text.to_owned());
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = number.checked_mul(seconds).filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}
