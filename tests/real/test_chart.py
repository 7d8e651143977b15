"""The Helm chart: what it renders, refuses, and packs, by Helm's own engine; and what the schemas of the kinds say of it."""

import base64
import copy
import difflib
import hashlib
import http.server
import json
import os
import pathlib
import re
import subprocess
import tarfile
import threading

import pytest
import yaml

from helm import CHART, PROJECT, Helm, Refused, foreign_complaints, is_foreign, merged, one

HERE = pathlib.Path(__file__).parent / "chart"
CASES = sorted((HERE / "cases").glob("*.yaml"))
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
# To write what is rendered now over what was expected: TOKENGAUGE_UPDATE_GOLDEN=1
UPDATE = os.environ.get("TOKENGAUGE_UPDATE_GOLDEN") == "1"
VERSIONS = ("1.30", "1.33", "1.37")
OBJECTIVES = PROJECT / "tests/real/rules/objectives.toml"

every_case = pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
everything = pytest.mark.parametrize("file", CASES + EXAMPLES, ids=lambda file: file.stem)


@pytest.fixture(scope="module")
def helm():
    helm = Helm()
    yield helm
    helm.close()


@pytest.fixture(scope="module")
def values(helm, tokengauge, tmp_path_factory):
    """The values of a file, with rules for its objectives where it asks for rules or has objectives."""

    def read(file):
        values = helm.values(file)
        text = yaml.safe_dump(values.get("config"))
        if not values.get("prometheusRule", {}).get("enabled") or "slo" not in text:
            return values
        rules = tmp_path_factory.mktemp("rules") / "rules.yaml"
        rules.write_text(ran(tokengauge, "rules", "--format", "helm", "--config", file))
        return merged(values, helm.values(rules))

    return read


