"""/metrics in a real Prometheus: valid, complete, and equal to the call log."""

import collections

import pytest

import table
from prometheus import checked, finite

# These should be zero. The test checks that they exist.
MAY_BE_ZERO = {
    "tokengauge_sink_waiting_records",
    "tokengauge_sink_lag_seconds",
    "tokengauge_sink_failures_total",
    "tokengauge_sink_lost_records_total",
    "tokengauge_meter_lagged_frames_total",
    "tokengauge_meter_skipped_bodies_total",
    "tokengauge_meter_unknown_usage_total",
    "tokengauge_meter_unsearched_texts_total",
    "tokengauge_meter_dropped_calls_total",
    "tokengauge_meter_panics_total",
    "tokengauge_analysis_skipped_calls_total",
    "tokengauge_analysis_forgotten_total",
    "tokengauge_prompt_cache_potential_ratio",
    "tokengauge_observer_panics_total",
    "tokengauge_rate_limited_total",
    "tokengauge_repeating_calls_total",
    "tokengauge_repeated_tokens_total",
    "tokengauge_unparsed_calls_total",
    "tokengauge_runtime_global_queue_depth",
    "tokengauge_meter_queue_bytes",
    "tokengauge_export_failures_total",
    "tokengauge_upstream_scrape_failures_total",
    "tokengauge_budget_blocked_total",
    "tokengauge_config_fallback",
    "tokengauge_drift_failures_total",
    "tokengauge_marks_total",
    "tokengauge_marks_lost_total",
    "tokengauge_score_requests_rejected_total",
    "tokengauge_scores_lost_total",
    "tokengauge_gate_failures_total",
    "tokengauge_experiment_failures_total",
    "tokengauge_budget_shadow_blocked_total",
    "tokengauge_budget_unreadable_total",
    "tokengauge_budget_forgotten_total",
    "tokengauge_sink_in_memory_records",
    "tokengauge_agent_idle_connections_closed_total",
    "tokengauge_agent_streams_refused_total",
    "tokengauge_admin_connections",
    "tokengauge_admin_connections_closed_total",
    "tokengauge_event_listeners",
    "tokengauge_event_listeners_refused_total",
    "tokengauge_events_lost_total",
    "tokengauge_config_reloads_total",
    "tokengauge_prompt_cache_breaks_total",
    "tokengauge_prompt_cache_break_usd_total",
    "tokengauge_runaway_sessions",
    "tokengauge_runaway_sessions_found_total",
    "tokengauge_sessions_forgotten_total",
    "tokengauge_quota_refused_total",
    "tokengauge_quota_shadow_refused_total",
    "tokengauge_quota_shared_total",
    "tokengauge_upstream_pending_requests",
    "tokengauge_upstream_refused_requests_total",
    "tokengauge_upstream_resent_requests_total",
    "tokengauge_ledger_lost_records_total",
    "tokengauge_ledger_collapsed_names_total",
}

# Metrics of the injector, which has a separate address: test_injection.py checks them.
NOT_THE_PROXYS = {"tokengauge_injections_total"}

