"""Native histograms in a real Prometheus: quantiles compared with the call log, every panel, the rules."""

import itertools
import math
import re

import pytest

from prometheus import finite
from test_dashboards import filled_in, queries

# Histogram name → value in a call's record.
SHOWN = {
    "time_to_first_token_seconds": lambda record: record["seconds"]["ttft"],
    "output_tokens_per_second": lambda record: record["tps"]["output"],
    "request_duration_seconds": lambda record: record["seconds"]["duration"],
}
QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
TOLERANCE = 0.02


def around(values, quantile):
    values, rank = sorted(values), quantile * len(values)
    return values[max(math.ceil(rank), 1) - 1], values[min(math.floor(rank), len(values) - 1)]


def error(value, bounds):
    """Returns the relative distance of a quantile from the nearest exact one."""
    lower, upper = bounds
    return max(lower / value, value / upper, 1) - 1


@pytest.mark.parametrize("name", SHOWN)
def test_quantiles_are_within_two_percent_of_the_call_logs(observed, name):
    values = [value for record in observed.gauge.logged() if (value := SHOWN[name](record)) is not None]
    assert len(values) > 100, name
    metric = f"tokengauge_{name}"
    assert observed.native.value(f"histogram_count(sum({metric}))", observed.native.end) == len(values)
    errors = {}
    for quantile in QUANTILES:
        exact = around(values, quantile)
        native = observed.native.value(f"histogram_quantile({quantile}, sum({metric}))", observed.native.end)
        classic = observed.prometheus.value(f"histogram_quantile({quantile}, sum by (le) ({metric}_bucket))", observed.prometheus.end)
        errors[quantile] = (error(native, exact), error(classic, exact))
    print(name, {quantile: [f"{one:.1%}" for one in both] for quantile, both in errors.items()})
    assert max(native for native, _ in errors.values()) <= TOLERANCE, errors


def test_what_is_native_is_not_kept_twice(observed):
    assert observed.native.series('{__name__=~"tokengauge_.+_bucket"}') == []
    # Targets without native histograms keep their classic ones.
    assert observed.native.series("vllm:time_to_first_token_seconds_bucket")


@pytest.mark.parametrize("expression, instant", [one for one in queries() if "histogram_" in one.values[0] or "_bucket" in one.values[0]])
def test_every_panel_of_a_histogram_finds_data(observed, expression, instant):
    native = observed.native
    expression = filled_in(expression, math.ceil(native.end - native.start))
    if instant:
        values = finite(native.query(expression, native.end))
    else:
        values = finite(itertools.chain.from_iterable(points for _, points in native.query_range(expression)))
    assert values, expression


def test_the_rules_see_native_histograms(observed, tokengauge):
    groups = observed.native.ask("rules")["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert all(rule["health"] == "ok" for rule in rules.values()), rules
    slow = re.sub(r"\s*> 0\.01$", "", rules["TokengaugeSlow"]["query"])
    assert {labels["phase"] for labels, _ in observed.native.query(slow, observed.native.end)} == {"head", "chunk"}


def test_exemplars_come_with_native_histograms(observed):
    exemplars = observed.native.exemplars("tokengauge_time_to_first_token_seconds")
    traces = {exemplar["labels"]["trace_id"] for exemplar in exemplars}
    assert len(traces) > 5
    assert traces <= observed.traces