def ran(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def golden(texts):
    """All of a rendering but what is new each time, and but the copies of what the project holds elsewhere."""
    text = "".join(f"# Source: {path}\n{text.strip()}\n---\n" for path, text in texts.items())
    text = re.sub(r"(ca\.crt|tls\.crt|tls\.key|caBundle): LS0t\S+", r"\1: (made by the chart)", text)
    text = re.sub(r"(  tokengauge-\S+\.json): \|\n(?:    .*\n|\n)+", r"\1: (the dashboard)\n", text)
    text = re.sub(r"(  # Written by `tokengauge rules`.*\n  groups:)\n(?:    .*\n)+", r"\1 (the alerts on the proxy)\n", text)
    text = re.sub(r"(checksum/\S+): \S+", r"\1: (a digest)", text)
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    example = "".join(f"    {line}".rstrip() + "\n" for line in (PROJECT / "proxy-config.toml").read_text().splitlines())
    return text.replace(example, "    (the project's example)\n")


@every_case
def test_the_manifests_are_those_of_the_golden_file(helm, values, file):
    rendered, expected = golden(helm.texts(values(file))), HERE / f"golden/{file.name}"
    if UPDATE:
        assert os.environ.get("CI") != "true", "golden files are not written in CI"
        expected.write_text(rendered)
    lines = difflib.unified_diff(expected.read_text().splitlines(), rendered.splitlines(), "golden", "rendered", lineterm="")
    assert rendered == expected.read_text(), "\n".join(lines)


@everything
def test_every_manifest_is_what_kubernetes_takes(helm, values, file):
    given = values(file)
    versions = [given["kubeVersion"][:4]] if given.get("kubeVersion") else VERSIONS
    documents = [document for document in helm.documents(given) if not is_foreign(document)]
    assert len(documents) > 2
    for version in versions:
        for document in documents:
            complaint = helm.do("validate", document=document, version=version)
            assert complaint is None, f"{version} {document['kind']} {document['metadata']['name']}: {complaint}"


def test_the_schemas_of_kubernetes_would_notice_a_mistake(helm):
    deployment = one(helm.documents({}), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    assert "readinesProbe" in helm.do("validate", document=deployment, version="1.37")
    # A field that came later.
    deployment = one(helm.documents({}), "Deployment")
    assert "sleep" in helm.do("validate", document=deployment, version="1.25")


def test_the_kinds_of_others_are_what_their_crds_take(helm, values, tmp_path):
    documents = [document for file in CASES + EXAMPLES for document in helm.documents(values(file)) if is_foreign(document)]
    kinds = {document["kind"] for document in documents}
    assert kinds == {"ServiceMonitor", "PodMonitor", "PrometheusRule", "Certificate", "Issuer"}
    assert foreign_complaints(tmp_path / "kinds", documents) == ""
    monitor, certificate = (copy.deepcopy(next(one for one in documents if one["kind"] == kind)) for kind in ("ServiceMonitor", "Certificate"))
    monitor["spec"]["endpoints"][0]["intervall"] = "5s"
    certificate["spec"]["privateKey"]["algorithm"] = "RSB"
    complaints = foreign_complaints(tmp_path / "wrong", [monitor, certificate])
    assert "intervall" in complaints and "algorithm" in complaints, "mistakes would be noticed"


@everything
def test_a_strict_linter_has_nothing_to_say(helm, values, file):
    given = values(file)
    report = helm.do("lint", chart=CHART, values=given, kube_version=f"v{given.get('kubeVersion') or '1.33.0'}")
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []


REFUSED = {
    "a mode that does not exist": ({"mode": "daemon"}, "mode"),
    "a value that does not exist": ({"gatway": {}}, "gatway"),
    "a nested one": ({"gateway": {"replcas": 2}}, "replcas"),
    "a number for a word": ({"image": {"tag": 1.2}}, "tag"),
    "a port that is none": ({"gateway": {"service": {"port": 70000}}}, "port"),
    "a digest that is none": ({"image": {"digest": "sha256:1"}}, "digest"),
    "a failure policy that does not exist": ({"mode": "sidecar", "sidecar": {"webhook": {"failurePolicy": "Retry"}}}, "failurePolicy"),
    "TLS without a certificate": ({"config": "x = 1", "tls": {"enabled": True}}, "existingSecret"),
    "no TOML": ({"config": "listen = "}, "not TOML"),
    "an issuer without a name": ({"config": "x = 1", "tls": {"enabled": True, "certManager": {"enabled": True}}}, "issuer"),
    "a Secret without a name": ({"mode": "sidecar", "sidecar": {"webhook": {"certificate": {"from": "secret"}}}}, "existingSecret"),
    "objectives without rules": ({"config": OBJECTIVES.read_text(), "prometheusRule": {"enabled": True}}, "--format helm"),
    "a drain_timeout in fortnights": ({"config": 'drain_timeout = "1 fortnight"'}, "drain_timeout"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_refuses(helm, what):
    values, reason = REFUSED[what]
    with pytest.raises(Refused, match=reason):
        helm.do("install", chart=CHART, values=values)


@everything
def test_the_proxy_accepts_the_configuration_that_it_is_given(helm, values, tokengauge, file, tmp_path):
    given = values(file)
    maps = [document for document in helm.documents(given) if document["kind"] == "ConfigMap"]
    if given.get("mode") == "sidecar":
        named = [one["metadata"]["namespace"] for one in maps if one["metadata"]["name"] == "tokengauge"]
        assert named == given.get("sidecar", {}).get("namespaces", [])
    texts = {document["data"]["proxy-config.toml"] for document in maps if "proxy-config.toml" in document["data"]}
    assert len(texts) == 1
    for text in texts:
        (tmp_path / "proxy-config.toml").write_text(with_certificates(text, tmp_path))
        ran(tokengauge, "check", "--config", tmp_path / "proxy-config.toml")
    if given.get("config") and "/etc/tokengauge" not in yaml.safe_dump(given["config"]):
        ran(tokengauge, "check", "--config", file)


def with_certificates(text, folder):
    """The same configuration with files that are there."""
    made = folder / "made.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    ran(*command, "-subj", "/CN=engine", "-keyout", folder / "made.key", "-out", made)
    (folder / "token").write_text("0123456789abcdef")
    for end, replacement in (("crt", made), ("key", folder / "made.key"), ("token", folder / "token")):
        text = re.sub(rf'"/etc/[^"]*{end}"', f'"{replacement}"', text)
    return text


def test_tables_of_values_become_the_same_toml(helm, values):
    given = values(HERE / "cases/gateway-tables.yaml")
    text = one(helm.documents(given), "ConfigMap")["data"]["proxy-config.toml"]
    assert 'connections = 5000\n' in text and "at_most = 0\n" in text and "max_idle = 5\n" in text
    assert 'certificate = "/etc/tokengauge/tls/tls.crt"' in text, "what the chart knows is put in"


def test_a_text_without_additions_stays_as_it_was_written(helm):
    text = "# Ours.\n[[upstream]]\nname = \"e\"\n"
    assert one(helm.documents({"config": text}), "ConfigMap")["data"]["proxy-config.toml"] == text


@pytest.mark.parametrize("written, seconds", [("25s", 40), ("5m", 315), ("1h 30m", 5415), ("500ms", 16), ("2 minutes", 135)])
def test_a_pod_has_the_time_to_drain(helm, written, seconds):
    documents = helm.documents({"config": f'drain_timeout = "{written}"'})
    assert one(documents, "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == seconds


@everything
def test_every_pod_is_restricted(helm, values, file):
    """The Pod Security Standards' `restricted`, a root that cannot be written to, bounds on memory."""
    documents = helm.documents(values(file))
    pods = [one["spec"]["template"]["spec"] for one in documents if one["kind"] == "Deployment"]
    pods += [one["spec"] for one in documents if one["kind"] == "Pod"]
    assert len(pods) == 2
    for pod in pods:
        context = pod["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] == 65532
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert all(set(volume) & {"configMap", "secret", "emptyDir", "persistentVolumeClaim"} for volume in pod.get("volumes", []))
        for container in pod["containers"]:
            own = container["securityContext"]
            assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"], own["capabilities"]) == (False, True, {"drop": ["ALL"]})
            assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["cpu"]


def rules_of(tokengauge, tmp_path, config, *options):
    file = tmp_path / "rules.yaml"
    file.write_text(ran(tokengauge, "rules", "--format", "helm", "--config", config, *options))
    return file


def test_the_rules_are_those_of_the_binary(helm, tokengauge, tmp_path):
    rules = rules_of(tokengauge, tmp_path, OBJECTIVES, "--grafana", "https://grafana.example")
    values = merged({"config": OBJECTIVES.read_text(), "prometheusRule": {"enabled": True}}, helm.values(rules))
    expected = yaml.safe_load(ran(tokengauge, "rules", "--config", OBJECTIVES, "--grafana", "https://grafana.example"))
    assert one(helm.documents(values), "PrometheusRule")["spec"] == expected


def test_rules_of_other_objectives_are_refused(helm, tokengauge, tmp_path):
    rules = helm.values(rules_of(tokengauge, tmp_path, OBJECTIVES))
    changed = OBJECTIVES.read_text().replace("objective = 0.99", "objective = 0.98")
    assert changed != OBJECTIVES.read_text()
    for config in (changed, "", 'listen = "127.0.0.1:0"'):
        with pytest.raises(Refused, match="--format helm"):
            helm.do("render", chart=CHART, values=merged({"config": config, "prometheusRule": {"enabled": True}}, rules))
    # What is no objective may change.
    comment = "# Changed.\n" + OBJECTIVES.read_text().replace("127.0.0.1:8000", "engine:8000")
    helm.do("render", chart=CHART, values=merged({"config": comment, "prometheusRule": {"enabled": True}}, rules))


def test_rules_of_tables_are_of_the_same_objectives(helm, tokengauge, tmp_path):
    case = HERE / "cases/gateway-tables.yaml"
    rules = rules_of(tokengauge, tmp_path, case)
    values = merged(helm.values(case, rules), {"prometheusRule": {"enabled": True}})
    groups = one(helm.documents(values), "PrometheusRule")["spec"]["groups"]
    assert {"tokengauge-slo-steady", "tokengauge-slo-fast"} <= {group["name"] for group in groups}


def test_without_objectives_the_rules_are_the_alerts_on_the_proxy(helm, tokengauge):
    none = HERE / "none.toml"
    written = ran(tokengauge, "rules", "--config", none, "--runbooks", "RUNBOOKS", "--grafana", "GRAFANA")
    assert (CHART / "files/rules.yaml").read_text() == written, "make chart"
    places = {"runbooks": "https://runbooks.example", "grafana": "https://grafana.example/"}
    rendered = one(helm.documents({"prometheusRule": {"enabled": True, **places}}), "PrometheusRule")["spec"]
    options = ["--runbooks", places["runbooks"], "--grafana", places["grafana"]]
    assert rendered == yaml.safe_load(ran(tokengauge, "rules", "--config", none, *options))


def test_the_dashboards_are_those_of_the_project(helm):
    files = {file.name: file.read_text() for file in (PROJECT / "dashboards").glob("*.json")}
    assert {file.name: file.read_text() for file in (CHART / "dashboards").iterdir()} == files, "make chart"
    documents = helm.documents({"dashboards": {"enabled": True}})
    maps = [one for one in documents if one["metadata"]["labels"].get("app.kubernetes.io/component") == "dashboard"]
    assert {name: text for one in maps for name, text in one["data"].items()} == {f"tokengauge-{name}": text for name, text in files.items()}
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "1" for one in maps)
    # An annotation of `kubectl apply` holds all of it.
    assert all(len(yaml.safe_dump(one)) < 262_144 for one in maps)


def test_the_configuration_of_nobody_is_the_projects_example(helm):
    example = (PROJECT / "proxy-config.toml").read_text()
    assert (CHART / "files/proxy-config.toml").read_text() == example, "make chart"
    assert one(helm.documents({}), "ConfigMap")["data"]["proxy-config.toml"] == example


def test_the_certificate_of_the_webhook_is_signed_by_what_the_webhook_trusts(helm, tmp_path):
    documents = helm.documents({"mode": "sidecar"})
    secret = one(documents, "Secret")["data"]
    webhook = one(documents, "MutatingWebhookConfiguration")
    assert {hook["clientConfig"]["caBundle"] for hook in webhook["webhooks"]} == {secret["ca.crt"]}
    for name, text in secret.items():
        (tmp_path / name).write_bytes(base64.b64decode(text))
    service = webhook["webhooks"][0]["clientConfig"]["service"]
    host = f"{service['name']}.{service['namespace']}.svc"
    ran("openssl", "verify", "-CAfile", tmp_path / "ca.crt", "-verify_hostname", host, tmp_path / "tls.crt")


def test_a_package_is_the_same_each_time_and_renders_the_same(helm, tmp_path):
    digests = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        archive = helm.do("package", chart=CHART, destination=tmp_path / str(number))
        with tarfile.open(archive) as opened:
            names = sorted(member.name for member in opened.getmembers())
            digests.append({name: hashlib.sha256(opened.extractfile(name).read()).hexdigest() for name in names})
    assert digests[0] == digests[1]
    assert {"tokengauge/values.schema.json", "tokengauge/files/rules.yaml", "tokengauge/dashboards/speed.json"} <= digests[0].keys()
    packed = helm.do("render", chart=archive, values={"dashboards": {"enabled": True}})
    assert packed == helm.do("render", chart=CHART, values={"dashboards": {"enabled": True}})


@every_case
def test_the_notes_say_what_to_do_next(helm, values, file):
    notes = helm.do("render", chart=CHART, values=values(file))["tokengauge/templates/NOTES.txt"]
    assert "helm test tg -n " in notes and "What to do next" in notes
    assert "<no value>" not in notes and "%!" not in notes


class ApiServer(http.server.BaseHTTPRequestHandler):
    """As much of an API server as `lookup` asks: there are Secrets, and these are they."""

    secrets = {}
    resource = {"name": "secrets", "singularName": "secret", "namespaced": True, "kind": "Secret", "verbs": ["get"]}
    answers = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]},
        "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
    }

    def do_GET(self):
        path = self.path.split("?")[0]
        found = self.answers.get(path) or self.secrets.get(path)
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        body = json.dumps(found or missing).encode()
        self.send_response(200 if found else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_an_upgrade_keeps_the_certificate_of_the_webhook(helm):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def rendered():
            texts = helm.do("render_there", chart=CHART, values={"mode": "sidecar"}, server=f"http://127.0.0.1:{server.server_port}")
            documents = list(yaml.safe_load_all(texts["tokengauge/templates/sidecar/webhook.yaml"]))
            return one(documents, "Secret"), one(documents, "MutatingWebhookConfiguration")

        installed, _ = rendered()
        assert rendered()[0]["data"] != installed["data"], "nothing was there yet"
        metadata = installed["metadata"]
        ApiServer.secrets[f"/api/v1/namespaces/{metadata['namespace']}/secrets/{metadata['name']}"] = installed
        upgraded, webhook = rendered()
        server.shutdown()
    assert upgraded["data"] == installed["data"]
    assert {hook["clientConfig"]["caBundle"] for hook in webhook["webhooks"]} == {installed["data"]["ca.crt"]}
