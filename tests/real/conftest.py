"""Fixtures of all tests: a real engine, the simulated backend, and a proxy in front of each."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import string
import subprocess
import tempfile

import pytest

import clients
import traffic
import vllm_metrics
from clickhouse import InsertReceiver
from containers import Containers
from gauge import Gauge
from otlp import eventually
from processes import answers, free_port, running
from prometheus import Prometheus, prometheus

pytest_plugins = ["selection"]
HERE = pathlib.Path(__file__).parent
PROJECT = HERE.parent.parent
MODEL = PROJECT / ".cache/real/model/tiny.gguf"
ANY_PORT = "127.0.0.1:0"
TRAFFIC_SECONDS = float(os.environ.get("TOKENGAUGE_TRAFFIC_SECONDS", 20))
# Every request gets the same text, and usage even in dialects where the caller may omit it.
SIMULATED = "seed=7,usage=on,tokens=96,ttft=30ms,gap=2ms"


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="session")
def tokengauge():
    path = pathlib.Path(os.environ.get("TOKENGAUGE_BIN", PROJECT / "target/debug/tokengauge"))
    assert path.exists(), f"{path} is not there: cargo build"
    return path


@pytest.fixture(scope="session")
def image_binary(logs):
    """The static binary for the image, without debug information."""
    given = pathlib.Path(os.environ.get("TOKENGAUGE_STATIC_BIN", PROJECT / "target/static/tokengauge"))
    assert given.exists(), f"{given} is not there: make static"
    folder = logs / "image"
    folder.mkdir()
    subprocess.run(["strip", "-o", folder / "tokengauge", given], check=True)
    return folder / "tokengauge"


@pytest.fixture(scope="session")
def containers():
    # Podman refuses a folder of more than 50 characters.
    with tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        containers = Containers(pathlib.Path(folder) / "store")
        yield containers
        containers.remove()


@pytest.fixture(scope="session")
def image(containers, image_binary):
    """The image, built by the Dockerfile from an existing binary, because tests cannot pull images."""
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", image_binary.parent)
    made_elsewhere = ["--build-arg", "FROM=prebuilt", "--build-context", f"binary={image_binary.parent}"]
    return containers.build("localhost/tokengauge:test", *made_elsewhere, ".")


@pytest.fixture(scope="session")
def engine(logs):
    port = free_port()
    command = [HERE / "llama-server", "--model", MODEL, "--alias", "tiny", "--host", "127.0.0.1", "--port", port]
    # Without its prompt cache, equal requests cause equal work and equal answers.
    command += ["--ctx-size", 32768, "--parallel", 2, "--threads", 1, "--seed", 1, "--no-cache-prompt", "--no-ui"]
    command += ["--metrics"]
    with running(command, logs / "llama-server.log") as process:
        url = f"http://127.0.0.1:{port}"
        process.wait_for(lambda: answers(f"{url}/health"), "health")
        yield url


@pytest.fixture(scope="session")
def simulator(logs, tokengauge):
    command = [tokengauge, "demo", "backend", "--listen", ANY_PORT, "--behave", SIMULATED]
    with running(command, logs / "sim.log", expected_exit=0) as process:
        yield "http://" + process.wait_for_line(r"listening on (\S+)")


@pytest.fixture(scope="session")
def gauge(logs, tokengauge):
    """Starts a proxy in front of a backend: `gauge(name, upstream)` or `gauge(name, config=file)`."""
    with contextlib.ExitStack() as processes:

        def start(name, upstream=None, config=None):
            log = logs / f"{name}-calls.jsonl"
            source = ["--config", config] if config else ["--upstream", upstream]
            command = [tokengauge, "run", *source, "--listen", ANY_PORT, "--admin", ANY_PORT]
            process = processes.enter_context(
                running([*command, "--call-log", log], logs / f"{name}.log", expected_exit=0)
            )
            traffic = process.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)")
            admin = process.wait_for_line(r"\badmin on (127\.0\.0\.1:\d+)")
            return Gauge(f"http://{traffic}", f"http://{admin}", log)

        yield start


@pytest.fixture(scope="session")
def engine_gauge(gauge, engine):
    return gauge("engine-gauge", engine)


@pytest.fixture(scope="session")
def simulator_gauge(gauge, simulator):
    return gauge("simulator-gauge", simulator)


@pytest.fixture(scope="session")
def unreachable_gauge(gauge):
    return gauge("unreachable-gauge", f"http://127.0.0.1:{free_port()}")


@dataclasses.dataclass
class Observed:
    """A proxy that has served traffic of every kind, and the Prometheus that scraped it."""

    gauge: Gauge
    prometheus: Prometheus
    native: Prometheus  # scrapes native histograms
    traces: set
    sdks: dict  # route → results of the SDK's calls
    store: InsertReceiver


def through_sdks(base):
    """Calls through the vendors' SDKs: with the engine, and with the simulator."""
    both = (clients.openai_chat, clients.openai_responses, clients.anthropic_messages)
    others = (clients.gemini, clients.cohere_v2, clients.mistral, clients.ollama_chat, clients.bedrock_converse)
    asked = {"sdk-engine": both, "sdk": both + others}
    return {
        route: [client(f"{base}/{route}", streamed) for client in each for streamed in (True, False)]
        for route, each in asked.items()
    }


