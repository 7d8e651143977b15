"""The guide's configuration in a real OpenTelemetry Collector: pushed data arrives unchanged, and ClickHouse answers
the guide's questions from the tables of the collector's exporter.

The ClickHouse exporter is part of the collector's contrib distribution, which no registry here has. Instead the
collector sends OTLP to a recording receiver, and the test makes the rows as the exporter does. Debian's Prometheus
is built without an OTLP receiver, so metrics also go to a recording receiver."""

import base64
import contextlib
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess

import pytest
import yaml

from clickhouse import ClickHouse
from guides import block
from otlp import exporting, receiving
from processes import free_port, running
from test_otlp import ask

pytestmark = pytest.mark.part("collector")

PAGE = "integrations.md"
COLLECTOR = pathlib.Path(__file__).parent.parent.parent / ".cache/real/collector/otelcol"
MODELS = {"gpt-4.1": "ttft=30ms,gap=2ms,tokens=40", "gpt-4.1-mini": "ttft=5ms,gap=4ms,tokens=60", "of-nobody": "ttft=5ms,gap=1ms,tokens=20"}
SESSIONS = {"long": ["gpt-4.1"] * 3 + ["gpt-4.1-mini"], "short": ["gpt-4.1-mini"] * 2, "unpriced": ["of-nobody"] * 2}


STORES = ("traces", "prometheus", "clickhouse")


def configuration():
    return yaml.safe_load(block(PAGE, "collector.yaml"))


# https://github.com/open-telemetry/opentelemetry-collector-contrib/blob/09ea2f42/exporter/clickhouseexporter/config.schema.yaml
CLICKHOUSE_FIELDS = {
    "async_insert", "cluster_name", "compress", "connection_params", "create_schema", "database", "endpoint", "json",
    "logs_table_name", "metrics_table_name", "metrics_tables", "password", "profiles_table_name", "sending_queue",
    "table_engine", "tls", "traces_table_name", "ttl", "username", "timeout", "retry_on_failure",
}  # fmt: skip


def test_the_exporter_of_clickhouse_knows_the_fields():
    exporter = configuration()["exporters"]["clickhouse"]
    assert exporter.keys() <= CLICKHOUSE_FIELDS and "endpoint" in exporter


def test_the_collector_would_notice_a_mistake(tmp_path):
    for right, wrong in (("send_batch_size", "batch_size"), ("limit_percentage", "limit"), ("otlphttp/traces: {", "otlphttps/traces: {")):
        file = tmp_path / "collector.yaml"
        text = yaml.safe_dump(for_this_machine(configuration(), dict.fromkeys(STORES, "http://127.0.0.1:9"), (1, 2)))
        file.write_text(text)
        assert validated(file).returncode == 0, validated(file).stderr
        broken = text.replace(right.removesuffix(" {"), wrong.removesuffix(" {"), 1)
        assert broken != text
        file.write_text(broken)
        assert validated(file).returncode != 0, wrong


def validated(file):
    return subprocess.run([COLLECTOR, "validate", "--config", file], capture_output=True, text=True, timeout=60)


def for_this_machine(config, endpoints, ports):
    """Returns the guide's configuration with loopback addresses, and OTLP instead of ClickHouse's protocol."""
    grpc, http = ports
    config["receivers"]["otlp"]["protocols"] = {"grpc": {"endpoint": f"127.0.0.1:{grpc}"}, "http": {"endpoint": f"127.0.0.1:{http}"}}
    exporters = config["exporters"]
    del exporters["clickhouse"]
    exporters["otlphttp/clickhouse"] = {}
    for name, exporter in exporters.items():
        exporter["endpoint"] = endpoints[name.split("/")[1]]
    for pipeline in config["service"]["pipelines"].values():
        pipeline["exporters"] = [name.replace("clickhouse", "otlphttp/clickhouse") for name in pipeline["exporters"]]
    # The collector's own metrics would use a fixed port.
    config["service"]["telemetry"] = {"metrics": {"level": "none"}}
    return config


class Collected:
    """Calls as records, as data in the stores, and as text of the proxy's /metrics."""

    def __init__(self, records, stores, exposition):
        self.records, self.exposition = records, exposition
        self.traces, self.prometheus, self.clickhouse = (stores[name] for name in STORES)


