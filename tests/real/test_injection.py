"""Sidecar injection: the webhook's patches over TLS apply and are valid, and manifests keep their content."""

import base64
import copy
import datetime
import http.client
import ipaddress
import json
import pathlib
import ssl
import subprocess
import time

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from helm import Helm
from processes import running

HERE = pathlib.Path(__file__).parent
PODS = sorted((HERE.parent / "fixtures/pods").glob("*.yaml"))
MANIFESTS_OF_KINDS = sorted((HERE.parent / "fixtures/kinds").glob("*.yaml"))
VERSIONS = ("1.29", "1.33", "1.37")
LOOPBACK = ipaddress.ip_address("127.0.0.1")

every_pod = pytest.mark.parametrize("file", PODS, ids=lambda file: file.stem)


class Authority:
    """Signs certificates for 127.0.0.1 in a folder, and replaces existing ones."""

    def __init__(self, folder):
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        self.file = folder / "ca.crt"
        own = self.signed(self.name, self.key.public_key(), x509.BasicConstraints(ca=True, path_length=None))
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def signed(self, subject, key, extension):
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(self.name, subject, key, x509.random_serial_number(), now, now + datetime.timedelta(1))
        return builder.add_extension(extension, critical=True).sign(self.key, hashes.SHA256())

    def issue(self):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "webhook")])
        names = x509.SubjectAlternativeName([x509.IPAddress(LOOPBACK)])
        certificate = self.signed(subject, key.public_key(), names)
        pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self.put("tls.key", key.private_bytes(*pem))
        self.put("tls.crt", certificate.public_bytes(serialization.Encoding.PEM))
        return certificate.serial_number

    def put(self, name, content):
        fresh = self.folder / f"{name}.new"
        fresh.write_bytes(content)
        fresh.rename(self.folder / name)


class Webhook:
    def __init__(self, authority, port):
        self.port = port
        self.context = ssl.create_default_context(cafile=authority.file)

    def ask(self, method, path, body=None):
        """Sends a request like an API server. Returns status, body, and the serial number of the certificate."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=20)
        connection.request(method, path, body, {"content-type": "application/json"})
        shown = x509.load_der_x509_certificate(connection.sock.getpeercert(binary_form=True)).serial_number
        response = connection.getresponse()
        status, text = response.status, response.read().decode()
        connection.close()
        return status, text, shown

    def review(self, pod, path="/mutate"):
        kind = {"group": "", "version": "v1", "kind": "Pod"}
        resource = {"group": "", "version": "v1", "resource": "pods"}
        request = {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": kind, "resource": resource, "requestKind": kind}
        request |= {"namespace": "research", "operation": "CREATE", "object": pod, "oldObject": None, "dryRun": False}
        request |= {"userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"}, "options": None}
        review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
        status, text, _ = self.ask("POST", path, json.dumps(review))
        answer = json.loads(text)
        assert (status, answer["apiVersion"], answer["kind"]) == (200, review["apiVersion"], review["kind"])
        response = answer["response"]
        assert response["uid"] == request["uid"] and response["allowed"] is True
        assert all(len(warning) <= 256 for warning in response.get("warnings", []))
        patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
        assert ("patchType" in response) == bool(patch)
        return patch, response.get("warnings", [])


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("webhook"))
    authority.issue()
    return authority


@pytest.fixture(scope="module")
def webhook(tokengauge, logs, authority):
    files = ["--certificate", authority.folder / "tls.crt", "--key", authority.folder / "tls.key"]
    command = [tokengauge, "inject", "serve", "--listen", "127.0.0.1:0", *files]
    with running(command, logs / "injector.log", expected_exit=0) as process:
        yield Webhook(authority, int(process.wait_for_line(r"listening on 127\.0\.0\.1:(\d+)")))


@pytest.fixture(scope="module")
def kubernetes():
    """Kubernetes' schemas, and an independent implementation of JSON patch."""
    worker = Helm()
    yield worker
    worker.close()


@every_pod
def test_a_review_is_answered_with_a_patch_that_applies_and_is_valid(webhook, kubernetes, tokengauge, tmp_path, file):
    pod = yaml.safe_load(file.read_text())
    patch, warnings = webhook.review(pod)
    if file.stem == "host-network":
        assert not patch and "host's network" in warnings[0]
        return
    before = copy.deepcopy(pod)
    injected = kubernetes.do("patched", document=pod, patch=patch)
    for version in VERSIONS:
        # The pod's own violations are not caused by the sidecar.
        assert kubernetes.do("validate", document=before, version=version) is None, "the fixture itself"
        assert kubernetes.do("validate", document=injected, version=version) is None, version
    assert webhook.review(injected) == ([], []), "again, as a reinvocation does"
    restricted(next(one for one in containers(injected) if one["name"] == "tokengauge"))
    config = injected["metadata"]["annotations"].get("tokengauge.dev/proxy-config")
    if config:
        written = tmp_path / "proxy-config.toml"
        written.write_text(config)
        subprocess.run([tokengauge, "check", "--config", written], check=True, capture_output=True)