def rules_of(tokengauge, config):
    """Writes the rules of a configuration to a file next to it, with budgets that update within seconds."""
    file = config.with_suffix(".rules.yaml")
    command = [tokengauge, "print", "rules", "--config", config, "--resolution", "5s"]
    file.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return file


def all_is_recorded(proxy, *watching):
    """Returns whether no call is in flight, and the call log and every Prometheus have everything that the proxy
    counted."""
    count = proxy.metric("tokengauge_requests_total")
    seen = [each.value("sum(tokengauge_requests_total)") for each in watching] + [len(proxy.logged())]
    stored = watching[0].value("sum(tokengauge_sink_records_total)")
    return seen == [count] * len(seen) and stored and not proxy.metric("tokengauge_streams_in_flight")


@pytest.fixture(scope="session")
def observed(logs, tokengauge, gauge, simulator, engine):
    config = logs / "observed.toml"
    template = string.Template((HERE / "observed.toml").read_text())
    gone = f"http://127.0.0.1:{free_port()}"
    store = InsertReceiver()
    with vllm_metrics.serving() as vllm, store.started() as clickhouse:
        ledger = logs / "observed.sqlite"
        filled = template.substitute(
            simulator=simulator, engine=engine, gone=gone, vllm=vllm, ledger=ledger, clickhouse=clickhouse
        )
        config.write_text(filled)
        subprocess.run([tokengauge, "export", "sink", "ddl", "--apply", "--config", config], check=True, capture_output=True)
        proxy = gauge("observed", config=config)
        where = {"cluster": "one", "namespace": "agents"}
        targets = {"tokengauge": [{"targets": [proxy.admin.removeprefix("http://")], "labels": where}], "vllm": [vllm]}
        rules = [rules_of(tokengauge, config)]
        with (
            prometheus(logs / "observed", targets, rules) as watching,
            prometheus(logs / "observed-native", targets, rules, native=True) as native,
        ):
            # After this, every event is in the difference between two recordings.
            watching.wait_for("count(slo:events:increase5s)", lambda objectives: objectives == 3)
            traces = traffic.run(proxy.url, TRAFFIC_SECONDS)
            sdks = through_sdks(proxy.url)
            # `rate()` needs two samples of a new series.
            for _ in range(2):
                traffic.burst(proxy.url)
                eventually(lambda: all_is_recorded(proxy, watching, native), "scrapes of all calls")
            watching.wait_for_recordings(5)
            for each in (watching, native):
                each.end_at_a_scrape()
            yield Observed(proxy, watching, native, traces, sdks, store)
