"""KEDA's ScaledObject of the guide: its schema accepts it, and a real Prometheus answers its queries about proxies."""

import concurrent.futures
import contextlib
import subprocess

import pytest

import table
import traffic
from guides import manifests
from helm import foreign_complaints
from processes import running
from prometheus import exporter, prometheus

pytestmark = pytest.mark.part("guides")

STREAMS, WAITING = 6, 7
OBJECTIVE = 0.9
CONFIGURATION = """
listen = "127.0.0.1:0"
drain_timeout = "1s"
admin.listen = "127.0.0.1:0"

[[upstream]]
name = "llama"
url = "{simulator}"
metrics_url = "http://{engine}"
metrics_interval = "200ms"

[[route]]
name = "chat"
path = "/chat"
strip = true
upstream = "llama"

[[slo]]
name = "llama-ttft"
objective = {objective}
ttft.at_most = "2s"
"""
# A stream that lasts longer than the test.
ENDLESS = "ttft=10ms,gap=20ms,tokens=20000"
# https://keda.sh/docs/2.19/scalers/prometheus/
PARAMETERS = {"serverAddress", "query", "threshold", "activationThreshold", "namespace", "ignoreNullValues", "customHeaders", "unsafeSsl"}


def scaled_object():
    (document,) = manifests("integrations.md", "keda.yaml")
    return document


def triggers():
    return {trigger["name"]: trigger for trigger in scaled_object()["spec"]["triggers"]}


def test_the_scaled_object_is_valid_by_its_schema(tmp_path):
    document = scaled_object()
    assert foreign_complaints(tmp_path / "kinds", [document]) == ""
    for trigger in document["spec"]["triggers"]:
        assert trigger["metadata"].keys() <= PARAMETERS and float(trigger["metadata"]["threshold"]) > 0


MISTAKES = {
    "a field that does not exist": lambda spec: spec.update(maxReplicas=spec.pop("maxReplicaCount")),
    "a target without a name": lambda spec: spec.update(scaleTargetRef={"kind": "Deployment"}),
    "a threshold that is no text": lambda spec: spec["triggers"][0]["metadata"].update(threshold=24),
    "a trigger without a type": lambda spec: spec["triggers"][0].pop("type"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_schema_would_notice_a_mistake(tmp_path, mistake):
    document = scaled_object()
    MISTAKES[mistake](document["spec"])
    assert foreign_complaints(tmp_path / "kinds", [document])


def exposition():
    return f'# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{{model_name="m"}} {WAITING}\n'


def stream(behave):
    return traffic.chat("chat", "m", behave=behave)


class Scaled:
    """Proxies of two namespaces with streams in flight, a Prometheus that scrapes them, and an instant for queries."""

    def __init__(self, watching, proxies):
        self.watching, self.proxies = watching, proxies
        self.at = watching.ask("query", query="time()")["result"][0]

    def values(self, query):
        return [value for _, value in self.watching.query(query, self.at)]


@pytest.fixture(scope="module")
def scaled(tokengauge, simulator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("keda")
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(exporter(exposition))
        config = folder / "proxy.toml"
        config.write_text(CONFIGURATION.format(simulator=simulator, engine=engine, objective=OBJECTIVE))
        rules = folder / "rules.yaml"
        command = [tokengauge, "print", "rules", "--config", config, "--resolution", "5s"]
        rules.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        # Streams end with the proxies, and their threads with the streams.
        agents = stack.enter_context(concurrent.futures.ThreadPoolExecutor(3 * STREAMS))
        proxies, targets = {}, []
        for namespace in ("serving", "other"):
            process = stack.enter_context(running([tokengauge, "run", "--config", config], folder / f"{namespace}.log"))
            proxies[namespace] = "http://" + process.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)")
            admin = process.wait_for_line(r"\badmin on (127\.0\.0\.1:\d+)")
            targets.append({"targets": [admin], "labels": {"namespace": namespace}})
        watching = stack.enter_context(prometheus(folder / "prometheus", {"tokengauge": targets}, [rules]))
        # After this, every event is in the difference between two samples.
        watching.wait_for("count(slo:events:increase5s)")
        for namespace, streams in (("serving", STREAMS), ("other", 2 * STREAMS)):
            for _ in range(streams):
                agents.submit(stream(ENDLESS).make, proxies[namespace])
        for behave in ["ttft=4s,gap=1ms,tokens=4"] * 3 + ["ttft=1ms,gap=1ms,tokens=4"] * 5:
            stream(behave).make(proxies["serving"])
        watching.wait_for('sum(tokengauge_slo_events_total{verdict="bad"})', lambda bad: bad >= 3)
        watching.wait_for(f"sum(tokengauge_streams_in_flight) == {3 * STREAMS}")
        watching.wait_for("min(sum by (namespace) (tokengauge_output_tokens_per_second_now))")
        watching.wait_for_recordings(5)
        yield Scaled(watching, proxies)


@pytest.mark.parametrize("name", triggers())
def test_a_query_has_one_value(scaled, name):
    """Several values are an error for KEDA, and no value is treated as 0."""
    assert len(scaled.values(triggers()[name]["metadata"]["query"])) == 1


def asked(scaled, name):
    (value,) = scaled.values(triggers()[name]["metadata"]["query"])
    return value


def test_streams_and_the_queue_are_counted_for_the_namespace(scaled):
    assert asked(scaled, "streams") == STREAMS
    assert asked(scaled, "waiting") == WAITING


def test_output_is_the_sum_of_the_namespaces_series(scaled):
    found = scaled.watching.query("tokengauge_output_tokens_per_second_now", scaled.at)
    own = [value for labels, value in found if labels["namespace"] == "serving"]
    assert asked(scaled, "output") == pytest.approx(sum(own)) and 0 < sum(own) < sum(value for _, value in found)


def test_a_burning_budget_is_the_share_of_bad_events_over_the_budget(scaled):
    # Compare with the rules' own counts: rules can miss a scrape that takes longer than they wait for.
    events = 'sum(sum_over_time(slo:events{}:increase5s{{slo="llama-ttft"}}[5m]))'.format
    (bad,), (all,) = scaled.values(events("_bad")), scaled.values(events(""))
    assert 0 < bad < all and asked(scaled, "burning") == pytest.approx(bad / all / (1 - OBJECTIVE), rel=0.02)


def test_the_queries_use_only_metrics_and_labels_of_the_table(tokengauge):
    recorded = {"slo:sli_error:ratio_rate5m", "slo:objective:ratio"}
    for trigger in triggers().values():
        assert not table.wrong(trigger["metadata"]["query"], table.metrics(tokengauge), recorded)