def containers(pod):
    return pod["spec"].get("initContainers", []) + pod["spec"]["containers"]


def restricted(container):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    context = container["securityContext"]
    assert context["allowPrivilegeEscalation"] is False and context["readOnlyRootFilesystem"] is True
    assert context["runAsNonRoot"] is True and context["runAsUser"] > 0
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"]["type"] == "RuntimeDefault"


def test_a_pod_of_another_namespace_must_ask_itself(webhook):
    pod = yaml.safe_load((HERE.parent / "fixtures/pods/agent.yaml").read_text())
    assert webhook.review(pod, "/mutate/annotated")[0]
    del pod["metadata"]["annotations"]
    assert webhook.review(pod, "/mutate/annotated") == ([], [])
    assert webhook.review(pod, "/mutate")[0]
    pod["metadata"]["annotations"] = {"tokengauge.dev/inject": "false"}
    assert webhook.review(pod, "/mutate") == ([], [])


def test_an_invalid_review_gets_an_error_and_the_webhook_continues(webhook):
    other = json.dumps({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"})
    of_service = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "kind": {"kind": "Service"}}})
    for body, reason in (("{", "not JSON"), ("[]", "AdmissionReview"), (other, "v1beta1"), (of_service, "only pods")):
        status, text, _ = webhook.ask("POST", "/mutate", body)
        assert status == 400 and reason in text, text
    assert webhook.ask("GET", "/readyz")[0] == webhook.ask("GET", "/livez")[0] == 200
    counted = webhook.ask("GET", "/metrics")[1]
    assert 'tokengauge_injections_total{result="unreadable"} 4' in counted


def test_a_renewed_certificate_is_shown_without_a_restart(webhook, authority):
    fresh = authority.issue()
    deadline = time.monotonic() + 20
    while webhook.ask("GET", "/livez")[2] != fresh:
        assert time.monotonic() < deadline
        time.sleep(0.1)


MANIFESTS = """\
# A Service stays as it is, with its comment.
apiVersion: v1
kind: Service
metadata: {name: bot}
spec:
  ports: [{port: 80, targetPort: http}]   # by name
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: bot
  annotations: {note: "yes", version: "1.10", when: "2026-11-21", hex: "0x10", empty: "", tilde: "~"}
spec:
  replicas: 2
  selector: {matchLabels: {app: bot}}
  template:
    metadata: {labels: {app: bot}}
    spec:
      volumes:
        - {name: secret, secret: {secretName: s, defaultMode: 0400}}
      containers:
        - name: bot
          image: bot:1
          args: ["--flag=on", "no", '1e3', "null", "a: b", "# no comment", " padded ", "é—\\u2028"]
          command:
            - sh
            - -c
            - |
              # a script
              exec bot --port 80
                indented "twice"

          env:
            - {name: MULTI, value: "one\\ntwo\\n"}
            - {name: NUMBER, value: "8000"}
          resources: {limits: {cpu: 0.5, memory: 1Gi}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure, containers: [{name: job, image: "job:1"}]}}}}
---
# nothing but a comment
---
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Pod
    metadata: {name: one}
    spec: {containers: [{name: one, image: "one:1"}]}
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: data}, data: {a: "on"}}
  - apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: opted-out}
    spec: {serviceName: s, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}, annotations: {tokengauge.dev/inject: "false"}}, spec: {containers: [{name: x, image: x}]}}}
"""


def injected_by(tokengauge, text, *options):
    command = [tokengauge, "inject", "-f", "-", *options]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)


def without_ours(value):
    """Returns the original parts in their order."""
    if isinstance(value, list):
        ours = ("tokengauge", "tokengauge-config", "tokengauge-state")
        kept = [without_ours(one) for one in value if not (isinstance(one, dict) and is_ours(one, ours))]
        return kept
    if isinstance(value, dict):
        kept = [(key, without_ours(one)) for key, one in value.items() if not str(key).startswith(("tokengauge.dev/injected", "tokengauge.dev/warnings"))]
        return [(key, one) for key, one in kept if not (one == [] and value[key] and key in ("initContainers", "volumes", "labels", "metadata", "env"))]
    return value


def is_ours(one, ours):
    return one.get("name") in ours or str(one.get("value", "")).startswith("http://127.0.0.1:15480/")


def test_manifests_keep_everything_but_comments_of_what_changed(tokengauge, kubernetes):
    done = injected_by(tokengauge, MANIFESTS)
    assert done.returncode == 0, done.stderr
    assert "3 injected" in done.stderr
    assert done.stdout.startswith(MANIFESTS[: MANIFESTS.index("---")]), "untouched to the byte"
    # Python reads YAML 1.1, like Kubernetes.
    before, after = list(yaml.safe_load_all(MANIFESTS)), list(yaml.safe_load_all(done.stdout))
    assert without_ours(after) == without_ours(before)
    for document in (after[1], after[2], after[4]["items"][0]):
        assert kubernetes.do("validate", document=document, version="1.33") is None
    assert "initContainers" in after[2]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    again = injected_by(tokengauge, done.stdout)
    assert again.stdout == done.stdout and "0 injected" in again.stderr