@pytest.fixture(scope="module")
def collected(tokengauge, simulator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("collector")
    with contextlib.ExitStack() as stack:
        stores = {name: stack.enter_context(receiving(folder / name)) for name in STORES}
        endpoints = {name: store.url for name, store in stores.items()}
        ports = free_port(), free_port()
        file = folder / "collector.yaml"
        file.write_text(yaml.safe_dump(for_this_machine(configuration(), endpoints, ports)))
        with running([COLLECTOR, "--config", file], folder / "collector.log") as collector:
            collector.wait_for(lambda: "Everything is ready" in collector.written(), "readiness")
            variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{ports[1]}", "OTEL_LOGS_EXPORTER": "otlp"}
            variables["OTEL_RESOURCE_ATTRIBUTES"] = "k8s.namespace.name=agents,k8s.pod.name=agent-0"
            with exporting(tokengauge, folder / "proxy", simulator, variables) as gauge:
                for session, models in SESSIONS.items():
                    for model in models:
                        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Tell me of rivers."}]}
                        ask(gauge.url, body, **{"x-tokengauge-session": session, "x-sim": MODELS[model]})
                calls = sum(map(len, SESSIONS.values()))
                gauge.process.wait_for(lambda: len(gauge.logged()) == calls, "call records")
                records, clickhouse = gauge.logged(), stores["clickhouse"]
                collector.wait_for(lambda: len(spans(clickhouse)) == 2 * calls and len(logs(clickhouse)) == calls, "spans and records")
                exposition = gauge.scrape("/metrics")
        # Both processes have ended, so the last metrics have arrived.
        yield Collected(records, stores, exposition)


def items(receiver, path, outer, inner, name):
    return [
        (resource["resource"], scope["scope"], item)
        for message in receiver.messages(path)
        for resource in message.get(outer, [])
        for scope in resource[inner]
        for item in scope[name]
    ]


def spans(receiver):
    return items(receiver, "/v1/traces", "resourceSpans", "scopeSpans", "spans")


def logs(receiver):
    return items(receiver, "/v1/logs", "resourceLogs", "scopeLogs", "logRecords")


def plain(value):
    ((kind, content),) = value.items()
    if kind == "kvlistValue":
        return {one["key"]: plain(one["value"]) for one in content.get("values", [])}
    if kind == "arrayValue":
        return [plain(one) for one in content.get("values", [])]
    return int(content) if kind == "intValue" else content


def attributes(of):
    return {one["key"]: plain(one["value"]) for one in of.get("attributes", [])}


def test_both_stores_of_traces_got_the_same_spans(collected):
    ids = [sorted(span["spanId"] for _, _, span in spans(receiver)) for receiver in (collected.traces, collected.clickhouse)]
    assert ids[0] == ids[1] and len(set(ids[0])) == 2 * len(collected.records)


def test_a_call_arrives_with_the_figures_of_its_record(collected):
    clients = {}
    for resource, _, span in spans(collected.clickhouse):
        assert attributes(resource)["k8s.pod.name"] == "agent-0"
        if span["kind"] == "SPAN_KIND_CLIENT":
            clients[attributes(span)["tokengauge.call.id"]] = span
    bodies = {plain(record["body"])["id"]: plain(record["body"]) for _, _, record in logs(collected.clickhouse)}
    assert clients.keys() == bodies.keys() == {record["id"] for record in collected.records}
    for record in collected.records:
        found, body = attributes(clients[record["id"]]), bodies[record["id"]]
        assert base64.b64decode(clients[record["id"]]["traceId"]).hex() == record["trace_id"]
        assert found["gen_ai.response.model"] == record["model"] == body["model"]
        assert found["gen_ai.usage.output_tokens"] == record["tokens"]["reported"]["output"] == body["tokens"]["reported"]["output"]
        for name in ("ttft", "duration"):
            assert found[f"tokengauge.{name}"] == record["seconds"][name] == body["seconds"][name]
        assert found.get("tokengauge.cost_usd") == record["cost_usd"] == body.get("cost_usd")


COUNTED = {"tokengauge.requests": ("sum", "asInt"), "tokengauge.decode_tokens": ("sum", "asInt")}
COUNTED |= {"tokengauge.time_to_first_token": ("histogram", "count"), "tokengauge.cost_usd": ("sum", "asDouble")}


def test_metrics_arrive_as_the_scrape_shows_them(collected):
    metrics = collected.prometheus.metrics()
    for name, (kind, field) in COUNTED.items():
        pushed = sum(float(point[field]) for point in metrics[name][kind]["dataPoints"])
        scraped = name.replace(".", "_") + ("_seconds_count" if kind == "histogram" else "_total")
        values = re.findall(rf"^{scraped}(?:{{.*}})? (\S+)", collected.exposition, re.MULTILINE)
        assert pushed == pytest.approx(sum(map(float, values))) and pushed > 0, name
    assert not collected.prometheus.messages("/v1/traces") and not collected.clickhouse.messages("/v1/metrics")


# Columns of
# https://github.com/open-telemetry/opentelemetry-collector-contrib/tree/main/exporter/clickhouseexporter/internal/sql_templates
# that the guide's queries use or that identify the source of a row.
TABLES = """
CREATE TABLE otel_traces (Timestamp DateTime64(9), TraceId String, SpanId String, ParentSpanId String, SpanName LowCardinality(String),
  SpanKind LowCardinality(String), ServiceName LowCardinality(String), ResourceAttributes Map(LowCardinality(String), String),
  ScopeName String, ScopeVersion String, SpanAttributes Map(LowCardinality(String), String), Duration UInt64,
  StatusCode LowCardinality(String)) ENGINE = MergeTree ORDER BY (ServiceName, SpanName, toDateTime(Timestamp));
CREATE TABLE otel_logs (Timestamp DateTime64(9), TraceId String, SpanId String, SeverityText LowCardinality(String),
  ServiceName LowCardinality(String), Body String, ResourceAttributes Map(LowCardinality(String), String), ScopeName String,
  LogAttributes Map(LowCardinality(String), String)) ENGINE = MergeTree ORDER BY (ServiceName, Timestamp)
"""


def as_text(value):
    """`AsString` of the collector's pdata: JSON for values that are not texts."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), sort_keys=True)


def texts(of):
    return {key: as_text(value) for key, value in attributes(of).items()}


def instant(nanoseconds):
    seconds, rest = divmod(int(nanoseconds), 10**9)
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M:%S}.{rest:09}"


def hexadecimal(item, name):
    return base64.b64decode(item.get(name, "")).hex()


def trace_row(resource, scope, span):
    row = {"Timestamp": instant(span["startTimeUnixNano"]), "SpanName": span["name"], "ScopeName": scope["name"]}
    row |= {"TraceId": hexadecimal(span, "traceId"), "SpanId": hexadecimal(span, "spanId"), "ParentSpanId": hexadecimal(span, "parentSpanId")}
    row |= {"SpanKind": span["kind"].removeprefix("SPAN_KIND_").title(), "ServiceName": attributes(resource)["service.name"]}
    row |= {"ResourceAttributes": texts(resource), "SpanAttributes": texts(span), "ScopeVersion": scope.get("version", "")}
    row["Duration"] = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
    return row


def log_row(resource, scope, record):
    row = {"Timestamp": instant(record["timeUnixNano"]), "SeverityText": record["severityText"], "ScopeName": scope["name"]}
    row |= {"TraceId": hexadecimal(record, "traceId"), "SpanId": hexadecimal(record, "spanId")}
    row |= {"ServiceName": attributes(resource)["service.name"], "Body": as_text(plain(record["body"]))}
    return row | {"ResourceAttributes": texts(resource), "LogAttributes": texts(record)}


@pytest.fixture(scope="module")
def store(collected, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    with ClickHouse(folder / "store", folder / "clickhouse.log").started() as store:
        for statement in TABLES.split(";"):
            store.query(statement)
        for name, rows in (("otel_traces", map(trace_row, *zip(*spans(collected.clickhouse)))), ("otel_logs", map(log_row, *zip(*logs(collected.clickhouse))))):
            store.query(f"INSERT INTO {name} FORMAT JSONEachRow\n" + "\n".join(map(json.dumps, rows)))
        # Queries must ignore rows of other sources.
        store.query("INSERT INTO otel_logs (Timestamp, ScopeName, Body) VALUES (now(), 'another', '{\"session\": \"long\", \"outcome\": \"complete\"}')")
        yield store


def answer(store, name):
    text = store.query(block(PAGE, name) + "FORMAT JSONEachRow")
    return [json.loads(line) for line in text.splitlines()]


def test_speed_by_model_matches_the_calls(collected, store):
    rows = {row["model"]: row for row in answer(store, "speed-by-model.sql")}
    assert rows.keys() == MODELS.keys()
    for model, row in rows.items():
        calls = [record for record in collected.records if record["model"] == model]
        assert int(row["calls"]) == len(calls)
        assert row["ttft_p50"] == pytest.approx(statistics.median_high([call["seconds"]["ttft"] for call in calls]))
        assert row["ttft_p95"] == pytest.approx(max(call["seconds"]["ttft"] for call in calls))
        speeds = [call["tps"]["output"] for call in calls if call["tps"]["output"] is not None]
        assert row["tps_p50"] == (pytest.approx(statistics.median_high(speeds)) if speeds else None)
    assert rows["gpt-4.1"]["tps_p50"] > 0


def test_cost_by_session_is_the_sum_of_its_calls(collected, store):
    rows = {row["session"]: row for row in answer(store, "cost-by-session.sql")}
    assert rows.keys() == SESSIONS.keys()
    for session, row in rows.items():
        calls = [record for record in collected.records if record["session"] == session]
        costs = [call["cost_usd"] for call in calls if call["cost_usd"] is not None]
        assert int(row["calls"]) == len(calls) and int(row["calls_without_price"]) == len(calls) - len(costs)
        assert row["usd"] == pytest.approx(sum(costs), abs=1e-6)
        assert int(row["output_tokens"]) == sum(call["tokens"]["normalised"]["output"] for call in calls)
    assert rows["long"]["usd"] > 0 and int(rows["unpriced"]["calls_without_price"]) == 2


def test_the_part_is_there_where_it_must_be():
    """A missing collector fails instead of skipping the tests."""
    assert os.access(COLLECTOR, os.X_OK), "run tests/real/install"
