//! The status of a running proxy's objectives as a table.

use serde::Deserialize;
use std::fmt::Write;
use std::time::Duration;
use tokengauge_core::pod::PodName;
use tokengauge_core::time::{Timestamp, span_text};
use tokengauge_fleet::ObjectiveSource;
use tokengauge_process::output::printable;

#[derive(Clone, Debug, Deserialize)]
pub(in crate::command) struct SlosBody {
    pub(in crate::command) slos: Vec<Row>,
    /// The source of a fleet's objectives; `None` for a proxy.
    #[serde(default)]
    pub(in crate::command) source: Option<ObjectiveSource>,
}

impl SlosBody {
    pub(in crate::command) fn nothing(&self) -> &'static str {
        match self.source {
            None => "no [[slo]] is configured",
            Some(ObjectiveSource::None) => {
                "this fleet has no objectives: name the pods with --pods, or a Prometheus with --prometheus"
            }
            Some(ObjectiveSource::Pods) => "no reachable pod has an objective yet",
            Some(ObjectiveSource::Prometheus) => {
                "the fleet's Prometheus has no objectives yet: are the rules of `tokengauge print rules` loaded?"
            }
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(in crate::command) struct Row {
    pub(in crate::command) name: String,
    pub(in crate::command) promise: String,
    pub(in crate::command) objective: f64,
    pub(in crate::command) window: String,
    pub(in crate::command) good: f64,
    pub(in crate::command) bad: f64,
    pub(in crate::command) ratio: Option<f64>,
    pub(in crate::command) budget_remaining: f64,
    pub(in crate::command) exhausted_in_seconds: Option<f64>,
    pub(in crate::command) burn: Vec<Burn>,
    pub(in crate::command) alerts: Vec<Alert>,
    #[serde(default)]
    pub(in crate::command) cause: Option<Cause>,
    #[serde(default)]
    pub(in crate::command) event: String,
    #[serde(default)]
    pub(in crate::command) months: Vec<Month>,
    /// The pod of the objective, if a fleet returns the objectives of its pods.
    #[serde(default)]
    pub(in crate::command) pod: Option<PodName>,
}

#[derive(Clone, Debug, Deserialize)]
pub(in crate::command) struct Month {
    pub(in crate::command) month: String,
    pub(in crate::command) over: bool,
    pub(in crate::command) good: u64,
    pub(in crate::command) bad: u64,
    pub(in crate::command) excluded: u64,
    pub(in crate::command) ratio: Option<f64>,
    pub(in crate::command) attained: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
pub(in crate::command) struct Burn {
    pub(in crate::command) window: String,
    pub(in crate::command) rate: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(in crate::command) struct Cause {
    pub(in crate::command) at: Timestamp,
    pub(in crate::command) sentence: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(in crate::command) struct Alert {
    pub(in crate::command) severity: String,
    pub(in crate::command) firing: bool,
    /// The long window; empty if the proxy does not send it.
    #[serde(default)]
    pub(in crate::command) long: String,
    #[serde(default)]
    pub(in crate::command) observed_seconds: f64,
}

impl Alert {
    /// Formats the severity and the long window, with the observed time if that is shorter.
    pub(in crate::command) fn in_words(&self) -> String {
        let Alert {
            severity,
            long,
            observed_seconds: seen,
            ..
        } = self;
        if long.is_empty() {
            return severity.clone();
        }
        let whole = humantime::parse_duration(long).unwrap_or_default();
        if *seen < whole.as_secs_f64() {
            format!("{severity} over {} of {long}", rough(seen.max(1.0)))
        } else {
            format!("{severity} over {long}")
        }
    }
}

const HEADS: [&str; 9] = [
    "SLO",
    "PROMISE",
    "OBJECTIVE",
    "GOOD",
    "BAD",
    "RATIO",
    "BUDGET LEFT",
    "SPENT IN",
    "BURN",
];

/// The last column lists every window.
pub(super) fn table(response: &SlosBody) -> String {
    let rows = &response.slos;
    let mut lines = vec![HEADS.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(cells));
    if rows.iter().any(|row| row.pod.is_some()) {
        let pods = rows.iter().map(|row| pod(row.pod.as_ref()));
        let pods = std::iter::once("POD".to_owned()).chain(pods);
        for (line, pod) in lines.iter_mut().zip(pods) {
            line.insert(1, pod);
        }
    }
    let mut text = aligned(&lines);
    for row in rows {
        let Some(cause) = &row.cause else {
            continue;
        };
        let (name, at) = (printable(&row.name), cause.at);
        // Writing to a string never fails.
        let _ = writeln!(text, "{name} at {at}: {}", printable(&cause.sentence));
    }
    if rows.is_empty() {
        // Writing to a string never fails.
        let _ = writeln!(text, "({})", response.nothing());
    }
    text
}

pub(in crate::command) fn aligned(lines: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..lines.first().map_or(0, Vec::len))
        .map(|at| {
            lines
                .iter()
                .map(|line| line[at].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| {
            let pad = width - cell.chars().count();
            format!("{cell}{}", " ".repeat(pad))
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        // Writing to a string never fails.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn pod(of: Option<&PodName>) -> String {
    let parts = of
        .into_iter()
        .flat_map(|of| [&of.cluster, &of.namespace, &of.name]);
    let parts: Vec<_> = parts.flatten().map(|part| printable(part)).collect();
    parts.join("/")
}

fn cells(row: &Row) -> Vec<String> {
    let burn = row.burn.iter().map(|burn| {
        let rate = burn
            .rate
            .map_or("∞".to_owned(), |rate| format!("{rate:.2}"));
        format!("{} {rate}", burn.window)
    });
    let firing = row.alerts.iter().find(|alert| alert.firing);
    let firing = firing.map_or(String::new(), |alert| {
        format!(
            " [{}]",
            alert
                .in_words()
                .replacen(&alert.severity, &alert.severity.to_uppercase(), 1)
        )
    });
    vec![
        printable(&row.name).into_owned(),
        printable(&row.promise).into_owned(),
        format!("{} over {}", percent(row.objective), row.window),
        format!("{:.0}", row.good),
        format!("{:.0}", row.bad),
        row.ratio.map_or("-".to_owned(), percent),
        budget(row.budget_remaining),
        row.exhausted_in_seconds.map_or("never".to_owned(), rough),
        burn.collect::<Vec<_>>().join(", ") + &firing,
    ]
}

fn budget(left: f64) -> String {
    let percent = left * 100.0;
    let digits = usize::from(percent.abs() < 100.0);
    format!("{percent:.digits$}%")
}

pub(super) fn percent(share: f64) -> String {
    format!("{}%", (share * 1e6).round() / 1e4)
}

/// Formats a duration in its two largest units.
pub(in crate::command) fn rough(seconds: f64) -> String {
    if seconds < 1.0 {
        return "spent".to_owned();
    }
    let text = span_text(Duration::from_secs(seconds as u64));
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::statement;
    use super::*;

    #[test]
    fn the_table_is_aligned_and_says_what_fires() {
        let row = |name: &str, left, firing| Row {
            name: name.to_owned(),
            promise: "ttft ≤ 0.5 s".to_owned(),
            objective: 0.99,
            window: "30d".to_owned(),
            good: 980.0,
            bad: 20.0,
            ratio: Some(0.98),
            budget_remaining: left,
            exhausted_in_seconds: Some(200_000.0),
            burn: vec![
                Burn {
                    window: "1h".to_owned(),
                    rate: Some(2.0),
                },
                Burn {
                    window: "30d".to_owned(),
                    rate: None,
                },
            ],
            alerts: vec![Alert {
                severity: "page".to_owned(),
                firing,
                long: "1h".to_owned(),
                observed_seconds: 90.0,
            }],
            cause: firing.then(|| Cause {
                at: "2026-11-25T22:05:00Z".parse().expect("a timestamp"),
                sentence: "92 % of bad calls are upstream vllm-a.".to_owned(),
            }),
            event: "request".to_owned(),
            months: Vec::new(),
            pod: None,
        };
        let mut response = SlosBody {
            slos: vec![row("a", -1.0, true), row("longer-name", 0.12345, false)],
            source: None,
        };
        let text = table(&response);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("99% over 30d"), "{text}");
        assert!(
            lines[1].contains("-100%")
                && lines[1].ends_with("1h 2.00, 30d ∞ [PAGE over 1m 30s of 1h]"),
            "{text}"
        );
        assert!(
            lines[2].contains("12.3%") && lines[2].contains("2days 7h"),
            "{text}"
        );
        assert_eq!(
            lines[3],
            "a at 2026-11-25T22:05:00Z: 92 % of bad calls are upstream vllm-a."
        );
        assert_eq!(lines.len(), 4, "{text}");
        let at = |line: &str| line.chars().position(|c| c == 't' || c == 'P');
        assert_eq!(at(lines[0]), at(lines[1]), "{text}");
        assert!(statement(&response, "2026-11", "here").is_ok());

        response.source = Some(ObjectiveSource::Pods);
        response.slos[1].pod = Some(PodName {
            cluster: None,
            namespace: Some("llm".to_owned()),
            name: Some("gauge-0".to_owned()),
        });
        let text = table(&response);
        let of = |line: usize| text.lines().nth(line).unwrap_or_default().to_owned();
        assert!(
            of(0).starts_with("SLO          POD          PROMISE"),
            "{text}"
        );
        assert!(
            of(2).starts_with("longer-name  llm/gauge-0  ttft"),
            "{text}"
        );
        let refused = statement(&response, "2026-11", "here").expect_err("a fleet");
        assert!(refused.to_string().contains("ask a pod"), "{refused}");
    }

    #[test]
    fn a_fleet_without_objectives_says_what_is_missing() {
        for (source, says) in [
            (None, "no [[slo]] is configured"),
            (Some(ObjectiveSource::None), "name the pods with --pods"),
            (
                Some(ObjectiveSource::Prometheus),
                "`tokengauge print rules`",
            ),
        ] {
            let slos = Vec::new();
            let text = table(&SlosBody { slos, source });
            assert!(text.contains(says), "{text}");
        }
    }
}
