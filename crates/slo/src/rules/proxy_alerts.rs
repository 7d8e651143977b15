//! Alerts on the proxy: it is down, or measurements are lost.

use super::{Group, Rule, RuleKind, RulesContext};
use crate::Severity;
use std::time::Duration;

/// The labels that identify a proxy. Prometheus ignores labels that a target does not have.
const PROXY: &str = "cluster, namespace, pod, instance";
/// The labels of the proxies of a Service, which fail together.
const SERVICE: &str = "cluster, namespace, service";
/// The labels of proxies without a Service, such as sidecars.
const SIDECARS: &str = "cluster";
/// Names a proxy in an annotation: its pod if it has one, otherwise its address.
const NAME: &str =
    "{{ with $labels.namespace }}{{ . }}/{{ end }}{{ or $labels.pod $labels.instance }}";

/// How soon somebody must act.
enum Urgency {
    Page,
    Ticket,
    /// A page if the label has the value, otherwise a ticket.
    PageIf(&'static str, &'static str),
}

/// An alert on the proxy. `JOB` is a placeholder for the job's name. In the expression `PROXY`,
/// `SERVICE`, `SIDECARS`, `BUDGET` and `DRIFT` are placeholders for labels. In the summary `NAME` is
/// a placeholder for the proxy's name.
struct ProxyAlert {
    alert: &'static str,
    severity: Urgency,
    /// The `for` duration in minutes.
    held: u64,
    expr: &'static str,
    summary: &'static str,
    description: &'static str,
}

use Urgency::{Page, PageIf, Ticket};