def templates(value):
    """Returns every value in an object that has the shape of a pod template."""
    if isinstance(value, list):
        return [found for one in value for found in templates(one)]
    if not isinstance(value, dict):
        return []
    spec = value.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
        return [value]
    return [found for one in value.values() for found in templates(one)]


@pytest.mark.parametrize("file", MANIFESTS_OF_KINDS, ids=lambda file: file.stem)
def test_templates_of_every_kind_stay_valid(tokengauge, kubernetes, file):
    """Operators create pods from templates unchanged, and the schemas of their kinds hardly check templates."""
    done = injected_by(tokengauge, file.read_text())
    before = [found for document in yaml.safe_load_all(file.read_text()) for found in templates(document)]
    after = [found for document in yaml.safe_load_all(done.stdout) for found in templates(document)]
    assert len(before) == len(after)
    if done.returncode == 3:
        assert done.stdout == file.read_text() and "left unchanged" in done.stderr
        return
    assert done.returncode == 0 and before, done.stderr
    for template in after:
        metadata = {"name": "p", **template.get("metadata", {})}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        restricted(next(one for one in containers(pod) if one["name"] == "tokengauge"))
        for version in VERSIONS:
            assert kubernetes.do("validate", document=pod, version=version) is None, version


def test_the_log_names_namespace_pod_and_owner(webhook, logs):
    pod = yaml.safe_load((HERE.parent / "fixtures/pods/agent.yaml").read_text())
    del pod["metadata"]["namespace"]
    webhook.review(pod)
    lines = [line for line in (logs / "injector.log").read_text().splitlines() if "injected" in line]
    expected = ("research", "researcher-6f7c9d5b8-", "ReplicaSet/researcher-6f7c9d5b8")
    assert all(text in lines[-1] for text in expected), lines[-1]


def test_json_stays_json_and_refusals_are_reported(tokengauge):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    assert json.loads(injected_by(tokengauge, json.dumps(pod)).stdout)["spec"]["initContainers"]
    pod["spec"]["hostNetwork"] = True
    done = injected_by(tokengauge, json.dumps(pod))
    assert done.returncode == 1 and "Pod/p: the pod uses the host's network" in done.stderr and not done.stdout
    assert json.loads(injected_by(tokengauge, json.dumps(pod), "--lenient").stdout) == pod
    broken = injected_by(tokengauge, "kind: Pod\n  spec: [")
    assert broken.returncode == 1 and "document 1: cannot be read" in broken.stderr


def test_an_engine_with_the_gauge_in_front_of_it_serves_through_it(tokengauge, simulator, logs, tmp_path):
    """Runs the sidecar with its own arguments and configuration on this machine, and calls the engine's port."""
    port = int(simulator.rsplit(":", 1)[1])
    annotations = {"tokengauge.dev/engine-port": str(port), "tokengauge.dev/engine-metrics": "none", "tokengauge.dev/slo": "chat"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": annotations}}
    pod["spec"] = {"containers": [{"name": "engine", "image": "e", "ports": [{"containerPort": port, "name": "http"}]}]}
    injected = yaml.safe_load(injected_by(tokengauge, yaml.safe_dump(pod)).stdout)
    sidecar = injected["spec"]["initContainers"][0]
    written = tmp_path / "proxy-config.toml"
    # A folder of the test replaces a folder of the image.
    config = injected["metadata"]["annotations"]["tokengauge.dev/proxy-config"]
    written.write_text(config.replace("/var/lib/tokengauge", str(tmp_path / "state")))
    moved = {"/etc/tokengauge/proxy-config.toml": str(written), "*:15480": "127.0.0.1:0", "127.0.0.1:15465": "127.0.0.1:0", "*:15464": "127.0.0.1:0"}
    arguments = [moved.get(argument, argument) for argument in sidecar["args"]]
    with running([tokengauge, *arguments], logs / "engine-sidecar.log", expected_exit=0) as process:
        address = process.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)")
        admin = process.wait_for_line(r"\badmin on (127\.0\.0\.1:\d+)")
        connection = http.client.HTTPConnection(address, timeout=20)
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200 and response.read().rstrip().endswith(b"data: [DONE]")
        operators = http.client.HTTPConnection(admin, timeout=20)
        operators.request("GET", "/readyz")
        assert operators.getresponse().read() == b"ready\n"
        process.wait_for(lambda: recorded(admin), "a record")


def recorded(admin):
    connection = http.client.HTTPConnection(admin, timeout=20)
    connection.request("GET", "/api/v1/calls")
    calls = json.loads(connection.getresponse().read())["calls"]
    return [call for call in calls if call["upstream"] == "engine" and call["outcome"] == "complete"]
