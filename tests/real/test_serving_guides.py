"""The guides for engine pools (Gateway API Inference Extension, KServe, vLLM's production stack): schemas accept
their manifests, and injection puts the proxy on the port that gets traffic."""

import json
import pathlib
import subprocess
import urllib.request

import pytest
import yaml

from crds import schemas
from guides import block, manifests
from helm import Helm, foreign_complaints, one
from processes import running

pytestmark = pytest.mark.part("guides")

HERE = pathlib.Path(__file__).parent / "serving"
PAGE = "integrations.md"
VERSION = "1.33"
ANY_PORT = "127.0.0.1:0"


@pytest.fixture(scope="module")
def kubernetes():
    worker = Helm()
    yield worker
    worker.close()


def complaints(kubernetes, document):
    known = schemas(HERE / "crds")
    return kubernetes.do("complaints", document=document, schema=known[document["apiVersion"], document["kind"]])


def injected(tokengauge, document, *options):
    command = [tokengauge, "inject", "-f", "-", *options]
    done = subprocess.run(command, input=yaml.safe_dump(document), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)


def sidecar(spec):
    (found,) = [container for container in spec["initContainers"] if container["name"] == "tokengauge"]
    return found


def fronts(spec, port, moved):
    """Asserts that the proxy has the known port, and the engine and its probes another one."""
    arguments = sidecar(spec)["args"]
    assert arguments[arguments.index("--listen") + 1] == f"*:{port}"
    assert port in {each["containerPort"] for each in sidecar(spec)["ports"]}
    (engine,) = [container for container in spec["containers"] if container["name"] != "tokengauge"]
    words = " ".join((engine.get("command") or []) + (engine.get("args") or [])).replace("=", " ")
    assert f"--port {moved}" in words and str(port) not in words.split()
    probes = [engine[probe]["httpGet"]["port"] for probe in ("startupProbe", "readinessProbe", "livenessProbe") if probe in engine]
    assert probes and set(probes) == {moved}
    assert port not in {each["containerPort"] for each in engine.get("ports") or []}


def test_the_pool_and_the_route_are_what_the_schemas_take(kubernetes, tmp_path):
    pool, route, deployment = manifests(PAGE, "inference-pool.yaml")
    assert complaints(kubernetes, pool) == []
    assert foreign_complaints(tmp_path / "kinds", [route]) == ""
    assert kubernetes.do("validate", document=deployment, version=VERSION) is None
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert pool["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    assert (backend["group"], backend["kind"]) == (pool["apiVersion"].split("/")[0], pool["kind"])
    assert backend["name"] == pool["metadata"]["name"] and route["metadata"]["namespace"] == pool["metadata"]["namespace"]


MISTAKES = [("targetPorts", "targetPort"), ("number: 8000", "number: '8000'"), ("selector", "selectors"), ("endpointPickerRef", "extensionRef")]


@pytest.mark.parametrize("right,wrong", MISTAKES)
def test_a_mistake_in_a_pool_would_be_noticed(kubernetes, right, wrong):
    pool = manifests(PAGE, "inference-pool.yaml")[0]
    assert complaints(kubernetes, pool) == []
    text = yaml.safe_dump(pool)
    assert right in text
    assert complaints(kubernetes, yaml.safe_load(text.replace(right, wrong)))


def test_a_mistake_in_a_route_would_be_noticed(tmp_path):
    route = manifests(PAGE, "inference-pool.yaml")[1]
    route["spec"]["rules"][0]["backendRef"] = route["spec"]["rules"][0].pop("backendRefs")
    assert "backendRef" in foreign_complaints(tmp_path / "kinds", [route])


def test_a_pod_of_the_pool_has_the_gauge_at_the_pools_port(tokengauge, kubernetes):
    pool, _, deployment = manifests(PAGE, "inference-pool.yaml")
    (target,) = pool["spec"]["targetPorts"]
    after = injected(tokengauge, deployment)
    assert kubernetes.do("validate", document=after, version=VERSION) is None
    fronts(after["spec"]["template"]["spec"], target["number"], 18000)
    assert "--model-server-metrics-port=18000" in (HERE.parent.parent.parent / "docs" / PAGE).read_text()


def chat(url):
    body = {"model": "tiny", "stream": True, "max_tokens": 24, "messages": [{"role": "user", "content": "Tell me of rivers."}]}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def families(url):
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as answer:
        return {line.split()[2] for line in answer.read().decode().splitlines() if line.startswith("# TYPE ")}


def test_the_sidecar_of_the_pool_serves_a_real_engine(tokengauge, engine, tmp_path):
    """Runs the sidecar with its own arguments and configuration, on this machine's ports instead of the pod's."""
    template = injected(tokengauge, manifests(PAGE, "inference-pool.yaml")[2])["spec"]["template"]
    config = template["metadata"]["annotations"]["tokengauge.dev/proxy-config"]
    config = config.replace("http://127.0.0.1:18000", engine).replace("/var/lib/tokengauge", str(tmp_path / "state"))
    (tmp_path / "proxy-config.toml").write_text(config)
    moved = {"/etc/tokengauge/proxy-config.toml": tmp_path / "proxy-config.toml"}
    moved |= {"*:8000": ANY_PORT, "127.0.0.1:15465": ANY_PORT, "*:15464": ANY_PORT}
    arguments = [moved.get(argument, argument) for argument in sidecar(template["spec"])["args"]]
    with running([tokengauge, *arguments], tmp_path / "sidecar.log", expected_exit=0) as process:
        url = "http://" + process.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)")
        admin = "http://" + process.wait_for_line(r"\badmin on (127\.0\.0\.1:\d+)")

        def calls():
            with urllib.request.urlopen(f"{admin}/api/v1/calls?operation_class=all", timeout=20) as answer:
                return json.load(answer)["calls"]

        # Metrics through the pool's port are the engine's own, and count as a call of another class.
        assert families(url) == families(engine) and families(engine)
        assert chat(url).rstrip().endswith(b"data: [DONE]")
        process.wait_for(lambda: len(calls()) == 2, "two calls")
        made = {call["operation_class"]: call for call in calls()}
        assert made.keys() == {"generation", "other"} and made["other"]["path"] == "/metrics"
        assert made["generation"]["upstream"] == "llama" and made["generation"]["seconds"]["ttft"] > 0
        process.wait_for(lambda: read_by_the_gauge(admin), "the engine's queue")
        with urllib.request.urlopen(f"{admin}/api/v1/slos", timeout=20) as answer:
            assert [slo["name"] for slo in json.load(answer)["slos"]] == ["llama-ttft"]