const ALERTS: &[ProxyAlert] = &[
    ProxyAlert {
        alert: "TokengaugeDown",
        severity: Page,
        held: 2,
        expr: "count by (SERVICE) (up{job=\"JOB\", service!=\"\"} == 0)\n  \
            / count by (SERVICE) (up{job=\"JOB\", service!=\"\"}) >= 0.5\n\
            or count by (SIDECARS) (up{job=\"JOB\", service=\"\"} == 0)\n  \
            / count by (SIDECARS) (up{job=\"JOB\", service=\"\"}) >= 0.5",
        summary: "{{ $value | humanizePercentage }} of the tokengauge proxies \
            {{ with $labels.service }}of the Service {{ $labels.namespace }}/{{ . }} {{ end }}\
            cannot be scraped{{ with $labels.cluster }} in {{ . }}{{ end }}",
        description: "For 2 minutes, Prometheus has not been able to scrape at least half of the \
            proxies of one Service, or of the proxies without a Service, such as sidecars. If the \
            processes are gone, the traffic through them fails. The query \
            `up{job=\"JOB\"} == 0` lists them.",
    },
    ProxyAlert {
        alert: "TokengaugeProxyDown",
        severity: Ticket,
        held: 15,
        expr: "up{job=\"JOB\"} == 0",
        summary: "tokengauge on NAME cannot be scraped",
        description: "Prometheus has not been able to scrape {{ $labels.instance }} for 15 minutes. If the process \
            is gone, the traffic through it fails.",
    },
    ProxyAlert {
        alert: "TokengaugeAbsent",
        severity: Page,
        held: 5,
        expr: "absent(up{job=\"JOB\"})",
        summary: "Prometheus has no tokengauge target",
        description: "There is no target with the job JOB: every proxy is gone, or the scrape configuration or the \
            job's name has changed.",
    },
    ProxyAlert {
        alert: "TokengaugeMeasuringLags",
        severity: Ticket,
        held: 10,
        expr: "sum by (PROXY) (increase(tokengauge_meter_lagged_frames_total[10m]))\n  \
            + sum by (PROXY) (increase(tokengauge_meter_skipped_bodies_total[10m])) > 0",
        summary: "tokengauge on NAME forwards traffic that it does not measure",
        description: "{{ $value | humanize }} chunks or bodies were not measured in the last 10 \
            minutes. Traffic is not affected, but its figures have gaps.",
    },
    ProxyAlert {
        alert: "TokengaugeMeasuringDegraded",
        severity: Ticket,
        held: 5,
        expr: "label_replace(sum by (PROXY) (increase(tokengauge_ledger_lost_records_total[15m])) > 0, \
            \"lost\", \"calls in the ledger\", \"\", \"\")\n  \
            or label_replace(min by (PROXY) (tokengauge_ledger_writable) == 0, \
            \"lost\", \"the ledger\", \"\", \"\")\n  \
            or label_replace(sum by (PROXY) (increase(tokengauge_sink_lost_records_total[15m])) > 0, \
            \"lost\", \"calls in sinks\", \"\", \"\")\n  \
            or label_replace(sum by (PROXY) (increase(tokengauge_meter_dropped_calls_total[15m])) > 0, \
            \"lost\", \"calls in exporters\", \"\", \"\")\n  \
            or label_replace(sum by (PROXY) (increase(tokengauge_meter_lagged_frames_total[15m])) > 0, \
            \"lost\", \"frames\", \"\", \"\")\n  \
            or label_replace(sum by (PROXY) (increase(tokengauge_meter_skipped_bodies_total[15m])) > 0, \
            \"lost\", \"bodies\", \"\", \"\")\n  \
            or label_replace(sum by (PROXY) (increase(tokengauge_unparsed_calls_total[1h])) > 5 and \
            sum by (PROXY) (increase(tokengauge_unparsed_calls_total[1h])) \
            > 0.05 * sum by (PROXY) (increase(tokengauge_requests_total{operation_class=~\"generation|embedding\"}[1h])), \
            \"lost\", \"unparsed calls\", \"\", \"\")",
        summary: "The figures of tokengauge on NAME have gaps: {{ $labels.lost }}",
        description: "Measuring has been degraded for at least 5 minutes. Affected: \
            {{ $labels.lost }}. Traffic is not affected. /api/v1/coverage of the proxy reports how \
            many calls have a cost and a speed.",
    },
    ProxyAlert {
        alert: "TokengaugeCallsDropped",
        severity: Ticket,
        held: 0,
        expr: "sum by (PROXY) (increase(tokengauge_meter_dropped_calls_total[15m])) > 0",
        summary: "Finished calls on NAME were dropped before they were recorded",
        description: "{{ $value | humanize }} finished calls were dropped in the last 15 minutes \
            because the queue was full. They are missing in metrics, objectives, budgets, sessions, \
            the ledger, sinks and logs.",
    },
    ProxyAlert {
        alert: "TokengaugePanicked",
        severity: Ticket,
        held: 0,
        expr: "sum by (PROXY) (increase(tokengauge_meter_panics_total[15m]))\n  \
            + sum by (PROXY) (increase(tokengauge_observer_panics_total[15m])) > 0",
        summary: "tokengauge on NAME panicked while measuring",
        description: "{{ $value | humanize }} panics in the last 15 minutes. Each panic lost the \
            measurement of one call. This is a bug in tokengauge: please report it.",
    },
    ProxyAlert {
        alert: "TokengaugeExportFailing",
        severity: Ticket,
        held: 10,
        expr: "sum by (PROXY, exporter, reason) (increase(tokengauge_export_failures_total[10m])) > 0",
        summary: "The exporter {{ $labels.exporter }} of tokengauge on NAME loses data",
        description: "{{ $value | humanize }} calls, spans, data points or alert messages were not \
            delivered by {{ $labels.exporter }} in the last 10 minutes. Reason: {{ $labels.reason }}.",
    },
    ProxyAlert {
        alert: "TokengaugeLedgerLosing",
        severity: Ticket,
        held: 0,
        expr: "sum by (PROXY, reason) (increase(tokengauge_ledger_lost_records_total[15m])) > 0",
        summary: "The ledger of tokengauge on NAME loses calls",
        description: "The ledger lost {{ $value | humanize }} calls in the last 15 minutes. \
            Reason: {{ $labels.reason }}. They are missing in sessions and reports. Traffic and \
            metrics are not affected. Sinks still send these calls, from memory.",
    },
    ProxyAlert {
        alert: "TokengaugeSinkLagging",
        severity: Ticket,
        held: 5,
        expr: "max by (PROXY, sink) (tokengauge_sink_lag_seconds) > 900",
        summary: "The sink {{ $labels.sink }} of tokengauge on NAME is behind",
        description: "The oldest call that has not been delivered to the sink ended \
            {{ $value | humanizeDuration }} ago. Calls wait in the ledger until retention deletes \
            them, or in memory if there is no ledger. Traffic is not affected.",
    },
    ProxyAlert {
        alert: "TokengaugeSinkLosing",
        severity: Ticket,
        held: 0,
        expr: "sum by (PROXY, sink, reason) (increase(tokengauge_sink_lost_records_total[15m])) > 0",
        summary: "The sink {{ $labels.sink }} of tokengauge on NAME loses calls",
        description: "{{ $value | humanize }} calls of the last 15 minutes will never be delivered \
            to the sink. Reason: {{ $labels.reason }}. Traffic and metrics are not affected.",
    },
    ProxyAlert {
        alert: "TokengaugeQuotaStoreAway",
        severity: PageIf("on_error", "closed"),
        held: 2,
        expr: "max by (PROXY, on_error) (rate(tokengauge_quota_store_away_seconds_total[5m])) > 0.2",
        summary: "tokengauge on NAME decides shared limits without its quota store \
            (on_error: {{ $labels.on_error }})",
        description: "The quota store did not respond for {{ $value | humanizePercentage }} of the \
            last 5 minutes. Meanwhile `quota_store.on_error` ({{ $labels.on_error }}) decides limits \
            and blocking budgets: `closed` refuses all limited calls with 429. `[[notify]]` may send \
            each alert once per process. Calls do not wait.",
    },
    ProxyAlert {
        alert: "TokengaugeFleetStoreAway",
        severity: Ticket,
        held: 10,
        expr: "max by (PROXY) (tokengauge_fleet_store_up) == 0",
        summary: "tokengauge fleet on NAME cannot read its warehouse",
        description: "Until the warehouse answers, the fleet has no finished calls, and its API \
            responds with 503 to questions about them. Streams in flight and objectives stay. \
            /api/v1/pods of the fleet reports the reason. Proxies are not affected.",
    },
    ProxyAlert {
        alert: "TokengaugeConfigurationRefused",
        severity: Ticket,
        held: 5,
        expr: "min by (PROXY) (tokengauge_config_last_reload_successful) == 0\n  \
            unless max by (PROXY) (tokengauge_config_fallback) == 1",
        summary: "tokengauge on NAME refused its configuration",
        description: "The changed configuration is invalid, or changes keys that need a restart. \
            The previous configuration remains active and traffic continues. If the change is \
            invalid, a gateway would not start again, and an injected sidecar would use its fallback.",
    },
    ProxyAlert {
        alert: "TokengaugeFallbackInUse",
        severity: PageIf("calls", "refused"),
        held: 5,
        expr: "max by (PROXY, calls) (tokengauge_config_fallback) == 1",
        summary: "The sidecar on NAME has no valid configuration; its calls are {{ $labels.calls }}",
        description: "The sidecar's configuration was missing or refused at startup, so the \
            sidecar uses the fallback from its injection. \
            {{ if eq $labels.calls \"refused\" }}All calls get 503.{{ else }}\
            Calls pass without objectives, quotas or budgets.{{ end }}",
    },
    ProxyAlert {
        alert: "TokengaugeBudgetSpent",
        severity: Ticket,
        held: 0,
        expr: "max by (BUDGET) (tokengauge_budget_spent_ratio) >= 1",
        summary: "Budget {{ $labels.budget }} is spent",
        description: "{{ $value | humanizePercentage }} of the budget {{ $labels.budget }} is spent \
            in this period: by one name of its `per`, such as a session or user, or by all calls \
            together. If the budget blocks, these calls are refused until the period ends.",
    },
    ProxyAlert {
        alert: "TokengaugeSeriesCollapsed",
        severity: Ticket,
        held: 0,
        expr: "sum by (PROXY) (increase(tokengauge_series_collapsed_total[1h])) > 0",
        summary: "tokengauge on NAME sees more models than max_models",
        description: "{{ $value | humanize }} calls in the last hour have the model label `other` \
            because more than max_models names were seen.",
    },
    ProxyAlert {
        alert: "TokengaugeSlow",
        severity: Ticket,
        held: 10,
        expr: "(histogram_quantile(0.99, sum by (PROXY, phase) \
            (rate(tokengauge_proxy_overhead_seconds[5m]))) \
            or histogram_quantile(0.99, sum by (PROXY, phase, le) \
            (rate(tokengauge_proxy_overhead_seconds_bucket[5m])))) > 0.01",
        summary: "tokengauge on NAME adds more than 10 ms of latency",
        description: "1 % of calls waited {{ $value | humanizeDuration }} or more in the proxy, in \
            the phase `{{ $labels.phase }}`. `head` covers the heads of request and response, \
            `chunk` the slowest chunk of a call.",
    },
];

