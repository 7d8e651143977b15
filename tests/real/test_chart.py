"""The Helm chart: rendered output, refused values and the package, by Helm's own engine; and schema checks of all
kinds."""

import base64
import copy
import difflib
import hashlib
import http.server
import json
import os
import pathlib
import re
import signal
import subprocess
import tarfile
import threading
import time
import tomllib

import pytest
import yaml

from helm import CHART, PROJECT, Helm, Refused, foreign_complaints, is_foreign, merged, one

HERE = pathlib.Path(__file__).parent / "chart"
CASES = sorted((HERE / "cases").glob("*.yaml"))
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
# Set TOKENGAUGE_UPDATE_GOLDEN=1 to replace the expected files.
UPDATE = os.environ.get("TOKENGAUGE_UPDATE_GOLDEN") == "1"
# Every version that the documentation names and that has schemas, from the oldest on.
VERSIONS = tuple(f"1.{minor}" for minor in range(25, 38))
OBJECTIVES = PROJECT / "tests/real/rules/objectives.toml"
# Words that YAML interprets unless they are quoted, as names of objects, labels, and texts.
NAME_WORDS = ("y", "no", "on", "true", "null", "1e3", "0x10", "012", "2026-01-01", "1.5")
LABEL_WORDS = (*NAME_WORDS, "Y", "OFF", "1_000", "0b1")
WORDS = (*LABEL_WORDS, "~", "a: b", "a #x", "#x", " both ", "- a", "{a}", "[", "*a", "&a", "!a", "%", "'", "12:30:45", ".inf")

GOLDEN = [file for file in CASES if (HERE / "golden" / file.name).exists()]
REFUSED_FILES = sorted((HERE / "cases/refused").glob("*.yaml"))

every_golden = pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
every_case = pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
everything = pytest.mark.parametrize("file", CASES + EXAMPLES, ids=lambda file: file.stem)


@pytest.fixture(scope="module")
def helm():
    helm = Helm()
    yield helm
    helm.close()


@pytest.fixture(scope="module")
def values(helm, tokengauge, tmp_path_factory):
    """Values of a file, with rules for its objectives if it asks for rules or has objectives."""

    def read(file):
        values = helm.values(file)
        text = yaml.safe_dump(values.get("config"))
        if not values.get("prometheusRule", {}).get("enabled") or "slo" not in text:
            return values
        rules = tmp_path_factory.mktemp("rules") / "rules.yaml"
        rules.write_text(ran(tokengauge, "print", "rules", "--format", "helm", "--config", file))
        return merged(values, helm.values(rules))

    return read


