"""OTLP with real receivers: they get the data of calls, and a receiver with faults does not affect the calls."""

import json
import statistics
import time
import urllib.request

import pytest

from otlp import PHOENIX, eventually, exporting, receiving, upstream
from processes import answers, free_port, running

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
CHAT = {"model": "gpt-4.1", "stream": True, "messages": [{"role": "user", "content": "Tell me of rivers."}]}


def ask(url, body=CHAT, path="/v1/chat/completions", **headers):
    headers = {"content-type": "application/json", **headers}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read(), time.monotonic() - began


@pytest.fixture(scope="module")
def phoenix(logs):
    """Yields the addresses of Arize Phoenix: HTTP, which is also its API, and gRPC."""
    http, grpc = free_port(), free_port()
    folder = logs / "phoenix"
    environment = [f"PHOENIX_WORKING_DIR={folder}", "PHOENIX_HOST=127.0.0.1", "PHOENIX_TELEMETRY_ENABLED=false"]
    environment += [f"PHOENIX_PORT={http}", f"PHOENIX_GRPC_PORT={grpc}", f"HOME={folder}"]
    with running(["env", *environment, PHOENIX / "phoenix", "serve"], logs / "phoenix.log") as process:
        url = f"http://127.0.0.1:{http}"
        # The start takes 17 s on an idle machine.
        process.wait_for(lambda: answers(f"{url}/healthz"), "health", seconds=600)
        yield url, f"http://127.0.0.1:{grpc}"


@pytest.mark.part("phoenix")
@pytest.mark.parametrize("transport", ["http/protobuf", "grpc"])
def test_phoenix_shows_calls_as_llm_calls_with_their_tokens(transport, phoenix, tokengauge, simulator, tmp_path):
    http, grpc = phoenix
    # Phoenix keeps a trace in the project that saw it first, so each transport uses its own.
    trace = TRACE.replace("4bf9", "aaaa" if transport == "grpc" else "bbbb")
    project = transport.replace("/", "-")
    variables = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": grpc if transport == "grpc" else f"{http}/v1/traces",
        "OTEL_EXPORTER_OTLP_PROTOCOL": transport,
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={project}",
    }
    with exporting(tokengauge, tmp_path, simulator, variables) as gauge:
        with gauge.next_record() as records:
            ask(gauge.url, traceparent=PARENT.replace(TRACE, trace))
    assert records[0]["trace_id"] == trace

    def shown():
        try:
            with urllib.request.urlopen(f"{http}/v1/projects/{project}/spans?limit=10", timeout=60) as response:
                spans = json.load(response)["data"]
        except OSError:
            return None
        return spans if len(spans) == 2 else None

    spans = {span["parent_id"]: span for span in eventually(shown, "spans in Phoenix")}
    server = spans["00f067aa0ba902b7"]
    client = spans[server["context"]["span_id"]]
    assert {span["context"]["trace_id"] for span in spans.values()} == {trace}
    assert [server["name"], client["name"]] == ["chat gpt-4.1"] * 2
    assert client["span_kind"] == "LLM"
    attributes, tokens = client["attributes"], records[0]["tokens"]["reported"]
    assert attributes["llm.token_count.prompt"] == tokens["input"]
    assert attributes["llm.token_count.completion"] == tokens["output"]
    assert attributes["llm.model_name"] == "gpt-4.1"
    assert not [name for name in server["attributes"] if name.startswith("llm.token_count")]
    assert "first_token" in [event["name"] for event in client["events"]]


TRACED = [PARENT, None, "00-not-a-traceparent-01"]


@pytest.mark.part("phoenix")
def test_a_session_over_two_proxies_is_one_where_both_send_their_calls(phoenix, tokengauge, simulator, tmp_path):
    http, _ = phoenix
    records = []
    for number, sessions in enumerate((["one", "one", "other"], ["one", "other", "one"])):
        variables = {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{http}/v1/traces",
            "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name=fleet,service.instance.id=proxy-{number}",
        }
        (tmp_path / str(number)).mkdir()
        with exporting(tokengauge, tmp_path / str(number), simulator, variables) as gauge:
            for session in sessions:
                with gauge.next_record() as more:
                    ask(gauge.url, **{"x-tokengauge-session": session})
                records += more

    def shown():
        try:
            with urllib.request.urlopen(f"{http}/v1/projects/fleet/spans?limit=100", timeout=60) as response:
                spans = json.load(response)["data"]
        except OSError:
            return None
        return spans if len(spans) == 2 * len(records) else None

    calls = [span for span in eventually(shown, "spans in Phoenix") if span["span_kind"] == "LLM"]
    for session, count in (("one", 4), ("other", 2)):
        spans = [span["attributes"] for span in calls if span["attributes"]["gen_ai.conversation.id"] == session]
        ours = [record for record in records if record["session"] == session]
        assert len(spans) == len(ours) == count
        for theirs, name in (("prompt", "input"), ("completion", "output")):
            total = sum(span[f"llm.token_count.{theirs}"] for span in spans)
            assert total == sum(record["tokens"]["reported"][name] for record in ours)