# Drift is evaluated every five minutes and learns for weeks, so tests/drift.rs checks its metrics. test_gate.py checks
# gates, tests/experiments.rs experiments, and tests/scores.rs scores.
NOT_WITHIN_MINUTES = {
    "tokengauge_scores_total",
    "tokengauge_drift_distance_ratio",
    "tokengauge_drift_series",
    "tokengauge_drift_series_left_out",
    "tokengauge_drift_evaluation_seconds",
    "tokengauge_drift_failures_total",
    "tokengauge_gate_verdict",
    "tokengauge_gate_failures_total",
    "tokengauge_experiment_difference_ratio",
    "tokengauge_experiment_difference_lower_ratio",
    "tokengauge_experiment_difference_upper_ratio",
    "tokengauge_experiment_units",
    "tokengauge_experiment_withheld",
    "tokengauge_experiment_failures_total",
    # test_quota_store.py checks these.
    "tokengauge_quota_remaining",
    "tokengauge_quota_store_requests_total",
    "tokengauge_quota_store_lease_age_seconds",
    "tokengauge_quota_store_fallback",
    "tokengauge_quota_store_fallback_decisions_total",
    "tokengauge_quota_store_away_seconds_total",
    "tokengauge_quota_store_untracked_total",
    "tokengauge_quota_store_alerts_total",
    "tokengauge_quota_store_elected_alerts",
    # tests/fleet.rs checks these.
    "tokengauge_fleet_pods",
    "tokengauge_fleet_pod_up",
    "tokengauge_fleet_events_dropped_total",
    "tokengauge_fleet_store_up",
    "tokengauge_fleet_store_age_seconds",
    "tokengauge_fleet_calls_total",
    "tokengauge_fleet_store_failures_total",
}


def test_promtool_has_nothing_to_say_about_the_metrics(observed):
    assert checked("promtool", "check", "metrics", text=observed.gauge.scrape("/metrics")) == ""


def test_every_metric_of_the_table_has_data(observed, tokengauge):
    metrics = table.metrics(tokengauge)
    for name, metric in metrics.items():
        if name in NOT_THE_PROXYS | NOT_WITHIN_MINUTES:
            continue
        selector = f'{name}_count{{job="tokengauge"}}' if metric["kind"] == "histogram" else f'{name}{{job="tokengauge"}}'
        values = [value for _, points in observed.prometheus.query_range(selector) for value in finite(points)]
        assert values, f"{name} has no samples"
        assert name in MAY_BE_ZERO or max(values) > 0, f"{name} never moved"


def test_the_sink_stores_every_call_of_the_log(observed):
    logged = {record["id"] for record in observed.gauge.logged()}
    stored = {row["id"] for row in observed.store.rows}
    assert len(logged) > 100 and stored == logged
    assert observed.store.statements[1].startswith("CREATE TABLE")


@pytest.mark.parametrize("route", ["sdk", "sdk-engine"])
def test_prometheus_sees_the_calls_and_the_tokens_that_the_sdks_saw(observed, route):
    seen = observed.sdks[route]
    calls = f'sum(tokengauge_requests_total{{route="{route}",outcome="complete"}})'
    assert observed.prometheus.value(calls, observed.prometheus.end) == len(seen)
    output = f'sum(tokengauge_tokens_total{{route="{route}",direction="output",source="reported"}})'
    assert observed.prometheus.value(output, observed.prometheus.end) == sum(one.reported_output for one in seen)


def test_every_series_has_the_labels_of_the_table_and_no_others(observed, tokengauge):
    known = {name: metric for metric in table.metrics(tokengauge).values() for name in table.exposed(metric)}
    own_of_prometheus = ("up", "scrape_", "ALERTS")
    for series in observed.prometheus.series('{job="tokengauge"}'):
        name = series.pop("__name__")
        if name.startswith(own_of_prometheus):
            continue
        labels = set(series) - table.SCRAPE_LABELS - ({"le"} if name.endswith("_bucket") else set())
        assert labels == set(known[name]["labels"]), f"{name}{series}"


def test_every_histogram_has_the_buckets_of_the_table(observed, tokengauge):
    for name, metric in table.metrics(tokengauge).items():
        if metric["kind"] == "histogram":
            bounds = {float(bound) for bound in observed.prometheus.label_values("le", f"{name}_bucket")}
            # Objectives add their thresholds as bounds.
            assert bounds - {0.25, 40.0} == {*metric["buckets"], float("inf")} - {0.25, 40.0}, name


