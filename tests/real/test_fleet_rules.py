"""Five proxies of two namespaces with a real Prometheus: alerts keep their namespace, a single proxy does not page,
and an Alertmanager sends one message for all."""

import contextlib
import json
import subprocess
import time
import urllib.request

import pytest
import yaml

import traffic
from guides import block
from otlp import eventually
from processes import free_port, running
from prometheus import prometheus
from test_alerting import alertmanager, pager

CLUSTER = "west"
PODS = {"web-0": "web", "web-1": "web", "batch-0": "batch", "batch-1": "batch", "batch-2": "batch"}
CONFIGURATION = """
listen = "127.0.0.1:0"
admin.listen = "127.0.0.1:0"

[[upstream]]
name = "simulator"
url = "{simulator}"

[[route]]
name = "chat"
path = "/chat"
strip = true
upstream = "simulator"

[[slo]]
name = "answers"
objective = 0.9
window = "1d"
availability = true
min_events = 5
"""


class Proxy:
    def __init__(self, process):
        self.process = process
        self.url = "http://" + process.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)")
        self.admin = process.wait_for_line(r"\badmin on (127\.0\.0\.1:\d+)")


BY = ["--by", "namespace,cluster"]


@contextlib.contextmanager
def running_fleet(folder, tokengauge, simulator, options, alertmanager=None):
    """Starts the proxies of the pods, and a Prometheus that scrapes them."""
    config = folder / "namespaces.toml"
    config.write_text(CONFIGURATION.format(simulator=simulator))
    rules = folder / "namespaces.yaml"
    command = [tokengauge, "print", "rules", "--config", config, *options, "--resolution", "5s"]
    rules.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    with contextlib.ExitStack() as stack:
        proxies = {}
        for pod in PODS:
            process = running([tokengauge, "run", "--config", config], folder / f"{pod}.log")
            proxies[pod] = Proxy(stack.enter_context(process))
        targets = [
            {"targets": [proxies[pod].admin], "labels": {"cluster": CLUSTER, "namespace": namespace, "pod": pod}}
            for pod, namespace in PODS.items()
        ]
        watching = prometheus(folder / "namespaces", {"tokengauge": targets}, [rules], alertmanager=alertmanager)
        yield proxies, stack.enter_context(watching), config


@pytest.fixture
def fleet(tmp_path, tokengauge, simulator):
    with running_fleet(tmp_path, tokengauge, simulator, BY) as fleet:
        yield fleet


def alerts(watching, name):
    active = [labels for labels, _ in watching.query(f'ALERTS{{alertname="{name}"}}')]
    return sorted((one.get("cluster"), one.get("namespace"), one.get("pod"), one["severity"]) for one in active)


def agree(watching, name, expected):
    """Waits until an alert is active there and nowhere else. A late scrape adds another alert for a moment."""
    eventually(lambda: alerts(watching, name) == expected, f"{name} at {expected} alone")


def test_one_proxy_does_not_page_but_half_of_them_do(fleet):
    proxies, watching, _ = fleet
    watching.wait_for('count(up{job="tokengauge"} == 1)', lambda count: count == len(PODS))
    proxies["web-0"].process.stop()
    watching.wait_for('count(up{job="tokengauge"} == 0)', lambda count: count == 1)
    watching.wait_for('count(ALERTS{alertname="TokengaugeProxyDown"})')
    agree(watching, "TokengaugeProxyDown", [(CLUSTER, "web", "web-0", "ticket")])
    # It is half of the proxies in its namespace.
    agree(watching, "TokengaugeDown", [(CLUSTER, "web", None, "page")])
    proxies["batch-0"].process.stop()
    watching.wait_for('count(ALERTS{alertname="TokengaugeProxyDown"})', lambda count: count == 2)
    # One of three does not page.
    agree(watching, "TokengaugeDown", [(CLUSTER, "web", None, "page")])
    proxies["batch-1"].process.stop()
    watching.wait_for('count(ALERTS{alertname="TokengaugeDown"})', lambda count: count == 2)
    agree(watching, "TokengaugeDown", [(CLUSTER, "batch", None, "page"), (CLUSTER, "web", None, "page")])