def ran(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def golden(texts):
    """Returns a rendering without values that are new each time and without copies of other files of the project."""
    text = "".join(f"# Source: {path}\n{text.strip()}\n---\n" for path, text in texts.items())
    text = re.sub(r'(ca\.crt|tls\.crt|tls\.key|caBundle): "LS0t[^"]+"', r"\1: (made by the chart)", text)
    text = re.sub(r"(  tokengauge-\S+\.json): \|\n(?:    .*\n|\n)+", r"\1: (the dashboard)\n", text)
    text = re.sub(r"(  # Written by `tokengauge print rules`.*\n  groups:)\n(?:    .*\n)+", r"\1 (the alerts on the proxy)\n", text)
    text = re.sub(r"(checksum/\S+): \S+", r"\1: (a digest)", text)
    text = re.sub(r"-check-[0-9a-f]{8}\b", "-check-(a digest)", text)
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    example = "".join(f"    {line}".rstrip() + "\n" for line in (PROJECT / "proxy-config.toml").read_text().splitlines())
    return text.replace(example, "    (the project's example)\n")


@every_golden
def test_the_manifests_are_those_of_the_golden_file(helm, values, file):
    rendered, expected = golden(helm.texts(values(file))), HERE / f"golden/{file.name}"
    if UPDATE:
        assert os.environ.get("CI") != "true", "golden files are not written in CI"
        expected.write_text(rendered)
    lines = difflib.unified_diff(expected.read_text().splitlines(), rendered.splitlines(), "golden", "rendered", lineterm="")
    assert rendered == expected.read_text(), "\n".join(lines)


@everything
def test_every_manifest_is_valid_for_kubernetes(helm, values, file):
    given = values(file)
    versions = [given["kubeVersion"][:4]] if given.get("kubeVersion") else VERSIONS
    for version in versions:
        # Rendered for this version.
        rendered = helm.documents({**given, "kubeVersion": given.get("kubeVersion") or f"{version}.0"})
        documents = [document for document in rendered if not is_foreign(document)]
        assert len(documents) > 2
        for document in documents:
            complaint = helm.do("validate", document=document, version=version)
            assert complaint is None, f"{version} {document['kind']} {document['metadata']['name']}: {complaint}"


def test_the_versions_are_those_that_the_documents_name():
    text = (PROJECT / "docs/kubernetes.md").read_text()
    assert f"Kubernetes {VERSIONS[0]} or later" in text and f"{VERSIONS[0]} to {VERSIONS[-1]}" in text


def test_the_schemas_of_kubernetes_would_notice_a_mistake(helm):
    deployment = one(helm.documents({}), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    assert "readinesProbe" in helm.do("validate", document=deployment, version="1.37")
    # A field of a newer version.
    deployment = one(helm.documents({}), "Deployment")
    assert "sleep" in helm.do("validate", document=deployment, version="1.25")


def test_third_party_kinds_are_valid_for_their_crds(helm, values, tmp_path):
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


# Placeholders for a word in values, named by the syntax that Kubernetes allows there.
PLACES = ("anobject", "aservice", "anamespace", "alabel", "atext", "avariable")


def everywhere(mode):
    """Returns values with a placeholder wherever the schema allows free text."""
    name, label, text = "anobject", {"a": "alabel"}, {"a": "atext"}
    env = [{"name": "avariable", "value": "atext"}]
    part = {
        "annotations": text, "podAnnotations": text, "podLabels": label, "nodeSelector": label, "priorityClassName": name,
        "runtimeClassName": name, "schedulerName": name, "extraArgs": ["atext"], "extraContainers": [{"name": "other", "image": "i", "env": env}],
        "tolerations": [{"key": "a", "operator": "Equal", "value": "atext"}],
    }
    monitor = {"enabled": True, "labels": label, "metricRelabelings": [{"action": "drop", "regex": "atext"}]}
    webhook = {"excludedNamespaces": ["anamespace"], "objectSelector": {"matchLabels": label}, "namespaceSelector": {"matchLabels": label}}
    return {
        "mode": mode, "nameOverride": "alabel", "fullnameOverride": "aservice", "labels": label, "imagePullSecrets": [{"name": name}], "env": env,
        "global": {"imagePullSecrets": [f"{name}-2"]}, "serviceAccount": {"name": name, "annotations": text}, "envFrom": [{"prefix": "atext", "configMapRef": {"name": name}}],
        "existingConfigMap": name if mode == "gateway" else "", "secrets": [{"name": name, "path": "/atext"}],
        "tls": {"enabled": True, "existingSecret": name, "clientCaSecret": name}, "admin": {"tokenSecret": {"name": name, "key": name}, "metricsToken": True},
        "gateway": {**part, "replicas": 1, "state": {"existingClaim": name}, "service": {"type": "LoadBalancer", "labels": label, "annotations": text, "loadBalancerClass": "alabel"}},
        "sidecar": {
            "namespaces": ["anamespace"], "configMapName": name, "injector": part, "payerLabels": {"team": ["alabel"]},
            "webhook": {**webhook, "certificate": {"from": "secret", "existingSecret": name, "caBundle": "atext"}},
        },
        "networkPolicy": {"enabled": True, "sidecars": {"enabled": True, "otherPorts": "open"}}, "serviceMonitor": monitor,
        "podMonitor": {**monitor, "namespaces": ["anamespace"]}, "prometheusRule": {"enabled": True, "labels": label},
        "dashboards": {"enabled": True, "namespace": "anamespace", "folder": "atext", "labels": label},
    }


def with_words(tree, words):
    if isinstance(tree, dict):
        return {with_words(key, words): with_words(value, words) for key, value in tree.items()}
    if isinstance(tree, list):
        return [with_words(one, words) for one in tree]
    for place, word in words.items():
        tree = tree.replace(place, word) if isinstance(tree, str) else tree
    return tree


def read_by_helm(helm, values, **release):
    """Returns the documents as Helm and kubectl read them by YAML 1.1, without digests."""
    documents = [document for text in helm.texts(values, **release).values() for document in re.split(r"(?m)^---\s*$", text)]
    read = [helm.do("values_from_yaml", text=document) for document in documents]
    text = json.dumps([document for document in read if document])
    return json.loads(re.sub(r"(?<=\")[0-9a-f]{64}(?=\")|-check-[0-9a-f]{8}\b", "", text))


@pytest.mark.parametrize("mode", ["gateway", "sidecar"])
@pytest.mark.parametrize("word", WORDS)
def test_every_text_stays_a_text(helm, mode, word):
    """A word that YAML 1.1 would interpret stays a text everywhere."""
    name, label = word in NAME_WORDS, word in LABEL_WORDS
    takes = {
        "anobject": name, "anamespace": name and "." not in word, "aservice": re.fullmatch("[a-z]+", word) and name,
        "alabel": label, "avariable": "=" not in word, "atext": True,
    }
    words = {place: word for place in PLACES if takes[place]}
    values, release = everywhere(mode), {"name": "anobject", "namespace": "anamespace"}
    found = read_by_helm(helm, with_words(values, words), **with_words(release, words))
    assert found == with_words(read_by_helm(helm, values, **release), words)


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


@pytest.mark.parametrize("file", REFUSED_FILES, ids=lambda file: file.stem)
def test_it_refuses_values_that_cannot_work(helm, file):
    reason = file.read_text().splitlines()[0].removeprefix("# expected: ")
    with pytest.raises(Refused, match=re.escape(reason)):
        helm.do("install", chart=CHART, values=helm.values(file))


@pytest.mark.parametrize("name", ["1st", "a.b"])
def test_a_release_whose_name_is_invalid_for_a_service_is_refused(helm, name):
    with pytest.raises(Refused, match="set fullnameOverride"):
        helm.documents({}, name=name)
    assert helm.documents({"fullnameOverride": "gateway"}, name=name)


@pytest.mark.parametrize("kind", ["cpu", "memory"])
def test_quantities_are_parsed_like_kubernetes_does(helm, kind):
    # Quantities that Kubernetes' `ParseQuantity` accepts; for memory only whole bytes.
    taken = ["1", 2, 0.5, "1.5", ".5", "1.", "+1", "1e3", "1E3", "384Mi", "1.5Gi", "2k", "2M", "1E", "1Ki"]
    for amount in taken + ([] if kind == "memory" else ["250m", "100u", "7n", "1e-3"]):
        assert helm.documents({"gateway": {"resources": {"limits": {kind: amount}}}}), amount
    for amount in ["", "-1", "1 Mi", "Mi", ".", "1.2.3", "1MB", "1mi", "1K", "1e", "é", True, "1,5Gi"] + (["250m", "1e-3"] if kind == "memory" else []):
        with pytest.raises(Refused, match=f"/gateway/resources/limits/{kind}"):
            helm.documents({"gateway": {"resources": {"limits": {kind: amount}}}})


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
    assert len(texts) == (0 if given.get("existingConfigMap") else 1) or "certManager" in given.get("tls", {})
    for text in texts:
        (tmp_path / "proxy-config.toml").write_text(with_certificates(text, tmp_path))
        ran(tokengauge, "check", "--config", tmp_path / "proxy-config.toml")
    if not given.get("existingConfigMap") and "/etc/tokengauge" not in yaml.safe_dump(given.get("config")):
        assert "valid" in ran(tokengauge, "check", "--config", file)


def with_certificates(text, folder):
    """Returns the configuration with existing certificate files."""
    made = folder / "made.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    ran(*command, "-subj", "/CN=engine", "-keyout", folder / "made.key", "-out", made)
    (folder / "token").write_text("0123456789abcdef")
    for end, replacement in (("crt", made), ("key", folder / "made.key"), ("token", folder / "token"), ("password", folder / "token")):
        text = re.sub(rf'"/etc/[^"]*{end}"', f'"{replacement}"', text)
    return text


def test_tables_of_values_become_the_same_toml(helm, values):
    given = values(HERE / "cases/gateway-tables.yaml")
    text = one(helm.documents(given), "ConfigMap", "llm-gateway")["data"]["proxy-config.toml"]
    assert 'connections = 5000\n' in text and "at_most = 0\n" in text and "max_idle = 5\n" in text
    assert 'certificate = "/etc/tokengauge/tls/tls.crt"' in text, "what the chart knows is put in"


@pytest.mark.parametrize("text", ["  # Far in.\n[limits]\n", "\n\n [limits]\n", "\t[limits]\n  connections = 5\n\n"])
def test_a_text_keeps_its_first_spaces(helm, text):
    for values in ({}, {"mode": "sidecar", "sidecar": {"namespaces": ["agents"]}}):
        maps = [one for one in helm.documents({"config": text, **values}) if one["kind"] == "ConfigMap"]
        texts = [one["data"]["proxy-config.toml"] for one in maps]
        assert len(texts) == (3 if values else 2) and all(found.strip("\n") == text.strip("\n") for found in texts)


def images(documents):
    for document in documents:
        spec = document.get("spec", {})
        pod = spec.get("template", {}).get("spec", spec)
        yield from (container["image"] for container in pod.get("containers", []))
        if document["kind"] == "ConfigMap" and "injector.toml" in document["data"]:
            yield tomllib.loads(document["data"]["injector.toml"])["image"]


@pytest.mark.parametrize(
    "image, expected",
    [
        ({}, "mirror.example:5000/all/tokengauge:"),
        ({"repository": "registry.example/llm/tokengauge", "tag": "v1"}, "mirror.example:5000/all/llm/tokengauge:v1"),
        ({"repository": "localhost/tokengauge"}, "mirror.example:5000/all/tokengauge:"),
        ({"repository": "llm/tokengauge", "digest": "sha256:" + "0" * 64}, "mirror.example:5000/all/llm/tokengauge@sha256:0"),
    ],
)
@pytest.mark.parametrize("registry", ["mirror.example:5000/all", "mirror.example:5000/all/"])
def test_the_global_registry_applies_to_every_image(helm, values, image, expected, registry):
    given = {"global": {"imageRegistry": registry, "imagePullSecrets": ["one", {"name": "two"}], "storageClass": "theirs"}, "image": image}
    for more in ({}, {"mode": "sidecar"}, values(CHART / "examples/gateway-fleet.yaml")):
        documents = helm.documents({**more, **given, "imagePullSecrets": [{"name": "own"}]})
        found = set(images(documents))
        assert len(found) == 1 and found.pop().startswith(expected)
        # The fleet of the example is not part of the chart.
        ours = [one for one in documents if one["kind"] in ("Deployment", "Job") and one["metadata"]["name"] != "tokengauge-fleet"]
        pods = [one["spec"]["template"]["spec"] for one in ours]
        secrets = [{"name": name} for name in ("own", "one", "two")]
        assert all(pod["imagePullSecrets"] == secrets for pod in pods)
    injector = tomllib.loads(one(helm.documents({"mode": "sidecar", **given}), "ConfigMap", "tg-tokengauge-injector")["data"]["injector.toml"])
    assert injector["image_pull_secrets"] == ["one", "two"]


def test_an_issuer_of_another_group_signs(helm):
    issuer = {"kind": "AWSPCAClusterIssuer", "name": "internal", "group": "awspca.cert-manager.io"}
    gateway = helm.documents({"config": "x = 1", "tls": {"enabled": True, "certManager": {"enabled": True, "issuerRef": issuer}}})
    webhook = {"certificate": {"from": "cert-manager", "issuerRef": issuer}}
    for documents in (gateway, helm.documents({"mode": "sidecar", "sidecar": {"webhook": webhook}})):
        assert one(documents, "Certificate")["spec"]["issuerRef"] == issuer


@pytest.mark.parametrize("file", [file for file in EXAMPLES if file.stem.startswith("gateway")], ids=lambda file: file.stem)
def test_the_examples_of_gateways_keep_what_they_count(helm, file):
    """Calls on their way to a sink, spending and objectives survive a restart of the container."""
    config = tomllib.loads(helm.values(file)["config"])
    assert config["state_dir"] == "/var/lib/tokengauge"


NUMBERS = """
drain_timeout: 90s
limits: { connections: 5000, requests_per_minute: 2000000 }
measure: { memory_bytes: 1073741824 }
state_dir: /tmp
ledger: { retention_bytes: 2000000000 }
upstream: [{ name: engine, url: "http://engine:8000" }]
route: [{ upstream: engine }]
slo: [{ name: fast, objective: 1.0, output_tps: { at_least: 2000000.0 } }, { name: most, objective: 0.5, stalls: { at_most: 0 } }]
quota: [{ name: all, per: user, tokens_per_minute: 2000000 }]
budget: [{ name: month, usd: 5.0, period: 30d, warn_at: [1.0] }, { name: week, usd: 1000000.5, period: 7d, warn_at: [0.5, 1.0] }]
"""


@pytest.mark.parametrize("admin", [{}, {"tokenSecret": {"name": "token"}}])
@pytest.mark.parametrize("as_text", [False, True], ids=["tables", "text"])
def test_numbers_of_tables_are_valid_for_the_program(helm, tokengauge, tmp_path, as_text, admin):
    config = helm.do("values_from_yaml", text=NUMBERS)
    if as_text:
        config = one(helm.documents({"config": config}), "ConfigMap", "tg-tokengauge")["data"]["proxy-config.toml"]
    text = one(helm.documents({"config": config, "admin": admin}), "ConfigMap", "tg-tokengauge")["data"]["proxy-config.toml"]
    (tmp_path / "a.toml").write_text(with_certificates(text.replace("/admin/token", "/admin.token"), tmp_path))
    ran(tokengauge, "check", "--config", tmp_path / "a.toml")
    written = tomllib.loads(text)
    assert written["quota"][0]["tokens_per_minute"] == 2_000_000 and written["measure"]["memory_bytes"] == 1 << 30
    assert [budget["warn_at"] for budget in written["budget"]] == [[1], [0.5, 1]]


def test_numbers_reach_the_injector_and_manifests_whole(helm, tokengauge, tmp_path):
    security = {"runAsUser": 1000660000, "runAsGroup": 2000000, "supplementalGroups": [1000660000]}
    values = yaml.safe_dump({"mode": "sidecar", "podSecurityContext": security, "sidecar": {
        "securityContext": {"runAsUser": 1000660000}, "resources": {"limits": {"memory": 67108864, "cpu": 1}}}})
    given = helm.do("values_from_yaml", text=values)
    documents = helm.documents(given)
    injector = tomllib.loads(one(documents, "ConfigMap", "tg-tokengauge-injector")["data"]["injector.toml"])
    assert type(injector["security_context"]["runAsUser"]) is int and type(injector["resources"]["limits"]["memory"]) is int
    texts = "".join(helm.texts(given).values())
    assert "1000660000" in texts and not re.search(r"\d[eE]\+\d", re.sub(r"LS0t\S+", "", texts))
    assert checked(helm, tokengauge, given, tmp_path) == [0, 0]


def test_a_text_without_additions_stays_as_it_was_written(helm):
    text = "# Ours.\n[[upstream]]\nname = \"e\"\n"
    assert one(helm.documents({"config": text}), "ConfigMap", "tg-tokengauge")["data"]["proxy-config.toml"] == text


@pytest.mark.parametrize("written, seconds", [("25s", 40), ("5m", 315), ("1h 30m", 5415), ("500ms", 16), ("2 minutes", 135), ("10.5m", 645), ("1.5h", 5415)])
def test_a_pod_has_the_time_to_drain(helm, written, seconds):
    documents = helm.documents({"config": f'drain_timeout = "{written}"'})
    assert one(documents, "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == seconds


# Durations that the program's own parser accepts and refuses.
TAKEN = ["1M", "2 weeks", "0", "00.25s", "1 0 s", "1s500us 3ns", "0.300000001m", "1y", "1.0us", "2hrs 5 mins", "0.0000000001m"]
NOT_TAKEN = ["0.3333h", "1.5ns", "1.0ns", "1m.5s", "5", "m", "-5s", "", "1.s", "1 h 30", "1 H", "0.0000000001s"]


@pytest.mark.parametrize("written", TAKEN + NOT_TAKEN)
def test_durations_are_parsed_like_the_program_does(helm, tokengauge, tmp_path, written):
    config = f'drain_timeout = "{written}"\n[[upstream]]\nname = "e"\nurl = "http://h"\n[[route]]\nupstream = "e"\n'
    (tmp_path / "a.toml").write_text(config)
    checked = subprocess.run([tokengauge, "check", "--config", tmp_path / "a.toml"], capture_output=True, timeout=20).returncode
    assert checked == (0 if written in TAKEN else 78)
    if written in TAKEN:
        assert helm.documents({"config": config})
    else:
        with pytest.raises(Refused, match="is not a duration"):
            helm.documents({"config": config})


@everything
def test_every_pod_is_restricted(helm, values, file):
    """Asserts the Pod Security Standards' `restricted` level, a read-only root, and memory limits."""
    documents = helm.documents(values(file))
    pods = [one["spec"]["template"]["spec"] for one in documents if one["kind"] == "Deployment"]
    pods += [one["spec"] for one in documents if one["kind"] == "Pod"]
    pods += [one["spec"]["template"]["spec"] for one in documents if one["kind"] == "Job"]
    of_its_own = {"gateway-alone": 2, "gateway-extras": 2, "gateway-fleet": 4}
    assert len(pods) == of_its_own.get(file.stem, 3)
    for pod in pods:
        context = pod["securityContext"]
        # OpenShift sets it.
        assert context["runAsNonRoot"] and context.get("runAsUser") == (None if "openshift" in file.stem else 65532)
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert all(set(volume) & {"configMap", "secret", "emptyDir", "persistentVolumeClaim"} for volume in pod.get("volumes", []))
        for container in pod["containers"]:
            if container["name"] == "shipper":
                continue  # not ours
            own = container["securityContext"]
            assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"], own["capabilities"]) == (False, True, {"drop": ["ALL"]})
            assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]["cpu"]


def rules_of(tokengauge, tmp_path, config, *options):
    file = tmp_path / "rules.yaml"
    file.write_text(ran(tokengauge, "print", "rules", "--format", "helm", "--config", config, *options))
    return file


def test_the_rules_equal_those_of_the_binary(helm, tokengauge, tmp_path):
    rules = rules_of(tokengauge, tmp_path, OBJECTIVES, "--grafana", "https://grafana.example")
    values = merged({"config": OBJECTIVES.read_text(), "prometheusRule": {"enabled": True}}, helm.values(rules))
    expected = yaml.safe_load(ran(tokengauge, "print", "rules", "--config", OBJECTIVES, "--grafana", "https://grafana.example"))
    assert one(helm.documents(values), "PrometheusRule")["spec"] == expected


def test_rules_of_other_objectives_are_refused(helm, tokengauge, tmp_path):
    rules = helm.values(rules_of(tokengauge, tmp_path, OBJECTIVES))
    changed = OBJECTIVES.read_text().replace("objective = 0.99", "objective = 0.98")
    assert changed != OBJECTIVES.read_text()
    for config in (changed, "", 'listen = "127.0.0.1:0"'):
        with pytest.raises(Refused, match="--format helm"):
            helm.do("render", chart=CHART, values=merged({"config": config, "prometheusRule": {"enabled": True}}, rules))
    # Settings other than objectives may change.
    comment = "# Changed.\n" + OBJECTIVES.read_text().replace("127.0.0.1:8000", "engine:8000")
    helm.do("render", chart=CHART, values=merged({"config": comment, "prometheusRule": {"enabled": True}}, rules))


def test_rules_of_tables_have_the_same_objectives(helm, tokengauge, tmp_path):
    case = HERE / "cases/gateway-tables.yaml"
    rules = rules_of(tokengauge, tmp_path, case)
    values = merged(helm.values(case, rules), {"prometheusRule": {"enabled": True}})
    groups = one(helm.documents(values), "PrometheusRule")["spec"]["groups"]
    assert {"tokengauge-slo-steady", "tokengauge-slo-fast"} <= {group["name"] for group in groups}


def test_without_objectives_the_rules_are_the_alerts_on_the_proxy(helm, tokengauge):
    none = HERE / "none.toml"
    written = ran(tokengauge, "print", "rules", "--config", none, "--runbooks", "RUNBOOKS", "--grafana", "GRAFANA")
    assert (CHART / "files/rules.yaml").read_text() == written, "make chart"
    places = {"runbooks": "https://runbooks.example", "grafana": "https://grafana.example/"}
    rendered = one(helm.documents({"prometheusRule": {"enabled": True, **places}}), "PrometheusRule")["spec"]
    options = ["--runbooks", places["runbooks"], "--grafana", places["grafana"]]
    assert rendered == yaml.safe_load(ran(tokengauge, "print", "rules", "--config", none, *options))


def test_the_dashboards_equal_those_of_the_project(helm):
    files = {file.name: file.read_text() for file in (PROJECT / "dashboards").glob("*.json")}
    assert {file.name: file.read_text() for file in (CHART / "dashboards").glob("*.json")} == files
    for warehouse in (False, True):
        documents = helm.documents({"dashboards": {"enabled": True, "warehouse": warehouse}})
        maps = [one for one in documents if one["metadata"]["labels"].get("app.kubernetes.io/component") == "dashboard"]
        expected = {f"tokengauge-{name}": text for name, text in files.items() if warehouse or not name.startswith("warehouse-")}
        assert {name: text for one in maps for name, text in one["data"].items()} == expected
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "1" for one in maps)
    # `kubectl apply` stores the whole object in an annotation.
    assert all(len(yaml.safe_dump(one)) < 262_144 for one in maps)


def test_the_default_configuration_is_the_projects_example(helm):
    example = (PROJECT / "proxy-config.toml").read_text()
    assert (CHART / "files/proxy-config.toml").read_text() == example
    assert one(helm.documents({}), "ConfigMap", "tg-tokengauge")["data"]["proxy-config.toml"] == example


def test_the_webhooks_certificate_is_signed_by_its_ca_bundle(helm, tmp_path):
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
    assert "tokengauge/dashboards/provisioning.yaml" not in digests[0]
    packed = helm.do("render", chart=archive, values={"dashboards": {"enabled": True}})
    assert packed == helm.do("render", chart=CHART, values={"dashboards": {"enabled": True}})


@every_case
def test_the_notes_say_what_to_do_next(helm, values, file):
    notes = helm.do("render", chart=CHART, values=values(file))["tokengauge/templates/NOTES.txt"]
    assert "helm test tg -n " in notes and "What to do next" in notes
    assert "<no value>" not in notes and "%!" not in notes


class ApiServer(http.server.BaseHTTPRequestHandler):
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


def template_of(documents):
    return one(documents, "Deployment")["spec"]["template"]


def test_every_address_is_of_both_families(helm):
    gateway, injector = helm.documents({}), helm.documents({"mode": "sidecar"})
    arguments = [template_of(documents)["spec"]["containers"][0]["args"] for documents in (gateway, injector)]
    assert {"--listen=*:8080", "--admin=*:9464"} <= set(arguments[0]) and "--listen=*:8443" in arguments[1]
    assert "0.0.0.0" not in yaml.safe_dump_all(gateway + injector)
    dual = helm.documents(helm.values(HERE / "cases/gateway-dual-stack.yaml"))
    for name in ("tg-tokengauge", "tg-tokengauge-admin"):
        spec = one(dual, "Service", name)["spec"]
        assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv6", "IPv4"], "RequireDualStack")


def reloaded(tokengauge, before, after, folder):
    """Returns whether a running proxy accepts the change."""
    file, log = folder / "a.toml", folder / "log"
    file.write_text(before)
    command = [tokengauge, "run", "--config", file, "--listen=127.0.0.1:0", "--admin=127.0.0.1:0"]
    with log.open("w") as output, subprocess.Popen([str(part) for part in command], stdout=output, stderr=output) as process:
        try:
            said(log, "listening on", process)
            file.write_text(after)
            process.send_signal(signal.SIGHUP)
            return "was reloaded" in said(log, "was reloaded|was refused", process)
        finally:
            process.terminate()


def said(log, pattern, process):
    for _ in range(200):
        found = re.search(pattern, log.read_text())
        if found:
            return found.group()
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(log.read_text())


ENGINE = '[[upstream]]\nname = "e"\nurl = "http://127.0.0.1:1"\n[[route]]\nupstream = "e"\n'
CHANGES = {
    "drain": 'drain_timeout = "1m"\n{}', "limits": "{}[limits]\nconnections = 5\n", "recent": "{}[measure]\nrecent_calls = 5\n",
    "quota": '{}[[quota]]\nname = "q"\nrequests_per_minute = 5\n', "admin": '{}[admin]\nhosts = ["a.example"]\n',
    "otlp": "{}[otlp]\ncall_records = true\n", "state": 'state_dir = "FOLDER"\n{}', "models": "{}[measure]\nmax_models = 5\n",
    "quota_store": '{}[quota_store]\nurl = "redis://127.0.0.1:1"\n',
}


@pytest.mark.parametrize("what", CHANGES)
def test_pods_are_rolled_by_what_only_a_restart_changes(helm, tokengauge, tmp_path, what):
    after = CHANGES[what].format(ENGINE).replace("FOLDER", str(tmp_path))
    sums = [template_of(helm.documents({"config": text}))["metadata"]["annotations"]["checksum/restart-only"] for text in (ENGINE, after)]
    assert (sums[0] == sums[1]) == reloaded(tokengauge, ENGINE, after, tmp_path)


def checked(helm, tokengauge, values, folder):
    """Returns the exit codes of the containers in the hook's Job."""
    documents = helm.documents(values)
    job, data = one(documents, "Job"), one(documents, "ConfigMap", "tg-tokengauge-check")["data"]
    for found in (job, one(documents, "ConfigMap", "tg-tokengauge-check")):
        assert found["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    for name, text in data.items():
        (folder / name).write_text(text.replace("/etc/tokengauge/injector/", f"{folder}/"))
    codes = []
    for container in job["spec"]["template"]["spec"]["containers"]:
        arguments = [re.sub(r"/etc/tokengauge/(config|injector)/", f"{folder}/", argument) for argument in container["args"]]
        codes.append(subprocess.run([tokengauge, *arguments], capture_output=True, timeout=20).returncode)
    return codes


def test_an_upgrade_fails_where_the_program_would_refuse(helm, tokengauge, tmp_path):
    assert checked(helm, tokengauge, {"config": ENGINE}, tmp_path) == [0]
    assert checked(helm, tokengauge, {"config": ENGINE.replace("http:", "nothing:")}, tmp_path) == [78]
    assert checked(helm, tokengauge, {"config": ENGINE + "[unknown]\n"}, tmp_path) == [78]
    assert checked(helm, tokengauge, {"mode": "sidecar"}, tmp_path) == [0, 0]
    assert checked(helm, tokengauge, {"mode": "sidecar", "sidecar": {"injectorConfig": {"unknown": 1}}}, tmp_path)[1] != 0


def test_the_check_has_what_the_gateway_has(helm, values):
    documents = helm.documents(values(HERE / "cases/gateway-existing-config.yaml"))
    job, gateway = (one(documents, kind)["spec"]["template"]["spec"] for kind in ("Job", "Deployment"))
    ours = {"name": "config", "configMap": {"name": "ours"}}
    assert ours in job["volumes"] and ours in gateway["volumes"]
    assert job["containers"][0]["volumeMounts"] == gateway["containers"][0]["volumeMounts"]
    assert gateway["containers"][0]["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert gateway["terminationGracePeriodSeconds"] == 630
    assert [one for one in documents if one["kind"] == "ConfigMap" and "proxy-config.toml" in one["data"]] == []


def job_of(helm, values):
    return one(helm.documents(values), "Job")


def test_pods_that_end_are_left_alone_by_meshes(helm):
    outside = {"gateway": {"podLabels": {"team": "a", "sidecar.istio.io/inject": "true"}}}
    for values in (outside, {"mode": "sidecar", "sidecar": {"injector": {"podLabels": {"team": "a"}}}}):
        documents = helm.documents(values)
        check, test = one(documents, "Job")["spec"]["template"]["metadata"], one(documents, "Pod")["metadata"]
        assert check["labels"]["team"] == "a"
        for metadata in (check, test):
            labels, annotations = metadata["labels"], metadata["annotations"]
            assert (labels["sidecar.istio.io/inject"], labels["kuma.io/sidecar-injection"]) == ("false", "disabled")
            assert (annotations["linkerd.io/inject"], annotations["consul.hashicorp.com/connect-inject"]) == ("disabled", "false")


def test_the_check_leaves_claims_to_the_gateway(helm):
    volumes = [{"name": "disk", "persistentVolumeClaim": {"claimName": "one"}}, {"name": "roots", "configMap": {"name": "roots"}}]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("disk", "roots")]
    documents = helm.documents({"gateway": {"extraVolumes": volumes, "extraVolumeMounts": mounts}})
    job, gateway = (one(documents, kind)["spec"]["template"]["spec"] for kind in ("Job", "Deployment"))
    names = lambda given: [one["name"] for one in given]  # noqa: E731
    assert names(job["volumes"]) == names(job["containers"][0]["volumeMounts"]) == ["state", "config", "roots"]
    assert gateway["volumes"][-2:] == volumes and gateway["containers"][0]["volumeMounts"][-2:] == mounts


def test_without_hooks_another_check_is_another_job(helm):
    def name(values):
        job = job_of(helm, {"fullnameOverride": "a" * 46 + "-" + "b" * 5, **values})
        assert job["spec"]["ttlSecondsAfterFinished"] > 0 and re.fullmatch(r"[a-z0-9-]{1,63}", job["metadata"]["name"])
        return job["metadata"]["name"]

    changes = [{}, {"config": ENGINE}, {"image": {"tag": "2"}}, {"logLevel": "debug"}, {"mode": "sidecar"}, {"mode": "sidecar", "config": ENGINE}]
    assert len({name(values) for values in changes}) == len(changes)
    assert name({}) == name({"gateway": {"replicas": 5}}) and name({"mode": "sidecar"}) == name({"mode": "sidecar"})


def test_the_check_does_not_wait_for_a_certificate_of_the_same_release(helm, values):
    documents = helm.documents(values(HERE / "cases/gateway-production.yaml"))
    volumes = one(documents, "Job")["spec"]["template"]["spec"]["volumes"]
    assert next(volume for volume in volumes if volume["name"] == "tls").get("secret") is None
    assert "[tls]" not in one(documents, "ConfigMap", "tg-tokengauge-check")["data"]["proxy-config.toml"]


def test_notes_say_what_limits_mean_with_several_replicas(helm):
    given = helm.values(HERE / "cases/gateway-limits.yaml")
    notes = lambda values: helm.do("render", chart=CHART, values=values)["tokengauge/templates/NOTES.txt"]  # noqa: E731
    said = notes(given)
    assert "up to 4 replicas" in said
    assert all(name in said for name in ("quota team", "limits.requests_per_minute", "budget month", "notify oncall"))
    assert "only-counted" not in said
    assert "by itself" not in notes(merged(given, {"gateway": {"autoscaling": {"enabled": False}}})), "one replica"
    assert "by itself" not in notes({}), "no limits"
    store = '[quota_store]\nurl = "redis://valkey"\n'
    shared = notes(merged(given, {"config": given["config"] + store}))
    assert "limits.requests_per_minute" in shared
    assert not any(name in shared for name in ("quota team", "budget month", "notify oncall"))
    shadow = notes(merged(given, {"config": given["config"] + store + 'mode = "shadow"\n'}))
    assert "quota team" in shadow and "budget month" in shadow and "notify oncall" not in shadow
    assert "Each sidecar" in notes({"mode": "sidecar", "config": given["config"]})


def test_a_custom_variable_overrides_the_charts(helm):
    container = template_of(helm.documents(helm.values(HERE / "cases/gateway-extras.yaml")))["spec"]["containers"][0]
    names = [variable["name"] for variable in container["env"]]
    assert len(names) == len(set(names))
    assert {"name": "K8S_NODE_NAME", "value": "mine"} in container["env"]


def test_sidecars_have_the_token_and_ports_of_the_values(helm):
    given = helm.values(HERE / "cases/sidecar-token.yaml")
    documents = helm.documents(given)
    injector = tomllib.loads(one(documents, "ConfigMap", "tg-tokengauge-injector")["data"]["injector.toml"])
    assert [injector[f"{port}_port"] for port in ("traffic", "metrics", "admin")] == [16480, 16464, 16465]
    assert injector["admin_token_secret"] == {"name": "operators", "key": "admin"}
    assert injector["image_pull_secrets"] == ["theirs"]
    endpoint = one(documents, "PodMonitor")["spec"]["podMetricsEndpoints"][0]
    assert endpoint["port"] == "tg-metrics" and "authorization" not in endpoint, "nobody asks for it there"
    documents = helm.documents(merged(given, {"admin": {"metricsToken": True}}))
    endpoint = one(documents, "PodMonitor")["spec"]["podMetricsEndpoints"][0]
    assert endpoint["authorization"] == {"credentials": {"name": "operators", "key": "admin"}}
    config = one(documents, "ConfigMap", "tg-tokengauge-injector")["data"]["proxy-config.toml"]
    assert tomllib.loads(config)["admin"]["metrics_token"] is True


def test_sidecars_take_the_payer_from_the_configured_labels(helm, tokengauge, tmp_path):
    labels = {"team": ["example.com/squad", "team"], "tenant": []}
    given = {"mode": "sidecar", "sidecar": {"payerLabels": labels}}
    injector = tomllib.loads(one(helm.documents(given), "ConfigMap", "tg-tokengauge-injector")["data"]["injector.toml"])
    assert injector["payer_labels"] == {**labels, "cost_center": ["cost-center"]}
    assert checked(helm, tokengauge, given, tmp_path) == [0, 0]
    with pytest.raises(Refused):
        helm.documents({"mode": "sidecar", "sidecar": {"payerLabels": {"team": ["no label"]}}})


@pytest.mark.parametrize("case, rules", [("sidecar-policy", 2), ("sidecar-policy-closed", 1)])
def test_policies_of_injected_pods_guard_their_metrics(helm, case, rules):
    documents = helm.documents(helm.values(HERE / f"cases/{case}.yaml"))
    policies = [one for one in documents if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] == "tg-tokengauge-sidecars"]
    assert [one["metadata"]["namespace"] for one in policies] == (["agents", "research"] if rules == 2 else ["agents"])
    for policy in policies:
        assert policy["spec"]["podSelector"] == {"matchLabels": {"tokengauge.dev/injected": "true"}}
        metrics, *others = policy["spec"]["ingress"]
        assert metrics["ports"] == [{"port": "tg-metrics"}, {"port": 15464}] and len(metrics["from"]) == 2 and len(others) == rules - 1
        for port in [port for other in others for port in other["ports"] if port["protocol"] == "TCP"]:
            assert not port["port"] <= 15464 <= port["endPort"]


def test_a_policy_lets_the_test_and_dns_through(helm):
    documents = helm.documents({"networkPolicy": {"enabled": True, "agents": [{"podSelector": {}}], "egress": [{"ports": [{"port": 443}]}]}})
    spec, test = one(documents, "NetworkPolicy")["spec"], one(documents, "Pod")["metadata"]["labels"]
    assert spec["ingress"][0]["from"][-1]["podSelector"]["matchLabels"].items() <= test.items()
    assert {port["port"] for port in spec["egress"][0]["ports"]} == {53, 5353}


def test_pods_that_opt_out_need_no_injector(helm):
    hooks = one(helm.documents({"mode": "sidecar", "kubeVersion": "1.30.0"}), "MutatingWebhookConfiguration")["webhooks"]
    assert [[condition["name"] for condition in hook["matchConditions"]] for hook in hooks] == [["not-opted-out"], ["not-opted-out", "asks"]]
    hooks = one(helm.documents({"mode": "sidecar", "kubeVersion": "1.29.0"}), "MutatingWebhookConfiguration")["webhooks"]
    assert not any("matchConditions" in hook for hook in hooks)


# Checks of checkov that do not apply to this chart, with reasons.
NOT_FOR_US = {
    "CKV_K8S_11": "a limit of CPU holds back tokens that have arrived (values.yaml)",
    "CKV_K8S_43": "the digest is the operator's: image.digest",
    "CKV_K8S_15": "the pull policy is the operator's; tags are not moved",
    "CKV_K8S_9": "of pods that end by themselves: `helm test`",
    "CKV_K8S_8": "of pods that end by themselves: `helm test`",
    "CKV2_K8S_6": "networkPolicy.enabled is the operator's choice, and off by default",
    "CKV_K8S_35": "the admin token of the check comes as it comes to sidecars: by a variable",
    "CKV_K8S_40": "OpenShift gives the user id",
}
NOT_OURS = ("gateway-extras",)  # has third-party containers


@pytest.mark.part("linters")
def test_checkov_has_nothing_to_say(helm, values, tmp_path):
    for file in CASES + EXAMPLES:
        if file.stem not in NOT_OURS:
            documents = [document for document in helm.documents(values(file)) if not is_foreign(document)]
            (tmp_path / f"{file.stem}.yaml").write_text(yaml.safe_dump_all(documents))
    assert linted(tmp_path, ",".join(NOT_FOR_US)) == []
    for document in (documents := helm.documents({})):
        if document["kind"] == "Deployment":
            document["spec"]["template"]["spec"]["hostNetwork"] = True
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong/a.yaml").write_text(yaml.safe_dump_all(documents))
    assert linted(tmp_path / "wrong", ",".join(NOT_FOR_US)) != [], "a mistake would be noticed"


def linted(folder, skipped):
    command = [PROJECT / ".cache/real/checkov/bin/checkov", "--directory", folder, "--framework", "kubernetes", "--skip-download"]
    command += ["--quiet", "--compact", "--output", "json", "--skip-check", skipped]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600)
    report = json.loads(done.stdout)
    assert done.returncode in (0, 1), done.stderr
    failed = report.get("results", {}).get("failed_checks", [])
    return [f"{one['check_id']} {one['check_name']}: {one['resource']} in {one['file_path']}" for one in failed]