def test_the_counters_are_the_sums_of_the_call_log(observed):
    logged = observed.gauge.logged()
    at = observed.prometheus.end
    outcomes = collections.Counter((record["upstream"], record["outcome"]) for record in logged)
    counted = observed.prometheus.query("sum by (upstream, outcome) (tokengauge_requests_total) > 0", at)
    assert {(labels["upstream"], labels["outcome"]): int(value) for labels, value in counted} == outcomes
    output = sum(record["tokens"]["normalised"]["output"] or 0 for record in logged if record["streamed"])
    counted = observed.prometheus.value('sum(tokengauge_tokens_total{direction="output",source="counted"})', at)
    assert counted >= output > 10_000
    stalls = sum(record["stalls"] for record in logged)
    assert observed.prometheus.value("sum(tokengauge_stalls_total)", at) == stalls > 0


@pytest.mark.parametrize("outcome", ["complete", "client_cancelled", "upstream_reset", "error_event", "http_error", "timeout", "unreachable"])
def test_the_traffic_ends_in_every_way_that_an_upstream_or_an_agent_can_end_it(observed, outcome):
    assert observed.prometheus.value(f'sum(tokengauge_requests_total{{outcome="{outcome}"}})', observed.prometheus.end) > 0


def test_models_beyond_the_bound_are_one_series(observed):
    models = observed.prometheus.label_values("model", "tokengauge_requests_total")
    assert {"gpt-sim", "tiny", "other"} <= set(models)
    assert len(models) <= 16 + 2


def test_exemplars_lead_to_traces_that_agents_began(observed):
    for name in ("time_to_first_token_seconds", "output_tokens_per_second"):
        exemplars = observed.prometheus.exemplars(f"tokengauge_{name}_bucket")
        traces = {exemplar["labels"]["trace_id"] for exemplar in exemplars}
        assert len(traces) > 5, f"{name}: {exemplars[:3]}"
        assert traces <= observed.traces, "an exemplar names a trace that nobody sent"


def test_the_upstreams_own_view_matches_the_engines(observed):
    def largest(metric, upstream):
        found = observed.prometheus.query_range(f'tokengauge_upstream_{metric}{{upstream="{upstream}"}}')
        return max((value for _, points in found for value in finite(points)), default=None)

    assert largest("up", "engine") == 1, "a real llama.cpp server"
    assert largest("running", "engine") >= 1
    assert largest("queue_depth", "engine") is not None
    assert largest("kv_cache_ratio", "engine") is None, "current llama.cpp does not tell it"
    assert largest("up", "simulator") == 1, "as vLLM tells it"
    assert 0.4 <= largest("kv_cache_ratio", "simulator") <= 0.6
    for what, mean in (("queue", 0.03), ("prefill", 0.05)):
        seconds, requests = (largest(f"{what}_{unit}_total", "simulator") for unit in ("seconds", "requests"))
        assert seconds / requests == pytest.approx(mean, rel=0.01)
    assert largest("up", "gone") is None, "nobody asked for it"


@pytest.mark.parametrize("slo, objective", [("chat-ttft", 0.9), ("agents-speed", 0.8), ("simulator-up", 0.95)])
def test_the_budget_of_the_rules_matches_the_process_within_two_scrapes(observed, slo, objective):
    def value(expression):
        return observed.prometheus.value(expression.replace("SLO", f'slo="{slo}"'), observed.prometheus.end)

    counted = f'sum(tokengauge_slo_events_total{{slo="{slo}", verdict=~"good|bad"}})'
    [(_, points)] = observed.prometheus.query_range(counted)
    values = finite(points)
    events, one_scrape = values[-1], max(later - sooner for sooner, later in zip(values, values[1:]))
    assert events > 100
    # The rules can miss a scrape that takes longer than they wait for, and two on a busy machine.
    missed = 2 * one_scrape
    assert value("sum(sum_over_time(slo:events:increase5s{SLO}[1d]))") == pytest.approx(events, abs=missed)
    own = value("tokengauge_slo_error_budget_remaining_ratio{SLO}")
    assert own < 1, "something was bad"
    assert value("slo:error_budget:remaining_ratio{SLO}") == pytest.approx(own, abs=missed / events / (1 - objective))
