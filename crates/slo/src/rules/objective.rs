//! The rules of one objective: error ratios by window, the budget, and the alerts.

use super::EVENTS_METRIC;
use super::{BURN, Group, Rule, RuleKind, RulesContext};
use crate::samples::phases;
use crate::{Objective, Severity, Tier, label, tiers};
use std::collections::BTreeSet;
use std::time::Duration;

/// Longer windows are summed from recorded increases. Otherwise Prometheus would read every sample
/// of the counters at each evaluation.
const LONGEST_DIRECT: Duration = Duration::from_secs(6 * 3600);
const DEFAULT_RETENTION: Duration = Duration::from_secs(15 * 24 * 3600);
/// A shorter window has too few samples if scrapes are a minute apart.
const FEW_SCRAPES: Duration = Duration::from_secs(240);
/// Refers to the cause instead of naming it, because the cause changes while an alert fires.
const CAUSE: &str = "Only a proxy knows the cause. Choose the proxy that burns fastest in `Burn \
    rate by proxy` of the dashboard Service levels. `tokengauge slo status --admin ADDRESS` and \
    its live page say what the bad calls share, what changed and when.";
/// How long an objective may have no series before an alert fires.
const ABSENT_FOR: Duration = Duration::from_secs(600);

pub(super) fn groups(objective: &Objective, place: &RulesContext) -> [Group; 2] {
    let subject = Subject {
        objective,
        place,
        tiers: tiers(objective.window, objective.objective),
    };
    [subject.increases(), subject.rest()]
}

struct Subject<'a> {
    objective: &'a Objective,
    place: &'a RulesContext,
    tiers: Vec<Tier>,
}

