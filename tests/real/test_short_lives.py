"""Pods that live shorter than a scrape interval: OTLP exports their counts before they end, including the last call."""

import concurrent.futures
import contextlib
import json
import os
import threading
import time
import urllib.error
import urllib.request

import traffic
from otlp import eventually, exporting, receiving

PODS = 20
# Lifetime of a pod; a long run uses 40.
SECONDS = float(os.environ.get("TOKENGAUGE_POD_SECONDS", "4"))
OBJECTIVE = '[[slo]]\nname = "first-token"\nttft.at_most = "10s"\nobjective = 0.9\n'
DELTA = {
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
    # The default interval, which is longer than the lifetime of any pod here.
    "OTEL_METRIC_EXPORT_INTERVAL": "60000",
}


def call(base, behave):
    """Makes a call that the pod's end may cut off."""
    made = traffic.chat("", "short-1", behave=behave)
    request = urllib.request.Request(base + made.path, json.dumps(made.body).encode(), {"content-type": "application/json", "x-sim": behave})
    with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(request, timeout=30) as response:
        response.read()


def live(number, tokengauge, simulator, receiver, folder):
    """Runs one pod that makes calls until SIGTERM, with one in flight then. Returns its call log."""
    config = folder / f"{number}.toml"
    config.write_text(f'[[upstream]]\nname = "simulated"\nurl = "{simulator}"\n[[route]]\nupstream = "simulated"\n{OBJECTIVE}')
    variables = DELTA | {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_TRACES_EXPORTER": "none"}
    variables |= {"OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id=pod-{number}"}
    with exporting(tokengauge, folder / str(number), None, variables, "--config", config) as pod:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            call(pod.url, "tokens=20,gap=5ms")
            time.sleep(0.1)
        last = threading.Thread(target=call, args=(pod.url, "tokens=100,gap=10ms"))
        last.start()
        until = time.monotonic() + 10
        while pod.metric("tokengauge_streams_in_flight") < 1 and time.monotonic() < until:
            time.sleep(0.02)
    last.join()
    return pod.logged()


def total(receiver, name, **wanted):
    """Returns a counter summed over all messages, which contain differences."""
    sum_of = 0
    for message in receiver.messages("/v1/metrics"):
        for resource in message["resourceMetrics"]:
            for scope in resource["scopeMetrics"]:
                for metric in scope["metrics"]:
                    if metric["name"] != name:
                        continue
                    assert metric["sum"]["aggregationTemporality"] == "AGGREGATION_TEMPORALITY_DELTA"
                    for point in metric["sum"]["dataPoints"]:
                        labels = {one["key"]: one["value"].get("stringValue") for one in point.get("attributes", [])}
                        if all(labels.get(key) == value for key, value in wanted.items()):
                            sum_of += int(point.get("asInt", 0))
    return sum_of


def test_nothing_is_lost_of_twenty_pods_that_live_shorter_than_a_scrape(tokengauge, simulator, tmp_path):
    with receiving(tmp_path / "receiver") as receiver:
        with concurrent.futures.ThreadPoolExecutor(PODS) as threads:
            lives = [threads.submit(live, number, tokengauge, simulator, receiver, tmp_path) for number in range(PODS)]
            records = [record for pod in lives for record in pod.result()]
        # The receiver needs time for decoding.
        eventually(lambda: len(receiver.messages("/v1/metrics")) >= PODS, "message of each pod", 30)
        assert len(records) >= PODS * 2
        assert total(receiver, "tokengauge.requests") == len(records)
        assert total(receiver, "tokengauge.slo_events", slo="first-token") == len(records)
        tokens = sum(record["tokens"]["normalised"]["output"] for record in records)
        assert total(receiver, "tokengauge.tokens", direction="output", source="counted") == tokens > 0