/// Alerts on the calls of agents. A separate group, because a group has at most 20 alerts.
const CALL_ALERTS: &[ProxyAlert] = &[
    ProxyAlert {
        alert: "TokengaugePromptsMissCache",
        severity: Ticket,
        held: 10,
        expr: "sum by (PROXY, cause) (increase(tokengauge_prompt_cache_breaks_total{cause=~\"prefix_changed|evicted\"}[1h])) >= 20",
        summary: "Prompts through NAME keep missing the provider's cache ({{ $labels.cause }})",
        description: "{{ $value | humanize }} turns of sessions missed the prompt cache in the last \
            hour, and input that could have been cached was billed in full. \
            {{ if eq $labels.cause \"evicted\" }}The prompts are unchanged, but the provider dropped \
            them early.{{ else }}The agent changes the beginning of its prompt.{{ end }}",
    },
    ProxyAlert {
        alert: "TokengaugeRunawaySession",
        severity: Ticket,
        held: 1,
        expr: "sum by (PROXY, reason) (tokengauge_runaway_sessions) > 0",
        summary: "{{ $value | humanize }} sessions through NAME are running away ({{ $labels.reason }})",
        description: "{{ $value | humanize }} sessions spend more than `[runaway]` allows or \
            repeat the same tool call. Reason: {{ $labels.reason }}. /api/v1/runaways of the proxy \
            lists them.",
    },
    ProxyAlert {
        alert: "TokengaugeAnswersRepeat",
        severity: Ticket,
        held: 0,
        expr: "sum by (PROXY, upstream, model) (increase(tokengauge_repeating_calls_total[1h])) >= 3\n  \
            and sum by (PROXY, upstream, model) (increase(tokengauge_repeating_calls_total[1h])) > 0.005 \
            * sum by (PROXY, upstream, model) (increase(tokengauge_requests_total{operation_class=\"generation\"}[1h]))",
        summary: "{{ $labels.model }} of {{ $labels.upstream }} repeats itself in answers through NAME",
        description: "{{ $value | humanize }} answers in the last hour repeat the same text again \
            and again. They usually end at the token limit, and every repeated token is billed. \
            `tokengauge_repeated_tokens_total` counts these tokens.",
    },
    ProxyAlert {
        alert: "TokengaugeDrift",
        severity: Ticket,
        held: 30,
        expr: "max by (DRIFT) (tokengauge_drift_series{state=\"drifted\"}) > 0",
        summary: "{{ $labels.signal }} has drifted from previous weeks ({{ $labels.drift }})",
        description: "{{ $value | humanize }} combinations of model, route and workload differ in \
            {{ $labels.signal }} from previous weeks by more than the thresholds of the [[drift]] \
            {{ $labels.drift }}. /api/v1/drift of a proxy lists the combinations, since when they \
            differ, and why.",
    },
];