@pytest.mark.parametrize("sent", TRACED)
def test_a_trace_continues_through_the_proxy_to_the_engine(sent, tokengauge, tmp_path):
    headers = {"tracestate": "vendor=1", "baggage": "session.id=s1"} | ({"traceparent": sent} if sent else {})
    answer = (200, "application/json", b'{"model":"m","choices":[]}')
    with receiving(tmp_path / "receiver") as receiver, upstream(lambda *_: answer) as (url, heads):
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        with exporting(tokengauge, tmp_path / "on", url, variables) as gauge:
            ask(gauge.url, **headers)
        with exporting(tokengauge, tmp_path / "off", url, {}) as gauge:
            ask(gauge.url, **headers)
        spans = {span["kind"]: span for span in receiver.spans()}

    def hexadecimal(base64):
        import base64 as coding

        return coding.b64decode(base64).hex()

    def field(head, name):
        values = [line.split(": ", 1)[1] for line in head if line.lower().startswith(name + ":")]
        return values[0] if values else None

    client, server = spans["SPAN_KIND_CLIENT"], spans["SPAN_KIND_SERVER"]
    trace, span = hexadecimal(client["traceId"]), hexadecimal(client["spanId"])
    on, off = heads
    assert field(on, "traceparent") == f"00-{trace}-{span}-01", "the engine's parent is the CLIENT span"
    assert client["parentSpanId"] == server["spanId"]
    continued = sent == PARENT
    assert (trace == TRACE) == continued and ("parentSpanId" in server) == continued
    assert field(on, "tracestate") == f"tokengauge=0-{span}" + (",vendor=1" if continued else "")
    assert field(on, "x-tokengauge-hop") == f"0-00-{trace}-{span}-01"
    assert field(on, "baggage") == "session.id=s1"
    # With tracing off, even malformed fields are forwarded unchanged.
    assert [field(off, name) for name in ("traceparent", "tracestate", "baggage")] == [sent, "vendor=1", "session.id=s1"]
    assert field(off, "x-tokengauge-hop") is None


TROUBLE = {"429": ["--status", 429], "503": ["--status", 503], "slow": ["--slow", 60], "down": None}


@pytest.mark.parametrize("trouble", TROUBLE)
def test_a_receiver_in_trouble_changes_nothing_for_traffic(trouble, tokengauge, simulator, tmp_path, record_property):
    with receiving(tmp_path / "receiver", *(TROUBLE[trouble] or [])) as receiver:
        url = receiver.url if TROUBLE[trouble] else f"http://127.0.0.1:{free_port()}"
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_LOGS_EXPORTER": "otlp"}
        variables |= {"OTEL_EXPORTER_OTLP_TIMEOUT": "500"}
        with (
            exporting(tokengauge, tmp_path / "on", simulator, variables) as on,
            exporting(tokengauge, tmp_path / "off", simulator, {}) as off,
        ):
            seconds = {on: [], off: []}
            for _ in range(8):
                bodies = []
                for gauge in (on, off):
                    body, took = ask(gauge.url)
                    bodies.append(without_ids(body))
                    seconds[gauge].append(took)
                assert bodies[0] == bodies[1]
            medians = [statistics.median(seconds[gauge]) for gauge in (on, off)]
            added = (medians[0] - medians[1]) * 1000
            record_property("added_ms", added)
            print(f"receiver {trouble}: {added:+.2f} ms on a call of {medians[1] * 1000:.0f} ms")
            assert added < 250, "a call waits for the receiver, half a second at least"
            for exporter in ("otlp_traces", "otlp_metrics", "otlp_logs"):
                lost = eventually(lambda: sum(on.failures(exporter).values()), f"losses of {exporter}")
                assert lost > 0
            assert not off.failures("otlp_traces")
            complaints = [line for line in on.process.written().splitlines() if "export failed" in line]
            assert 1 <= len(complaints) <= 3, "one a minute and exporter"
            assert on.metric("tokengauge_requests_total") == 8


def without_ids(body):
    events = [line[len(b"data: ") :] for line in body.splitlines() if line.startswith(b"data: {")]
    parsed = [json.loads(event) for event in events]
    return [{name: value for name, value in event.items() if name not in ("id", "created")} for event in parsed]


def test_metrics_arrive_as_the_scrape_shows_them(tokengauge, simulator, tmp_path):
    with receiving(tmp_path / "receiver") as receiver:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_SERVICE_NAME": "sidecar"}
        with exporting(tokengauge, tmp_path / "proxy", simulator, variables) as gauge:
            for _ in range(3):
                ask(gauge.url)
            # The last value of a call that is compared here.
            eventually(lambda: gauge.metric("tokengauge_requests_total") == gauge.metric("tokengauge_time_to_first_token_seconds_count") == 3, "three calls")
            output = gauge.metric("tokengauge_decode_tokens_total")
            ttft = gauge.metric("tokengauge_time_to_first_token_seconds_sum")
        metrics = receiver.metrics()
        resource = receiver.messages("/v1/metrics")[-1]["resourceMetrics"][0]["resource"]
    named = {one["key"]: one["value"].get("stringValue") for one in resource["attributes"]}
    assert named["service.name"] == "sidecar"

    def total(name, kind, field):
        return sum(float(point[field]) for point in metrics[name][kind]["dataPoints"])

    assert total("tokengauge.requests", "sum", "asInt") == 3
    assert total("tokengauge.decode_tokens", "sum", "asInt") == output > 0
    assert total("tokengauge.time_to_first_token", "histogram", "sum") == pytest.approx(ttft)
    assert metrics["tokengauge.time_to_first_token"]["unit"] == "s"
    for name in ("client.operation.duration", "client.operation.time_to_first_chunk", "server.time_to_first_token"):
        assert total(f"gen_ai.{name}", "histogram", "count") == 3, name


def test_nothing_is_sent_where_nothing_is_asked_for(tokengauge, simulator, tmp_path):
    with receiving(tmp_path / "receiver") as receiver:
        asked = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
        off = {"disabled": {"OTEL_SDK_DISABLED": "true"}}
        off["none"] = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
        for name, variables in off.items():
            with exporting(tokengauge, tmp_path / name, simulator, asked | variables) as gauge:
                ask(gauge.url)
        assert not receiver.file.exists()