def read_by_the_gauge(admin):
    with urllib.request.urlopen(f"{admin}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return [line for line in lines if line.startswith('tokengauge_upstream_queue_depth{upstream="llama"}')]


def test_the_inference_service_is_valid_by_its_definition(kubernetes):
    (service,) = manifests(PAGE, "inference-service.yaml")
    assert complaints(kubernetes, service) == []
    service["spec"]["predictor"]["model"]["modelFormats"] = service["spec"]["predictor"]["model"].pop("modelFormat")
    assert complaints(kubernetes, service)


def kserve_pod():
    pod = yaml.safe_load((HERE / "kserve-pod.yaml").read_text())
    (service,) = manifests(PAGE, "inference-service.yaml")
    pod["metadata"]["annotations"] |= service["spec"]["predictor"]["annotations"]
    return pod


def test_the_pod_that_kserve_makes_has_the_gauge_where_its_service_leads(tokengauge, kubernetes):
    pod = kserve_pod()
    # Without ports of the container, KServe's Service leads to 8080.
    assert "ports" not in pod["spec"]["containers"][0]
    after = injected(tokengauge, pod)
    assert kubernetes.do("validate", document=after, version=VERSION) is None
    fronts(after["spec"], 8080, 18080)
    names = [container["name"] for container in after["spec"]["initContainers"]]
    assert names == ["tokengauge", "storage-initializer"]


def test_a_runtime_that_does_not_say_its_port_is_refused_with_the_reason(tokengauge):
    pod = kserve_pod()
    pod["spec"]["containers"][0] |= {"command": [], "args": ["--model_name=llama"]}
    done = subprocess.run([tokengauge, "inject", "-f", "-"], input=yaml.safe_dump(pod), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "tells it to listen on 8080" in done.stderr and not done.stdout


def test_the_inference_service_itself_has_no_pod_to_inject(tokengauge):
    text = block(PAGE, "inference-service.yaml")
    done = subprocess.run([tokengauge, "inject", "-f", "-"], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and done.stdout == text, done.stderr


def test_the_proxy_of_a_production_stack_engine_has_the_port_of_the_router(tokengauge, kubernetes):
    (values,) = manifests(PAGE, "production-stack-values.yaml")
    (model,) = values["servingEngineSpec"]["modelSpec"]
    deployment = yaml.safe_load((HERE / "production-stack.yaml").read_text())
    template = deployment["spec"]["template"]
    template["metadata"]["annotations"] = model["podAnnotations"]
    assert f"{model['repository']}:{model['tag']}" == template["spec"]["containers"][0]["image"]
    assert model["modelURL"] in template["spec"]["containers"][0]["command"]
    after = injected(tokengauge, deployment)
    assert kubernetes.do("validate", document=after, version=VERSION) is None
    spec = after["spec"]["template"]["spec"]
    fronts(spec, 8000, 18000)
    # The chart's Service and ServiceMonitor use the port's name.
    assert [port["containerPort"] for port in sidecar(spec)["ports"] if port.get("name") == "container-port"] == [8000]


def test_the_gateway_in_front_of_the_router_is_valid_and_renders(tokengauge, kubernetes, tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(block(PAGE, "production-stack-gateway.yaml"))
    checked = subprocess.run([tokengauge, "check", "--config", file], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    assert "chat-ttft" in checked.stdout + checked.stderr
    rules = subprocess.run([tokengauge, "print", "rules", "--format", "helm", "--config", file], capture_output=True, text=True, timeout=60, check=True)
    (tmp_path / "rules.yaml").write_text(rules.stdout)
    documents = kubernetes.documents(kubernetes.values(file, tmp_path / "rules.yaml"), name="tokengauge", namespace="llm")
    assert "vllm-router-service.serving" in json.dumps(one(documents, "ConfigMap", "tokengauge"))