impl Subject<'_> {
    /// Records every event once: the interval equals the length of the increases, so that their sum
    /// over a longer window counts nothing twice.
    fn increases(&self) -> Group {
        Group {
            name: format!("tokengauge-slo-{}-increases", self.objective.name),
            notes: Vec::new(),
            interval: Some(self.place.resolution),
            rules: vec![
                self.record(self.recorded("events"), self.exactly(ALL), None),
                self.record(self.recorded("events_bad"), self.exactly(BAD), None),
            ],
        }
    }

    /// `increase()` extrapolates beyond the samples in its range. Therefore the exact difference is
    /// used where it exists. It does not exist for a proxy that is new, gone or restarted; for
    /// these the estimate of `increase()` is used.
    ///
    /// Prometheus stores a scrape when the scrape ends, with the time of its start, and remote
    /// storage stores it later still. An evaluation would miss a scrape in progress, and the next
    /// evaluation would regard it as too old. Both ends of the range are therefore shifted back by
    /// a fifth of its length, when every scrape has been stored.
    fn exactly(&self, verdicts: &str) -> String {
        let counter = format!("{}{}", EVENTS_METRIC, self.selector(verdicts));
        let every = self.place.resolution;
        let stored = Duration::from_secs(every.as_secs() / 5);
        let (end, start) = (label(stored), label(every + stored));
        let every = label(every);
        let by = self.by();
        format!(
            "sum by ({by}) (\n  {counter} offset {end} - {counter} offset {start} >= 0\n  \
             or increase({counter}[{every}] offset {end})\n)"
        )
    }

    /// The rules that use the increases, in one group, so that alerts are evaluated last.
    fn rest(&self) -> Group {
        let mut rules = self.recordings();
        let burns = [Severity::Page, Severity::Ticket].into_iter();
        rules.extend(burns.filter_map(|severity| self.burn(severity)));
        rules.push(self.absent());
        Group {
            name: format!("tokengauge-slo-{}", self.objective.name),
            notes: self.notes(),
            interval: None,
            rules,
        }
    }

    fn recordings(&self) -> Vec<Rule> {
        let windows = self.tiers.iter().flat_map(|tier| [tier.short, tier.long]);
        let windows: BTreeSet<Duration> = windows.collect();
        let errors = windows.into_iter().map(|window| self.error(window));
        let promised = format!("vector({})", self.objective.objective);
        let kept = Some(self.objective.window);
        let more = [
            ("slo:objective:ratio", promised, None),
            ("slo:error_budget:remaining_ratio", self.remaining(), kept),
            ("slo:error_budget:exhausted_seconds", self.exhausted(), None),
        ]
        .map(|(name, expr, window)| self.record(name.to_owned(), expr, window));
        errors.chain(more).collect()
    }

    /// The share of bad events over a window; no sample without events.
    fn error(&self, window: Duration) -> Rule {
        let expr = format!(
            "{}\n/\n({} > 0)",
            self.count(BAD, window),
            self.count(ALL, window)
        );
        let name = format!("slo:sli_error:ratio_rate{}", label(window));
        self.record(name, expr, Some(window))
    }

    /// Computed from sums of events, never from averaged ratios. Without events nothing is spent.
    /// With an objective of 1 the first bad event spends everything.
    fn remaining(&self) -> String {
        let window = self.objective.window;
        let (all, bad) = (
            self.summed("events", window),
            self.summed("events_bad", window),
        );
        if self.objective.budget() <= 0.0 {
            return format!("{bad} == bool 0");
        }
        let budget = rounded(self.objective.budget());
        format!("1 - (\n  {bad} / ({all} > 0)\n  or {bad} * 0\n) / {budget}")
    }

    /// Seconds until the budget is spent at the burn rate of the shortest long window; no sample
    /// while nothing is spent.
    fn exhausted(&self) -> String {
        let pace = self.tiers.iter().map(|tier| tier.long).min();
        let pace = label(pace.unwrap_or(self.objective.window));
        let left = self.objective.window.as_secs_f64() * self.objective.budget();
        let selector = self.selector("");
        let by = self.by();
        format!(
            "clamp_min(max by ({by}) (slo:error_budget:remaining_ratio{selector}), 0) * {}\n\
             / (max by ({by}) (slo:sli_error:ratio_rate{pace}{selector}) > 0)",
            rounded(left)
        )
    }

    /// One alert for all tiers of a severity, because several alerts would be redundant.
    fn burn(&self, severity: Severity) -> Option<Rule> {
        let tiers = self.tiers.iter().filter(|tier| tier.severity == severity);
        let tiers: Vec<&Tier> = tiers.collect();
        if tiers.is_empty() {
            return None;
        }
        let exprs: Vec<String> = tiers.iter().map(|tier| self.burns(tier)).collect();
        let name = &self.objective.name;
        let limits: Vec<String> = tiers.iter().map(|tier| in_words(tier)).collect();
        let description = format!(
            "{{{{ $value | humanizePercentage }}}} of the events were bad in the long window that \
             fired. The objective is {} for {} of them over {}. The error budget burned at more \
             than {}.{}",
            self.objective.judgement.sli.in_words(),
            percent(self.objective.objective),
            label(self.objective.window),
            limits.join(", or at more than "),
            self.about()
        );
        let labels = self.place.by.iter();
        let of: String = labels
            .map(|label| format!(", {label} {{{{ $labels.{label} }}}}"))
            .collect();
        let summary = format!("The error budget of {name}{of} burns too fast");
        let mut alert = self.alert(
            BURN,
            (exprs.join("\nor\n"), Duration::ZERO),
            severity,
            (summary, description),
        );
        if phases(self.objective.judgement.sli).is_some() {
            alert.annotations.push(("cause", CAUSE.to_owned()));
        }
        Some(alert)
    }

    /// The configured description, escaped because annotations are templates.
    fn about(&self) -> String {
        let about = self.objective.description.as_deref();
        about.map_or(String::new(), |about| {
            format!(" {}", about.replace("{{", "{ {"))
        })
    }

    /// The burn rate is above the factor in both windows, and there are enough events.
    fn burns(&self, tier: &Tier) -> String {
        let over = rounded(tier.factor * self.objective.budget());
        let by = self.by();
        let ratio = |window| {
            let selector = self.selector("");
            format!(
                "max by ({by}) (slo:sli_error:ratio_rate{}{selector}) > {over}",
                label(window)
            )
        };
        let events = self.count(ALL, tier.long);
        format!(
            "(\n  {}\n  and {}\n  and {events} >= {}\n)",
            ratio(tier.long),
            ratio(tier.short),
            self.objective.min_events
        )
    }

    fn absent(&self) -> Rule {
        let name = &self.objective.name;
        let description = format!(
            "No proxy that Prometheus scrapes counts events of the objective {name}. Either no \
             proxy is scraped, or their configuration lacks this objective. The objective is not \
             evaluated until this is fixed."
        );
        self.alert(
            "SloDataAbsent",
            (
                format!("absent({}{})", EVENTS_METRIC, self.selector("")),
                ABSENT_FOR,
            ),
            Severity::Ticket,
            (
                format!("Prometheus has no data for the objective {name}"),
                description,
            ),
        )
    }

    fn alert(
        &self,
        name: &'static str,
        (expr, held): (String, Duration),
        severity: Severity,
        (summary, description): (String, String),
    ) -> Rule {
        let objective = self.objective;
        let runbook = objective.runbook_url.clone();
        let dashboard = objective.dashboard_url.clone().unwrap_or_else(|| {
            let path = "d/tokengauge-service-levels?var-slo=";
            format!("{}/{path}{}", self.place.grafana, objective.name)
        });
        Rule {
            kind: RuleKind::Alert(name, held),
            expr,
            labels: vec![
                ("severity", severity.as_str().to_owned()),
                ("slo", objective.name.to_string()),
            ],
            annotations: vec![
                ("summary", summary),
                ("description", description),
                (
                    "runbook_url",
                    runbook.unwrap_or_else(|| self.place.runbook(name)),
                ),
                ("dashboard", dashboard),
            ],
        }
    }

    fn record(&self, name: String, expr: String, window: Option<Duration>) -> Rule {
        let mut labels = vec![("slo", self.objective.name.to_string())];
        labels.extend(window.map(|window| ("window", label(window))));
        Rule {
            kind: RuleKind::Record(name),
            expr,
            labels,
            annotations: Vec::new(),
        }
    }

    /// Number of events of all proxies over a window.
    fn count(&self, verdicts: &str, window: Duration) -> String {
        if window <= LONGEST_DIRECT {
            return self.increase(verdicts, window);
        }
        let name = if verdicts == ALL {
            "events"
        } else {
            "events_bad"
        };
        self.summed(name, window)
    }

    fn increase(&self, verdicts: &str, window: Duration) -> String {
        let (name, window) = (EVENTS_METRIC, label(window));
        format!(
            "sum by ({}) (increase({name}{}[{window}]))",
            self.by(),
            self.selector(verdicts)
        )
    }

    fn summed(&self, name: &str, window: Duration) -> String {
        let (name, window) = (self.recorded(name), label(window));
        format!(
            "sum by ({}) (sum_over_time({name}{}[{window}]))",
            self.by(),
            self.selector("")
        )
    }

    fn by(&self) -> String {
        self.place.labels("slo")
    }

    fn recorded(&self, name: &str) -> String {
        format!("slo:{name}:increase{}", label(self.place.resolution))
    }

    fn selector(&self, more: &str) -> String {
        format!("{{slo=\"{}\"{more}}}", self.objective.name)
    }

    fn notes(&self) -> Vec<String> {
        let objective = self.objective;
        let mut notes = Vec::new();
        if objective.window > DEFAULT_RETENTION {
            notes.push(format!(
                "{} of history are needed; Prometheus keeps 15d unless \
                 --storage.tsdb.retention.time is longer",
                label(objective.window)
            ));
        }
        let shortest = self.tiers.iter().map(|tier| tier.short).min();
        if let Some(shortest) = shortest.filter(|shortest| *shortest < FEW_SCRAPES) {
            let most = shortest.as_secs() / 4;
            notes.push(format!(
                "The shortest window is {}: scrape every {most}s or more often.",
                label(shortest)
            ));
        }
        for tier in &self.tiers {
            if let Some(meant) = tier.unreachable {
                notes.push(format!(
                    "A burn rate of {} over {} is impossible: with an objective of {} the maximum \
                     is {}. {} is used instead.",
                    rounded(meant),
                    label(tier.long),
                    percent(objective.objective),
                    rounded(objective.max_burn()),
                    rounded(tier.factor)
                ));
            }
        }
        notes
    }
}

const ALL: &str = ", verdict=~\"good|bad\"";
const BAD: &str = ", verdict=\"bad\"";

fn in_words(tier: &Tier) -> String {
    format!(
        "{}× the allowed rate in the last {} and in the last {}",
        rounded(tier.factor),
        label(tier.long),
        label(tier.short)
    )
}

fn percent(share: f64) -> String {
    format!("{} %", rounded(share * 100.0))
}

/// Removes binary rounding errors: 1 − 0.99 is 0.01.
fn rounded(value: f64) -> f64 {
    format!("{value:.9e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_fractions_read_as_meant() {
        assert_eq!(rounded(1.0 - 0.99).to_string(), "0.01");
        assert_eq!(rounded(14.4 * (1.0 - 0.999)).to_string(), "0.0144");
        assert_eq!(percent(0.9995), "99.95 %");
    }
}