pub(super) fn groups(place: &RulesContext) -> [Group; 2] {
    let group = |name: &str, alerts: &[ProxyAlert]| Group {
        name: name.to_owned(),
        notes: Vec::new(),
        interval: None,
        rules: alerts.iter().map(|own| own.rule(place)).collect(),
    };
    [
        group("tokengauge", ALERTS),
        group("tokengauge-calls", CALL_ALERTS),
    ]
}

impl ProxyAlert {
    fn rule(&self, place: &RulesContext) -> Rule {
        let filled = |text: &str| text.replace("JOB", &place.job);
        let mut annotations = vec![
            ("summary", self.summary.replace("NAME", NAME)),
            ("description", filled(self.description)),
            ("runbook_url", place.runbook(self.alert)),
        ];
        let dashboard = self.dashboard();
        annotations
            .extend(dashboard.map(|path| ("dashboard", format!("{}/d/{path}", place.grafana))));
        Rule {
            kind: RuleKind::Alert(self.alert, Duration::from_secs(60 * self.held)),
            expr: filled(self.expr)
                .replace("PROXY", &place.labels(PROXY))
                .replace("SERVICE", &place.labels(SERVICE))
                .replace("SIDECARS", &place.labels(SIDECARS))
                .replace("BUDGET", &place.labels("budget, cluster, namespace"))
                .replace("DRIFT", &place.labels("drift, signal, cluster, namespace")),
            labels: vec![("severity", self.severity.label())],
            annotations,
        }
    }

    /// The dashboard with panels for the alert, limited to the proxy that the alert is about.
    fn dashboard(&self) -> Option<String> {
        let dashboard = match self.alert {
            "TokengaugeFleetStoreAway" => return None,
            "TokengaugeQuotaStoreAway"
            | "TokengaugeBudgetSpent"
            | "TokengaugeRunawaySession"
            | "TokengaugePromptsMissCache"
            | "TokengaugeAnswersRepeat" => "tokengauge-traffic-and-cost",
            "TokengaugeDrift" => {
                "tokengauge-{{ if match \"ttft|tps\" $labels.signal }}speed{{ else }}traffic-and-cost{{ end }}"
            }
            _ => "tokengauge-proxy",
        };
        let of_proxy = if self.summary.contains("NAME") {
            "?var-instance={{ $labels.instance }}"
        } else {
            ""
        };
        Some(format!("{dashboard}{of_proxy}"))
    }
}

impl Urgency {
    /// The value of the label `severity`, which may be a template.
    fn label(&self) -> String {
        let (page, ticket) = (Severity::Page.as_str(), Severity::Ticket.as_str());
        match self {
            Page => page.to_owned(),
            Ticket => ticket.to_owned(),
            PageIf(label, value) => format!(
                "{{{{ if eq $labels.{label} \"{value}\" }}}}{page}{{{{ else }}}}{ticket}{{{{ end }}}}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alert_has_a_runbook() {
        let runbooks = include_str!("../../../../docs/runbooks.md");
        let others = [super::super::BURN, "SloDataAbsent"];
        let all = ALERTS.iter().chain(CALL_ALERTS);
        for name in all.map(|own| own.alert).chain(others) {
            assert!(runbooks.contains(&format!("\n## {name}\n")), "{name}");
        }
    }
}