def test_a_budget_burns_where_the_errors_are(fleet, tokengauge, tmp_path):
    proxies, watching, config = fleet
    watching.wait_for('count(up{job="tokengauge"} == 1)', lambda count: count == len(PODS))
    for _ in range(10):
        for pod, namespace in PODS.items():
            behave = "status=500" if namespace == "batch" else "tokens=2,ttft=1ms,gap=1ms"
            traffic.chat("chat", "gpt-sim", behave=behave).make(proxies[pod].url)
    watching.wait_for('count(ALERTS{alertname="SloErrorBudgetBurn",severity="page",namespace="batch"})')
    watching.wait_for_recordings(5)
    burning = {(cluster, namespace) for cluster, namespace, _, severity in alerts(watching, "SloErrorBudgetBurn") if severity == "page"}
    assert burning == {(CLUSTER, "batch")}
    left = {labels["namespace"]: value for labels, value in watching.query('slo:error_budget:remaining_ratio{slo="answers"}')}
    assert left.keys() == {"web", "batch"} and left["batch"] < left["web"]
    # `tokengauge fleet` shows recorded values by namespace, also while a store is unreachable.
    command = [tokengauge, "fleet", "--prometheus", watching.url, "--store", f"clickhouse://127.0.0.1:{free_port()}/default"]
    command += ["--listen", "127.0.0.1:0", "--config", config]
    with running(command, tmp_path / "fleet.log", expected_exit=0) as process:
        admin = "http://" + process.wait_for_line(r"admin on (\S+)")
        slos = process.wait_for(lambda: objectives(admin), "the objectives of both namespaces")
    assert [slo["pod"]["namespace"] for slo in slos] == ["batch", "web"], "the least budget first"
    for slo in slos:
        namespace = slo["pod"]["namespace"]
        left = watching.value(f'slo:error_budget:remaining_ratio{{slo="answers",namespace="{namespace}"}}')
        # Prometheus continues to evaluate.
        assert slo["budget_remaining"] == pytest.approx(left, abs=0.05)
        assert (slo["name"], slo["objective"], slo["window"]) == ("answers", 0.9, "1d")
        firing = {alert["severity"] for alert in slo["alerts"] if alert["firing"]}
        assert ("page" in firing) == (namespace == "batch"), slo["alerts"]
    # All calls of one namespace failed: ten times the whole budget.
    assert slos[0]["budget_remaining"] == pytest.approx(-9, abs=0.05)
    assert slos[1]["budget_remaining"] == pytest.approx(1, abs=0.01)


def objectives(admin):
    with urllib.request.urlopen(f"{admin}/api/v1/slos", timeout=10) as response:
        answer = json.load(response)
    assert answer["source"] == "prometheus" and answer["total"] <= 2, answer
    time.sleep(0.2)
    return answer["slos"] if answer["total"] == 2 else None


# Options of the rules → places of the pages in the one message.
MESSAGES = {"by namespace": (BY, [(CLUSTER, "batch"), (CLUSTER, "web")]), "of the fleet": ([], [(None, None)])}
# Replaces the guide's half a minute: both alerts have fired by then.
GROUP_WAIT = 10


@pytest.mark.parametrize("form", MESSAGES)
def test_two_burning_pods_are_one_message(tmp_path, tokengauge, simulator, form):
    options, expected = MESSAGES[form]
    route = yaml.safe_load(block("fleet.md", "alertmanager.yaml"))["route"]
    for each in route["routes"]:
        each["group_wait"] = f"{GROUP_WAIT}s"
    with contextlib.ExitStack() as stack:
        webhook = stack.enter_context(pager())
        manager = stack.enter_context(alertmanager(tmp_path / "alertmanager", tokengauge, webhook.address, route, options))
        proxies, watching, _ = stack.enter_context(running_fleet(tmp_path, tokengauge, simulator, options, manager))
        watching.wait_for('count(up{job="tokengauge"} == 1)', lambda count: count == len(PODS))
        for pod in PODS:
            # Most calls go to the two failing proxies: over the limit of a page in each namespace and in total.
            behave, calls = ("status=500", 20) if pod in ("web-0", "batch-0") else ("tokens=2,ttft=1ms,gap=1ms", 2)
            for _ in range(calls):
                traffic.chat("chat", "gpt-sim", behave=behave).make(proxies[pod].url)
        watching.wait_for('count(ALERTS{alertname="SloErrorBudgetBurn",severity="page",alertstate="firing"})', lambda count: count == len(expected))

        def pages():
            return [message for message in webhook.messages if message["commonLabels"].get("severity") == "page"]

        eventually(pages, "page", seconds=4 * GROUP_WAIT)
        # Any other message would have arrived by now.
        watching.wait_for_recordings(5)
        (message,) = pages()
        assert message["commonLabels"]["alertname"] == "SloErrorBudgetBurn" and message["commonLabels"]["slo"] == "answers"
        places = [(alert["labels"].get("cluster"), alert["labels"].get("namespace")) for alert in message["alerts"]]
        assert sorted(places, key=str) == expected
