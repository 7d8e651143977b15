"""The Prometheus rules: Prometheus' own tools accept them, and they fire only when they should."""

import pathlib
import re
import subprocess
import sys
import time

import pytest
import yaml

import table
from prometheus import SCRAPE_SECONDS, checked, exporter, prometheus

HERE = pathlib.Path(__file__).parent / "rules"
sys.path.insert(0, str(HERE))

from cases import DAY, EVENTS, check, counter, events, firing  # noqa: E402

OBJECTIVES = HERE / "objectives.toml"
# Metrics of Prometheus itself.
FOREIGN = {"up"}
# A severity that depends on a label of the series.
PAGE_IF = re.compile(r'\{\{ if eq \$labels\.\w+ "\w+" \}\}page\{\{ else \}\}ticket\{\{ end \}\}')
PAGE = {"severity": "page"}
TICKET = {"severity": "ticket"}


def written(tokengauge, *options):
    command = [tokengauge, "print", "rules", "--config", OBJECTIVES, *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def rules(tokengauge, tmp_path_factory):
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    file.write_text(written(tokengauge))
    return file


# Alerts on the proxy are the same for every configuration; test_chart.py compares them with the chart's file.
PROXY_ALERTS = re.compile(r"^( *)- name: tokengauge(?:-calls)?\n(?:\1  .*\n|\n)+", re.MULTILINE)


@pytest.mark.parametrize("form", ["file", "operator", "alertmanager"])
def test_the_rules_of_objectives_are_those_of_the_golden_file(tokengauge, form):
    rules, removed = PROXY_ALERTS.subn("", written(tokengauge, "--format", form))
    assert removed == (0 if form == "alertmanager" else 2)
    assert rules == (HERE / f"{form}.yaml").read_text()


def test_promtool_accepts_the_rules(rules):
    assert "SUCCESS" in checked("promtool", "check", "rules", rules)


def test_the_default_configuration_has_rules_too(tokengauge, tmp_path):
    command = [tokengauge, "print", "rules", "--config", OBJECTIVES.parent.parent.parent.parent / "proxy-config.toml"]
    file = tmp_path / "rules.yaml"
    file.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert "SUCCESS" in checked("promtool", "check", "rules", file)


def test_the_operators_form_holds_the_same_rules(tokengauge):
    operator = yaml.safe_load(written(tokengauge, "--format", "operator"))
    assert (operator["apiVersion"], operator["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert operator["spec"] == yaml.safe_load(written(tokengauge))


def test_alertmanager_accepts_the_inhibition(tokengauge, tmp_path):
    file = tmp_path / "alertmanager.yaml"
    file.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n" + written(tokengauge, "--format", "alertmanager"))
    assert "1 inhibit rules" in checked("amtool", "check-config", file)


def test_a_page_silences_the_ticket_of_its_budget(tokengauge):
    inhibition = yaml.safe_load(written(tokengauge, "--format", "alertmanager", "--by", "namespace,cluster"))
    assert inhibition["inhibit_rules"][0]["equal"] == ["slo", "namespace", "cluster"]


@pytest.mark.parametrize("label", ["slo", "a-b", "1a", ""])
def test_a_label_that_no_rule_can_be_by_is_refused(tokengauge, label):
    command = [tokengauge, "print", "rules", "--config", OBJECTIVES, f"--by=namespace,{label}"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2 and "--by" in refused.stderr and not refused.stdout


def test_the_rules_use_only_metrics_and_labels_of_the_table(tokengauge, rules):
    found = [rule for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]]
    recorded = {rule["record"] for rule in found if "record" in rule}
    problems = [table.wrong(rule["expr"], table.metrics(tokengauge), FOREIGN | recorded) for rule in found]
    assert not any(problems), [problem for problem in problems if problem]


def test_every_alert_tells_what_to_do(rules):
    for group in yaml.safe_load(rules.read_text())["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                severity = rule["labels"]["severity"]
                assert severity in {"page", "ticket"} or PAGE_IF.fullmatch(severity)
                burns = rule["alert"] == "SloErrorBudgetBurn"
                cause = {"cause"} if burns and "throughput" not in rule["annotations"]["description"] else set()
                # No dashboard has panels of a fleet's warehouse.
                dashboard = {"dashboard"} if rule["alert"] != "TokengaugeFleetStoreAway" else set()
                assert rule["annotations"].keys() == {"summary", "description", "runbook_url"} | dashboard | cause
                assert "slo" in rule["labels"] or rule["alert"].startswith("Tokengauge")


def test_a_fast_burn_pages_and_the_page_ends_soon_after_recovery(rules, tmp_path):
    start, bad_for = 6 * 60, 40
    series = events("chat-ttft", [(start, 60), (bad_for, 30), (120, 60)], [(start, 0), (bad_for, 30), (120, 0)])
    page, ticket = firing("SloErrorBudgetBurn", slo="chat-ttft", **PAGE), firing("SloErrorBudgetBurn", slo="chat-ttft", **TICKET)
    # Half of the events are bad: 14.4 % of an hour after 18 minutes.
    expected = [(start, page, 0), (start + 15, page, 0), (start + 25, page, 1), (start + bad_for, page, 1)]
    # The short windows are clean again after 5 and 30 minutes, but the ticket's windows are not.
    expected += [(start + bad_for + 35, page, 0), (start + bad_for + 60, ticket, 1)]
    check(tmp_path, rules, series, expected)


def test_a_slow_burn_makes_a_ticket_and_no_page(rules, tmp_path):
    series = events("chat-ttft", [(2 * DAY, 96)], [(2 * DAY, 4)])
    page, ticket = firing("SloErrorBudgetBurn", slo="chat-ttft", **PAGE), firing("SloErrorBudgetBurn", slo="chat-ttft", **TICKET)
    check(tmp_path, rules, series, [(2 * DAY, ticket, 1)] + [(at, page, 0) for at in (60, 360, DAY, 2 * DAY)])


def test_what_the_objective_allows_fires_nothing(rules, tmp_path):
    series = events("chat-ttft", [(4 * DAY, 992)], [(4 * DAY, 8)])
    anything = firing("SloErrorBudgetBurn", slo="chat-ttft")
    check(tmp_path, rules, series, [(at, anything, 0) for at in (60, DAY, 4 * DAY)])


def test_a_tier_that_could_never_fire_is_replaced_by_one_that_does(rules, tmp_path):
    # 14.4 times a budget of one half is more than all events.
    series = events("chat-speed", [(360, 600), (90, 0)], [(360, 0), (90, 600)])
    page = firing("SloErrorBudgetBurn", slo="chat-speed", **PAGE)
    check(tmp_path, rules, series, [(360, page, 0), (400, page, 0), (425, page, 1)])
    assert "14.4 over 1h is impossible" in rules.read_text()
    (tmp_path / "tolerable").mkdir()
    series = events("chat-speed", [(360, 120)], [(360, 480)])
    check(tmp_path / "tolerable", rules, series, [(at, page, 0) for at in (60, 180, 360)])


def test_a_handful_of_events_does_not_alert(rules, tmp_path):
    # All events are bad, one in eight hours: nine in three days, while ten are required.
    few = [(480 - 1, 0), (1, 1)] * 9
    series = events("chat-ttft", [(3 * DAY, 0)], few)
    anything = firing("SloErrorBudgetBurn", slo="chat-ttft")
    check(tmp_path, rules, series, [(at, anything, 0) for at in (481, DAY, 2 * DAY, 3 * DAY)])
    (tmp_path / "enough").mkdir()
    series = events("chat-ttft", [(60, 0)], [(60, 1)])
    check(tmp_path / "enough", rules, series, [(5, anything, 0), (30, anything, 2)])


def test_without_any_series_somebody_is_told(rules, tmp_path):
    absent = firing("SloDataAbsent", slo="chat-ttft", **TICKET)
    series = events("engine-up", [(60, 1)], [(60, 0)])
    there = firing("SloDataAbsent", slo="engine-up")
    check(tmp_path, rules, series, [(5, absent, 0), (15, absent, 1), (60, there, 0)])


def test_a_budget_is_computed_from_its_events(rules, tmp_path):
    remaining = 'round(sum(slo:error_budget:remaining_ratio{{slo="{}"}}), 0.01)'.format
    series = events("chat-ttft", [(DAY, 995)], [(DAY, 5)]) | events("chat-speed", [(DAY, 0)], [(DAY, 10)])
    series |= events("never-down", [(DAY, 10)], [(720, 0), (1, 1), (719, 0)]) | events("engine-up", [(DAY, 0)], [(DAY, 0)])
    expected = [(DAY, remaining("chat-ttft"), 0.5), (DAY, remaining("chat-speed"), -1), (DAY, remaining("engine-up"), 1)]
    expected += [(700, remaining("never-down"), 1), (DAY, remaining("never-down"), 0)]
    expected += [(725, firing("SloErrorBudgetBurn", slo="never-down", **PAGE), 1)]
    check(tmp_path, rules, series, expected)


def test_a_fleets_budget_is_computed_from_all_its_events(rules, tmp_path):
    # One proxy has only bad events, but a fiftieth of all events: the mean of ratios would be a half.
    series = events("chat-ttft", [(DAY, 98)], [(DAY, 0)], "a") | events("chat-ttft", [(DAY, 0)], [(DAY, 2)], "b")
    ratio = 'round(sum(slo:sli_error:ratio_rate1h{slo="chat-ttft"}), 0.001)'
    budget = 'round(sum(slo:error_budget:remaining_ratio{slo="chat-ttft"}), 0.01)'
    check(tmp_path, rules, series, [(DAY, ratio, 0.02), (DAY, budget, -1)])


def test_no_event_is_lost_where_a_scrape_is_under_way_at_an_evaluation(tokengauge, tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text(written(tokengauge, "--resolution", "5s"))
    slos = ["chat-ttft", "chat-speed", "engine-up", "never-down"]
    lasts, each = 12, 100
    for attempt in range(3):
        summed, late = watched_sums(tmp_path / str(attempt), file, slos, lasts, each)
        # A machine that is too slow for a scrape within its second loses events.
        if not late:
            break
    assert summed == dict.fromkeys(slos, lasts * each)


def watched_sums(folder, file, slos, lasts, each):
    """Returns the rules' sums of `each` events a second for `lasts` seconds, and whether a scrape took too long."""
    begun = None

    def exposition():
        seconds = min(time.monotonic() - begun, lasts) if begun else 0
        series = [f'{EVENTS}{{slo="{slo}",verdict="good",reason="met"}} {int(seconds * each)}\n' for slo in slos]
        return f"# TYPE {EVENTS} counter\n{''.join(series)}"

    with (
        exporter(exposition, seconds=SCRAPE_SECONDS / 2) as address,
        prometheus(folder, {"tokengauge": [address]}, [file]) as watching,
    ):
        watching.wait_for("count(slo:events:increase5s)", lambda objectives: objectives == len(slos))
        begun = time.monotonic()
        time.sleep(lasts)
        watching.wait_for_recordings(5)
        summed = watching.query("sum by (slo) (sum_over_time(slo:events:increase5s[1d]))")
        missed = watching.value("min(min_over_time(up[5m]))") < 1
        slow = watching.value("max(max_over_time(scrape_duration_seconds[5m]))") > 0.9 * SCRAPE_SECONDS
        return {labels["slo"]: value for labels, value in summed}, missed or slow


def ups(values, name, of=1, first=0, **labels):
    """Series `up` of the proxies' job."""
    more = "".join(f',{label}="{value}"' for label, value in labels.items())
    return {f'up{{job="tokengauge",instance="{name}-{number}"{more}}}': values for number in range(first, first + of)}


REQUESTS = 'tokengauge_requests_total{operation_class="generation"}'
# Measuring problem → series of a proxy with only that problem, and how often it then fires.
MEASURED = {
    'tokengauge_ledger_lost_records_total{reason="disk_full"}': "7x60",
    "tokengauge_ledger_writable": "0x2 1x58",
    'tokengauge_sink_lost_records_total{sink="s3",reason="queue"}': "7x60",
    "tokengauge_meter_dropped_calls_total": "7x60",
    "tokengauge_meter_lagged_frames_total": "7x60",
    "tokengauge_meter_skipped_bodies_total": "7x60",
    # 4 of 100 calls, and calls of a class that does not count.
    "tokengauge_unparsed_calls_total": counter((60, 4)),
    REQUESTS: counter((60, 100)),
    'tokengauge_requests_total{operation_class="other"}': counter((60, 1)),
}
UNMEASURED = {
    "ledger": MEASURED | {'tokengauge_ledger_lost_records_total{reason="disk_full"}': counter((40, 0), (20, 1))},
    "fallback": MEASURED | {"tokengauge_ledger_writable": "1x40 0x20"},
    "sinks": MEASURED | {'tokengauge_sink_lost_records_total{sink="s3",reason="queue"}': counter((40, 0), (20, 1))},
    "exporters": MEASURED | {"tokengauge_meter_dropped_calls_total": counter((40, 0), (20, 1))},
    "frames": MEASURED | {"tokengauge_meter_lagged_frames_total": counter((40, 0), (20, 1))},
    "bodies": MEASURED | {"tokengauge_meter_skipped_bodies_total": counter((40, 0), (20, 1))},
    "unparsed": MEASURED | {"tokengauge_unparsed_calls_total": counter((60, 6))},
}
# Alert → series that make it fire, and series that do not.
OWN = {
    # Fires if both proxies behind a Service fail while sidecars answer, but not if one of two sidecars of a namespace fails.
    "TokengaugeDown": (
        ups("0x60", "gateway", service="tokengauge", of=2) | ups("1x60", "sidecar", of=9),
        ups("1x60", "gateway", service="tokengauge", of=2) | ups("0x60", "sidecar") | ups("1x60", "sidecar", of=2, first=1),
    ),
    "TokengaugeProxyDown": (ups("0x60", "sidecar") | ups("1x60", "sidecar", of=9, first=1), ups("0x14 1x46", "sidecar")),
    "TokengaugeAbsent": ({'up{job="other"}': "1x60"}, {'up{job="tokengauge"}': "1x60"}),
    "TokengaugeMeasuringLags": (
        {"tokengauge_meter_lagged_frames_total": counter((60, 5)), "tokengauge_meter_skipped_bodies_total": "0x60"},
        {"tokengauge_meter_lagged_frames_total": "7x60", "tokengauge_meter_skipped_bodies_total": "0x60"},
    ),
    "TokengaugeMeasuringDegraded": (UNMEASURED["ledger"], MEASURED),
    "TokengaugeCallsDropped": (
        {"tokengauge_meter_dropped_calls_total": counter((55, 0), (5, 1))},
        {"tokengauge_meter_dropped_calls_total": counter((10, 1), (50, 0))},
    ),
    "TokengaugePanicked": (
        {"tokengauge_meter_panics_total": "0x60", "tokengauge_observer_panics_total": counter((55, 0), (1, 1), (4, 0))},
        {"tokengauge_meter_panics_total": "3x60", "tokengauge_observer_panics_total": "3x60"},
    ),
    "TokengaugeExportFailing": (
        {'tokengauge_export_failures_total{exporter="call_log",reason="write"}': counter((60, 1))},
        {'tokengauge_export_failures_total{exporter="call_log",reason="write"}': "9x60"},
    ),
    "TokengaugeLedgerLosing": (
        {'tokengauge_ledger_lost_records_total{reason="disk_full"}': counter((55, 0), (5, 1))},
        {'tokengauge_ledger_lost_records_total{reason="disk_full"}': counter((10, 1), (50, 0))},
    ),
    "TokengaugeSinkLagging": (
        {'tokengauge_sink_lag_seconds{sink="clickhouse"}': "0x30 600x10 1000x20"},
        {'tokengauge_sink_lag_seconds{sink="clickhouse"}': "0x30 1000x3 20x27"},
    ),
    "TokengaugeSinkLosing": (
        {'tokengauge_sink_lost_records_total{sink="s3",reason="queue"}': counter((55, 0), (5, 1))},
        {'tokengauge_sink_lost_records_total{sink="s3",reason="queue"}': counter((10, 1), (50, 0))},
    ),
    "TokengaugeQuotaStoreAway": (
        # The condition flaps.
        {'tokengauge_quota_store_away_seconds_total{on_error="local"}': counter((50, 0), (10, 25))},
        {'tokengauge_quota_store_away_seconds_total{on_error="local"}': counter((50, 0), (10, 10))},
    ),
    "TokengaugeFleetStoreAway": (
        {"tokengauge_fleet_store_up": "1x40 0x20"},
        {"tokengauge_fleet_store_up": "1x40 0x5 1x15"},
    ),
    "TokengaugeConfigurationRefused": (
        {"tokengauge_config_last_reload_successful": "1x50 0x10"},
        # A sidecar without any usable configuration is covered by the next alert.
        {"tokengauge_config_last_reload_successful": "0x60", 'tokengauge_config_fallback{calls="forwarded"}': "1x60"},
    ),
    "TokengaugeFallbackInUse": (
        {
            'tokengauge_config_fallback{calls="forwarded",instance="a"}': "0x60",
            'tokengauge_config_fallback{calls="refused",instance="a"}': "0x40 1x20",
        },
        {
            'tokengauge_config_fallback{calls="forwarded",instance="a"}': "1x40 0x20",
            'tokengauge_config_fallback{calls="refused",instance="a"}': "0x60",
        },
    ),
    "TokengaugeBudgetSpent": (
        {'tokengauge_budget_spent_ratio{budget="b",instance="a"}': "0.2x59 1.1x5"},
        {'tokengauge_budget_spent_ratio{budget="b",instance="a"}': "1.4x30 0x20 0.99x20"},
    ),
    "TokengaugePromptsMissCache": (
        {'tokengauge_prompt_cache_breaks_total{cause="prefix_changed",instance="a"}': counter((60, 1))},
        {
            # Two breaks in ten minutes, and breaks that nobody can avoid.
            'tokengauge_prompt_cache_breaks_total{cause="evicted",instance="a"}': counter((50, 0), (2, 1), (8, 0)),
            'tokengauge_prompt_cache_breaks_total{cause="idle",instance="a"}': counter((60, 1)),
        },
    ),
    "TokengaugeRunawaySession": (
        {
            'tokengauge_runaway_sessions{reason="tokens",instance="a"}': "0x60",
            'tokengauge_runaway_sessions{reason="same_tool_call",instance="a"}': "0x50 2x10",
        },
        {
            # A session that stopped running away, and one that has not run away for a minute.
            'tokengauge_runaway_sessions{reason="tokens",instance="a"}': "3x40 0x20",
            'tokengauge_runaway_sessions{reason="dollars",instance="a"}': "0x59 1x1",
        },
    ),
    "TokengaugeAnswersRepeat": (
        {
            'tokengauge_repeating_calls_total{upstream="u",model="m",instance="a"}': counter((50, 0), (10, 1)),
            'tokengauge_requests_total{operation_class="generation",upstream="u",model="m",instance="a"}': counter((60, 10)),
        },
        {
            # Two answers, and few among many.
            'tokengauge_repeating_calls_total{upstream="u",model="m",instance="a"}': counter((58, 0), (2, 1)),
            'tokengauge_requests_total{operation_class="generation",upstream="u",model="m",instance="a"}': counter((60, 10)),
            'tokengauge_repeating_calls_total{upstream="v",model="m",instance="a"}': counter((50, 0), (10, 1)),
            'tokengauge_requests_total{operation_class="generation",upstream="v",model="m",instance="a"}': counter((60, 999)),
        },
    ),
    "TokengaugeDrift": (
        {'tokengauge_drift_series{drift="all",signal="ttft",state="drifted",instance="a"}': "0x20 2x40"},
        {
            # Drift of less than half an hour may revert.
            'tokengauge_drift_series{drift="all",signal="ttft",state="drifted",instance="a"}': "0x40 2x20",
            'tokengauge_drift_series{drift="all",signal="ttft",state="learning",instance="a"}': "2x60",
        },
    ),
    "TokengaugeSeriesCollapsed": (
        {"tokengauge_series_collapsed_total": counter((50, 0), (10, 3))},
        {"tokengauge_series_collapsed_total": "40x60"},
    ),
    "TokengaugeSlow": (
        {
            'tokengauge_proxy_overhead_seconds_bucket{phase="chunk",le="0.01"}': counter((60, 90)),
            'tokengauge_proxy_overhead_seconds_bucket{phase="chunk",le="0.02"}': counter((60, 100)),
            'tokengauge_proxy_overhead_seconds_bucket{phase="chunk",le="+Inf"}': counter((60, 100)),
        },
        {
            'tokengauge_proxy_overhead_seconds_bucket{phase="chunk",le="0.01"}': counter((60, 999)),
            'tokengauge_proxy_overhead_seconds_bucket{phase="chunk",le="+Inf"}': counter((60, 1000)),
        },
    ),
}


@pytest.mark.parametrize("alert", OWN)
def test_an_alert_on_the_proxy_fires_when_it_should_and_only_then(rules, tmp_path, alert):
    for name, series, expected in (("ill", OWN[alert][0], 1), ("well", OWN[alert][1], 0)):
        folder = tmp_path / name
        folder.mkdir()
        check(folder, rules, series, [(60, firing(alert), expected)])


# Alert → series, by severity.
SEVERITIES = {
    "TokengaugeFallbackInUse": {
        "page": {'tokengauge_config_fallback{calls="refused"}': "1x60"},
        "ticket": {'tokengauge_config_fallback{calls="forwarded"}': "1x60"},
    },
    "TokengaugeQuotaStoreAway": {
        "page": {'tokengauge_quota_store_away_seconds_total{on_error="closed"}': counter((60, 50))},
        "ticket": {'tokengauge_quota_store_away_seconds_total{on_error="open"}': counter((60, 50))},
    },
}


@pytest.mark.parametrize("severity", ["page", "ticket"])
@pytest.mark.parametrize("alert", SEVERITIES)
def test_an_alert_pages_only_if_calls_are_refused(rules, tmp_path, alert, severity):
    check(tmp_path, rules, SEVERITIES[alert][severity], [(60, firing(alert), 1), (60, firing(alert, severity=severity), 1)])


def test_services_of_the_same_name_are_apart(rules, tmp_path):
    series = ups("0x60", "a", service="tokengauge", namespace="a") | ups("1x60", "b", service="tokengauge", namespace="b", of=9)
    check(tmp_path, rules, series, [(60, firing("TokengaugeDown", namespace="a"), 1), (60, firing("TokengaugeDown"), 1)])


@pytest.mark.parametrize("lost", UNMEASURED)
def test_one_alert_reports_each_measuring_problem_and_nothing_else(rules, tmp_path, lost):
    says = {
        "ledger": "calls in the ledger",
        "fallback": "the ledger",
        "sinks": "calls in sinks",
        "exporters": "calls in exporters",
        "frames": "frames",
        "bodies": "bodies",
        "unparsed": "unparsed calls",
    }[lost]
    alert = "TokengaugeMeasuringDegraded"
    check(tmp_path, rules, UNMEASURED[lost], [(60, firing(alert), 1), (60, firing(alert, lost=says), 1)])


def test_a_handful_of_unparsed_calls_does_not_alert(rules, tmp_path):
    few = MEASURED | {"tokengauge_unparsed_calls_total": counter((55, 0), (4, 1), (1, 0)), REQUESTS: counter((60, 1))}
    check(tmp_path, rules, few, [(60, firing("TokengaugeMeasuringDegraded"), 0)])


def test_every_alert_on_the_proxy_is_tried(rules):
    groups = yaml.safe_load(rules.read_text())["groups"]
    alerts = {rule["alert"] for group in groups if group["name"] in ("tokengauge", "tokengauge-calls") for rule in group["rules"]}
    assert alerts == OWN.keys()
