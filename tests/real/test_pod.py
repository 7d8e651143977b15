"""A pod with a sidecar, run by podman: an unaware agent talks through it to an engine, and a real Prometheus sees
the same figures as the agent."""

import json
import pathlib
import re
import string
import subprocess
import sys
import time

import pytest
import yaml

from containers import asked, for_podman, within
from helm import Helm, one
from prometheus import prometheus

pytestmark = pytest.mark.part("containers")

HERE = pathlib.Path(__file__).parent / "pod"
PROJECT = HERE.parent.parent.parent
CALLS = 12
CONFIG = """
[[upstream]]
name = "openai"
url = "http://127.0.0.1:8000"

[[route]]
path = "/openai"
upstream = "openai"
workload = "pod"

[[slo]]
name = "pod-ttft"
ttft.at_most = "5s"
"""


def hosts_folders():
    """Returns the folders of the machine that Python and the SDK need, and the agent's."""
    folders = [pathlib.Path("/usr"), pathlib.Path("/lib"), pathlib.Path("/lib64"), pathlib.Path("/etc/ssl")]
    folders += [pathlib.Path(sys.base_prefix), pathlib.Path(sys.prefix)]
    needed = {str(folder): folder.resolve() for folder in folders if folder.exists() and not str(folder).startswith("/usr/")}
    return {**needed, "/agent": HERE.resolve()}


def deployment():
    folders = list(hosts_folders().items())
    mounts = [{"name": f"host-{at}", "mountPath": target, "readOnly": True} for at, (target, _) in enumerate(folders)]
    volumes = [{"name": f"host-{at}", "hostPath": {"path": str(source)}} for at, (_, source) in enumerate(folders)]
    template = string.Template((HERE / "agent.yaml").read_text())
    return yaml.safe_load(template.substitute(python=sys.executable, mounts=json.dumps(mounts), volumes=json.dumps(volumes)))


@pytest.fixture(scope="module")
def chart():
    helm = Helm()
    image = {"repository": "localhost/tokengauge", "tag": "test", "pullPolicy": "Never"}
    yield helm.documents({"mode": "sidecar", "image": image, "config": CONFIG, "sidecar": {"namespaces": ["default"]}})
    helm.close()


@pytest.fixture(scope="module")
def config_map(chart):
    return one(chart, "ConfigMap", "tokengauge")


def by_hand(document):
    """The sidecar of docs/kubernetes.md."""
    [written] = re.findall(r"<!-- sidecar -->\n```yaml\n(.*?)```", (PROJECT / "docs/kubernetes.md").read_text(), re.DOTALL)
    written = yaml.safe_load(written)
    pod = document["spec"]["template"]["spec"]
    pod["initContainers"] = written["initContainers"]
    pod["initContainers"][0]["image"] = "localhost/tokengauge:test"
    pod["volumes"] += written["volumes"]
    [agent] = written["containers"]
    pod["containers"][-1]["env"] += agent["env"]
    return document


