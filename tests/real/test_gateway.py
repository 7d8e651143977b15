"""The gateway of the chart, run by podman: it becomes ready, passes `helm test`, and stops on SIGTERM."""

import json
import pathlib

import pytest

from containers import asked, for_podman
from helm import Helm, one

pytestmark = pytest.mark.part("containers")

CONFIG = """
state_dir = "/var/lib/tokengauge"

[[upstream]]
name = "engine"
url = "http://127.0.0.1:8000"

[[route]]
upstream = "engine"

[[slo]]
preset = "chat"
"""
VALUES = {"image": {"repository": "localhost/tokengauge", "tag": "test", "pullPolicy": "Never"}, "config": CONFIG}


@pytest.fixture(scope="module")
def documents():
    helm = Helm()
    yield helm.documents(VALUES)
    helm.close()


@pytest.fixture(scope="module")
def gateway(containers, image, documents):
    deployment = for_podman(one(documents, "Deployment"))
    with containers.played(one(documents, "ConfigMap", "tg-tokengauge"), deployment) as names:
        yield names["tokengauge"]


def probed(containers, image, documents, gateway):
    """Runs the pod of `helm test` in the gateway's network, which cannot resolve Services."""
    arguments = one(documents, "Pod")["spec"]["containers"][0]["args"]
    arguments = [argument.replace("tg-tokengauge-admin", "127.0.0.1").replace("tg-tokengauge", "127.0.0.1") for argument in arguments]
    assert "tcp://127.0.0.1:8080" in arguments and "http://127.0.0.1:9464/readyz" in arguments
    with containers.running(image, *arguments, network=containers.network_of(gateway)) as probe:
        return containers.podman("wait", probe).strip(), containers.logs(probe)


def test_it_is_ready_and_helm_test_says_so(containers, image, documents, gateway):
    code, said = probed(containers, image, documents, gateway)
    assert code == "0", said + containers.logs(gateway)
    assert said.count("\n") == 2


def test_it_has_the_configuration_of_the_chart(containers, gateway):
    network = containers.network_of(gateway)
    slos = json.loads(asked(network, "http://127.0.0.1:9464/api/v1/slos"))["slos"]
    assert [slo["name"] for slo in slos] == ["chat-ttft", "chat-output-tps"]


def test_its_probes_are_answered(containers, documents, gateway):
    container = one(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for key in ("readinessProbe", "livenessProbe"):
        probe = container[key]["httpGet"]
        url = f"{probe['scheme'].lower()}://127.0.0.1:{ports[probe['port']]}{probe['path']}"
        assert asked(containers.network_of(gateway), url) in ("ready\n", "ok\n")


def test_it_keeps_its_state_and_ends_when_it_is_told(containers, gateway):
    inspected = containers.inspect(gateway)
    assert inspected["HostConfig"]["ReadonlyRootfs"] is True and inspected["Config"]["User"].startswith("65532")
    containers.podman("stop", "--time", "20", gateway)
    assert containers.inspect(gateway)["State"]["ExitCode"] == 0, containers.logs(gateway)
    [state] = [mount["Source"] for mount in inspected["Mounts"] if mount["Destination"] == "/var/lib/tokengauge"]
    assert [file for file in pathlib.Path(state).iterdir() if file.stat().st_size], containers.logs(gateway)