def properties(schema, path=()):
    for key, value in schema.get("properties", {}).items():
        yield (*path, key)
        if value.get("type") == "object" and value.get("additionalProperties") is False:
            yield from properties(value, (*path, key))


def test_the_schema_has_the_values_and_no_others(helm):
    given = yaml.safe_load((CHART / "values.yaml").read_text())

    def present(value, path=()):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield (*path, key)
                yield from present(inner, (*path, key))

    schema = json.loads((CHART / "values.schema.json").read_text())
    known, written = set(properties(schema)), set(present(given))
    # Objects that Kubernetes defines accept all their keys.
    unknown = {path for path in written if path not in known and (len(path) == 1 or path[:-1] in known and path[:-1] in closed(schema))}
    assert unknown == set()
    # An empty table stands for its possible keys; `group` of an issuer has no default.
    filled = {path[:-1] for path in written} | {()}
    assert {path for path in known - written if path[:-1] in filled} == set()


def closed(schema, path=()):
    """Returns the tables that accept no other keys."""
    found = {path} if schema.get("additionalProperties") is False else set()
    return found.union(*(closed(value, (*path, key)) for key, value in schema.get("properties", {}).items()))


def test_the_readme_has_every_value():
    written = table()
    if UPDATE:
        text = (CHART / "README.md").read_text()
        (CHART / "README.md").write_text(re.sub(r"(?s)(<!-- values -->\n).*(<!-- /values -->)", lambda found: found[1] + written + found[2], text))
    assert written in (CHART / "README.md").read_text(), "TOKENGAUGE_UPDATE_GOLDEN=1 writes it"


def table():
    """Returns the values with their defaults and comments as a table."""
    rows, path, comment = [], [], []
    for line in (CHART / "values.yaml").read_text().splitlines():
        found = re.match(r"^( *)([A-Za-z]+):(?: (.*))?$", line)
        if line.strip().startswith("#"):
            comment.append(line.strip().lstrip("# "))
        elif found:
            depth = len(found[1]) // 2
            path = [*path[:depth], found[2]]
            if found[3] is not None or comment:
                default = f"`{found[3]}`" if found[3] else ""
                rows.append([".".join(path), default, " ".join(comment)])
            comment = []
        elif not line.strip():
            comment = []
    cell = lambda text: text.replace("|", "\\|")  # noqa: E731
    return "| value | default | description |\n|---|---|---|\n" + "".join(f"| `{name}` | {cell(default)} | {cell(said)} |\n" for name, default, said in rows)
