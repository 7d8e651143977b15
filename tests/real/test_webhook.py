"""The admission webhook as the chart sets it up: the real injector with the chart's certificate and settings, called
like an API server does."""

import base64
import copy
import json
import subprocess

import pytest

from helm import Helm, one
from processes import free_port, running

IMAGE = "registry.example/tokengauge:v1"
CONFIG = '[[upstream]]\nname = "openai"\nurl = "https://api.openai.com"\n[[route]]\npath = "/openai"\nupstream = "openai"\n'
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "agent-", "namespace": "agents", "labels": {"app": "agent"}},
    "spec": {"containers": [{"name": "agent", "image": "agent:1", "command": ["agent"]}]},
}
OLD = "1.28.5"


@pytest.fixture(scope="module")
def helm():
    helm = Helm()
    yield helm
    helm.close()


class Webhook:
    """The chart's documents, and the injector that runs with them."""

    def __init__(self, documents, port):
        self.configuration = one(documents, "MutatingWebhookConfiguration")
        self.monitor = one(documents, "PodMonitor")
        self.port = port

    def ask(self, hook, pod, folder):
        """Returns the patched pod, or None if it is unchanged."""
        client = next(one for one in self.configuration["webhooks"] if one["name"] == hook)["clientConfig"]
        host = f"{client['service']['name']}.{client['service']['namespace']}.svc"
        (folder / "ca.crt").write_bytes(base64.b64decode(client["caBundle"]))
        request = {"uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE", "namespace": "agents"}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**request, "object": pod}}
        command = ["curl", "--silent", "--show-error", "--max-time", "10", "--cacert", folder / "ca.crt", "--data", "@-"]
        command += ["--header", "content-type: application/json", "--resolve", f"{host}:{self.port}:127.0.0.1"]
        command.append(f"https://{host}:{self.port}{client['service']['path']}")
        done = subprocess.run([str(part) for part in command], input=json.dumps(review), capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        response = json.loads(done.stdout)["response"]
        assert (response["uid"], response["allowed"]) == ("u-1", True)
        return patched(pod, json.loads(base64.b64decode(response["patch"]))) if "patch" in response else None


def patched(document, patch):
    """Applies an RFC 6902 patch, as far as the injector uses it."""
    document = copy.deepcopy(document)
    for step in patch:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        place = document
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if isinstance(place, list) and step["op"] == "add":
            place.insert(len(place) if last == "-" else int(last), step["value"])
        else:
            assert step["op"] in ("add", "replace"), step
            place[int(last) if isinstance(place, list) else last] = step["value"]
    return document


# The version of Kubernetes, and whether the values name the namespaces with sidecars, each of which then gets a
# ConfigMap.
@pytest.fixture(scope="module", params=[("1.36.0", True), ("1.36.0", False), (OLD, True)], ids=["named", "any", "old"])
def webhook(request, helm, tokengauge, logs):
    version, named = request.param
    folder = logs / f"webhook-{version}-{named}"
    folder.mkdir()
    image, tag = IMAGE.split(":")
    values = {"mode": "sidecar", "image": {"repository": image, "tag": tag}, "config": CONFIG, "kubeVersion": version}
    values["sidecar"] = {"namespaces": ["agents"] if named else []}
    documents = helm.documents({**values, "podMonitor": {"enabled": True}})
    for name, text in one(documents, "ConfigMap", "tg-tokengauge-injector")["data"].items():
        (folder / name).write_text(text.replace("/etc/tokengauge/injector/", f"{folder}/"))
    for name, text in one(documents, "Secret")["data"].items():
        (folder / name).write_bytes(base64.b64decode(text))
    port = free_port()
    container = one(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    places = {"/etc/tokengauge/injector/": f"{folder}/", "/etc/tokengauge/tls/": f"{folder}/"}
    arguments = [argument for argument in container["args"] if not argument.startswith("--listen=")]
    for inside, outside in places.items():
        arguments = [argument.replace(inside, outside) for argument in arguments]
    with running([tokengauge, *arguments, f"--listen=127.0.0.1:{port}"], folder / "injector.log", expected_exit=0) as process:
        process.wait_for_line(r"listening on (\S+)")
        found = Webhook(documents, port)
        found.version, found.named, found.probes = version, named, [container["readinessProbe"], container["livenessProbe"]]
        yield found


def sidecar_of(pod):
    every = pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
    return next(container for container in every if container["name"] == "tokengauge")


def test_a_pod_of_a_labelled_namespace_gets_the_sidecar(webhook, helm, tmp_path):
    pod = webhook.ask("namespaces.tokengauge.dev", POD, tmp_path)
    assert sidecar_of(pod)["image"] == IMAGE
    environment = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
    assert environment["OPENAI_BASE_URL"] == "http://127.0.0.1:15480/openai/v1"
    maps = [volume["configMap"]["name"] for volume in pod["spec"]["volumes"] if "configMap" in volume]
    assert maps == (["tokengauge"] if webhook.named else [])
    assert ("api.openai.com" in pod["metadata"].get("annotations", {}).get("tokengauge.dev/proxy-config", "")) is not webhook.named
    assert helm.do("validate", document=pod, version=webhook.version[:4]) is None


def test_it_is_a_native_one_where_the_cluster_has_them(webhook, tmp_path):
    pod = webhook.ask("namespaces.tokengauge.dev", POD, tmp_path)
    native = webhook.version != OLD
    assert ("restartPolicy" in sidecar_of(pod)) is native
    assert bool(pod["spec"].get("initContainers")) is native


def test_elsewhere_a_pod_gets_it_by_asking(webhook, tmp_path):
    assert webhook.ask("pods.tokengauge.dev", POD, tmp_path) is None
    asking = copy.deepcopy(POD)
    asking["metadata"]["annotations"] = {"tokengauge.dev/inject": "true"}
    assert sidecar_of(webhook.ask("pods.tokengauge.dev", asking, tmp_path))


def test_a_second_time_nothing_changes(webhook, tmp_path):
    pod = webhook.ask("namespaces.tokengauge.dev", POD, tmp_path)
    assert webhook.ask("namespaces.tokengauge.dev", pod, tmp_path) is None


def test_the_pod_monitor_finds_it(webhook, tmp_path):
    pod = webhook.ask("namespaces.tokengauge.dev", POD, tmp_path)
    spec = webhook.monitor["spec"]
    assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    [endpoint] = spec["podMetricsEndpoints"]
    assert {port["name"]: port["containerPort"] for port in sidecar_of(pod)["ports"]}[endpoint["port"]] == 15464


def test_the_probes_of_the_injector_are_answered(webhook):
    for probe in webhook.probes:
        asked = probe["httpGet"]
        assert asked["scheme"] == "HTTPS"
        command = ["curl", "--silent", "--fail", "--insecure", f"https://127.0.0.1:{webhook.port}{asked['path']}"]
        assert subprocess.run(command, capture_output=True, timeout=20).returncode == 0, asked["path"]