def injected(document, chart, tokengauge, folder):
    """The Deployment injected by `tokengauge inject` with the chart's settings of the injector."""
    for name, text in one(chart, "ConfigMap", "tg-tokengauge-injector")["data"].items():
        (folder / name).write_text(text.replace("/etc/tokengauge/injector/", f"{folder}/"))
    (folder / "deploy.yaml").write_text(yaml.safe_dump(document))
    command = [tokengauge, "inject", "--config", folder / "injector.toml", "-f", folder / "deploy.yaml"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "1 injected" in done.stderr and "not injected" not in done.stderr
    return yaml.safe_load(done.stdout)


@pytest.fixture(scope="module", params=["by hand", "injected"])
def sidecar(request, chart, tokengauge, tmp_path_factory):
    if request.param == "by hand":
        return by_hand(deployment())
    return injected(deployment(), chart, tokengauge, tmp_path_factory.mktemp("inject"))


@pytest.fixture(scope="module")
def empty(containers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty")
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    containers.build("localhost/empty:test", folder)


@pytest.fixture(scope="module")
def pod(containers, image, empty, sidecar, config_map):
    """Starts the Deployment by podman with its configuration, and yields the names of its containers."""
    with containers.played(config_map, for_podman(sidecar)) as names:
        assert names.keys() == {"tokengauge", "engine", "agent"}
        yield names


@pytest.fixture(scope="module")
def loopback(containers, pod):
    return containers.network_of(pod["tokengauge"])


@pytest.fixture(scope="module")
def saw(containers, pod):
    return seen(containers, pod)


def seen(containers, pod):
    """The agent's results of its calls."""
    deadline = time.monotonic() + 180
    while not (written := containers.logs(pod["agent"])).endswith("]\n"):
        assert time.monotonic() < deadline, written + containers.logs(pod["tokengauge"])
        time.sleep(0.2)
    return json.loads(written.splitlines()[-1])


def test_an_agent_that_knows_of_nothing_gets_its_answers(saw):
    assert len(saw) == CALLS
    assert all(call["output"] > 50 and call["text"] > 100 for call in saw)


def test_prometheus_sees_what_the_agent_saw(saw, loopback, tmp_path):
    def watched():
        with prometheus(tmp_path / "prometheus", {"tokengauge": ["127.0.0.1:15464"]}) as watching:
            watching.wait_for('sum(tokengauge_requests_total{workload="pod",outcome="complete"})', lambda calls: calls == CALLS)
            reported = 'sum(tokengauge_tokens_total{direction="output",source="reported",upstream="openai"})'
            assert watching.value(reported) == sum(call["output"] for call in saw)
            assert watching.value('sum(tokengauge_slo_events_total{slo="pod-ttft",verdict="good"})') == CALLS

    within(loopback, watched)


def test_its_probes_are_answered(pod, loopback, sidecar):
    [container] = [one for one in sidecar["spec"]["template"]["spec"]["initContainers"] if one["name"] == "tokengauge"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    probes = [container[key]["httpGet"] for key in container if key.endswith("Probe")]
    assert len(probes) > 1
    for probe in probes:
        url = f"http://127.0.0.1:{ports.get(probe['port'], probe['port'])}{probe['path']}"
        assert asked(loopback, url) in ("ready\n", "ok\n")


def test_every_container_is_nobody_special_and_writes_nowhere(containers, pod):
    for name, user in (("tokengauge", "65532"), ("engine", "1000"), ("agent", "1000")):
        inspected = containers.inspect(pod[name])
        assert inspected["HostConfig"]["ReadonlyRootfs"] is True, name
        assert inspected["EffectiveCaps"] in (None, []), name
        status = dict(re.findall(r"^(\w+):\s+(.*)$", open(f"/proc/{inspected['State']['Pid']}/status").read(), re.MULTILINE))
        assert set(status["Uid"].split()) == {user} and int(status["CapEff"], 16) == 0 and status["NoNewPrivs"] == "1"


def test_the_sidecar_ends_well(containers, pod, saw):
    containers.podman("stop", "--time", "20", pod["tokengauge"])
    assert containers.inspect(pod["tokengauge"])["State"]["ExitCode"] == 0


@pytest.mark.parametrize("text", ["[[upstream", None], ids=["broken", "missing"])
def test_an_unusable_config_map_blocks_no_pod(containers, image, empty, chart, tokengauge, tmp_path, text):
    document = deployment()
    document["metadata"]["name"] = "refused"
    document["spec"]["template"]["metadata"]["annotations"] = {"tokengauge.dev/config": "refused"}
    # The configuration comes from the chart's injector, so the fallback leads to the engine.
    document = injected(document, chart, tokengauge, tmp_path)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "refused"}, "data": {"proxy-config.toml": text}}
    config_maps = [config_map] if text else []
    with containers.played(*config_maps, for_podman(document)) as pod:
        assert len(seen(containers, pod)) == CALLS
        ready = asked(containers.network_of(pod["tokengauge"]), "http://127.0.0.1:15464/readyz?verbose")
        assert ready.startswith("ready\n") and "calls are forwarded" in ready
        assert "was refused at the start" in containers.logs(pod["tokengauge"])
