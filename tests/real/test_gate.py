"""Gates as Argo Rollouts and Flagger use them: their CRDs, their condition language, and a real Prometheus."""

import concurrent.futures
import contextlib
import json
import pathlib
import re
import signal
import subprocess
import urllib.request

import pytest
import yaml

from crds import schemas
from gauge import Gauge
from helm import PROJECT, Helm
from processes import free_port, running
from prometheus import checked, exporter, prometheus

HERE = pathlib.Path(__file__).parent / "gate"
PYTHON = PROJECT / ".cache/real/expressions/bin/python"
ANY_PORT = "127.0.0.1:0"
SESSIONS = 150
# Margins for a busy machine. The speeds of the models are equal or differ by a factor of four.
MARGINS = dict.fromkeys(["failures", "truncated", "refused", "empty", "cut_off", "invalid_tool_calls"], 0.2) | {"tps": 0.5}
# The baseline, and candidates by the verdict of their gates.
MODELS = {
    "old": "ttft=2ms,gap=2ms,tokens=40,usage=on",
    "pass": "ttft=2ms,gap=2ms,tokens=40,usage=on",
    "fail": "ttft=2ms,gap=1ms,tokens=40,usage=on,finish=length",
}
VERDICTS = {"pass": "Successful", "fail": "Failed", "inconclusive": "Inconclusive"}
GAUGE = "tokengauge_gate_verdict"
# Manifest → options.
FORMS = {
    "argo": ("argo", "--admin", "http://tokengauge.infra:9464"),
    "argo of Prometheus": ("argo", "--prometheus", "http://prometheus.infra:9090"),
    "flagger": ("flagger", "--admin", "http://tokengauge.infra:9464"),
    "flagger of Prometheus": ("flagger", "--prometheus", "http://prometheus.infra:9090"),
}


def emitted(tokengauge, config, gate, form, *options):
    command = [tokengauge, "gate", gate, "--config", config, "--emit", form, *options]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    file = tmp_path_factory.mktemp("gate") / "proxy.toml"
    upstreams = "".join(f'[[upstream]]\nname = "{name}"\nurl = "http://127.0.0.1:9"\n' for name in ("old", "new"))
    gate = '[[gate]]\nname = "Rollout 2"\ncandidate.upstream = "new"\nbaseline.upstream = "old"\nmax_wait = "30m"\n'
    file.write_text(f'{upstreams}[[route]]\nupstream = "old"\n[[route]]\npath = "/new"\nupstream = "new"\n{gate}')
    return file


@pytest.fixture(scope="module")
def complaints():
    """Returns a function with the errors of a document against the CRDs."""
    known = schemas(HERE)
    helm = Helm()
    yield lambda document: helm.do("complaints", document=document, schema=known[document["apiVersion"], document["kind"]])
    helm.close()


@pytest.mark.parametrize("form", FORMS)
def test_the_manifests_are_what_the_crds_take(tokengauge, example, complaints, form):
    documents = emitted(tokengauge, example, "Rollout 2", *FORMS[form])
    kinds = {"argo": ["AnalysisTemplate"], "flagger": ["Canary"], "flagger of Prometheus": ["MetricTemplate", "Canary"]}
    assert [document["kind"] for document in documents] == kinds.get(form, ["AnalysisTemplate"])
    assert [complaint for document in documents for complaint in complaints(document)] == []
    if form == "flagger of Prometheus":
        assert documents[1]["spec"]["analysis"]["metrics"][0]["templateRef"]["name"] == documents[0]["metadata"]["name"]


# Form, the correct text, and a wrong replacement.
MISTAKES = [
    ("argo", "consecutiveSuccessLimit", "consecutiveSucessLimit"),
    ("argo", "jsonPath", "jsonpath"),
    ("argo", "provider", "providers"),
    ("argo of Prometheus", "address", "url"),
    ("flagger", "confirm-promotion", "confirm-promotions"),
    ("flagger", "threshold", "treshold"),
    ("flagger of Prometheus", "thresholdRange", "thresholdrange"),
    ("flagger of Prometheus", "type: prometheus", "type: prom"),
    ("flagger of Prometheus", "kind: Deployment", "kind: Deploymnet"),
]


@pytest.mark.parametrize("form,right,wrong", MISTAKES)
def test_the_crds_would_notice_a_mistake(tokengauge, example, complaints, form, right, wrong):
    text = yaml.safe_dump_all(emitted(tokengauge, example, "Rollout 2", *FORMS[form]))
    text, count = re.subn(rf"\b{right}(?=:|\n)", wrong, text)
    assert count > 0
    found = [complaint for document in yaml.safe_load_all(text) for complaint in complaints(document)]
    assert len(found) > 0


class Argo:
    def __init__(self, process):
        self.process = process

    def holds(self, condition, result):
        self.process.stdin.write(json.dumps([condition, result]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "no such condition"
        value = json.loads(line)
        assert isinstance(value, bool), f"{condition} is {value}"
        return value

    def phase(self, metric, result):
        """Evaluates in the order of EvaluateResult in utils/evaluate/evaluate.go: if both conditions hold, it has
        failed."""
        success = self.holds(metric["successCondition"], result)
        if self.holds(metric["failureCondition"], result):
            return "Failed"
        return "Successful" if success else "Inconclusive"

    def web(self, metric):
        """Does the same as metricproviders/webmetric, for the only kind of JSONPath in use."""
        web = metric["provider"]["web"]
        field = re.fullmatch(r"\{\$\.(\w+)\}", web["jsonPath"]).group(1)
        headers = {header["key"]: header["value"].replace("{{args.token}}", "unused") for header in web["headers"]}
        with urllib.request.urlopen(urllib.request.Request(web["url"], headers=headers), timeout=web["timeoutSeconds"]) as answer:
            return self.phase(metric, json.load(answer)[field])


@pytest.fixture(scope="module")
def argo():
    command = [PYTHON, HERE / "condition.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Argo(process)
        process.stdin.close()


def test_a_condition_is_evaluated_by_the_language_that_argo_has(argo):
    metric = {"successCondition": 'result == "pass" or len(result) > 9', "failureCondition": 'result startsWith "fail"'}
    assert [argo.phase(metric, result) for result in ("pass", "failed so long", "else")] == ["Successful", "Failed", "Inconclusive"]


class Watched:
    """A proxy whose gates have decided, and the Prometheus that scrapes it."""

    def __init__(self, gauge, config, watching):
        self.gauge, self.config, self.watching = gauge, config, watching


def call(url, model, session):
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": f"What is {session}?"}]})
    headers = {"content-type": "application/json", "x-tokengauge-session": session}
    request = urllib.request.Request(f"{url}/{model}/v1/chat/completions", body.encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert b"[DONE]" in answer.read()


def written(folder, models):
    gates = {model: model for model in models if model != "old"} | {"inconclusive": "nobody"}
    margins = ", ".join(f"{name} = {value}" for name, value in MARGINS.items())
    text = f'state_dir = "{folder / "state"}"\n[measure]\nwarm_up_calls = 0\nwarm_up_for = "0s"\n'
    for name, address in (models | {"nobody": "127.0.0.1:9"}).items():
        text += f'[[upstream]]\nname = "{name}"\nurl = "http://{address}"\n[[route]]\npath = "/{name}"\nupstream = "{name}"\n'
    for gate, candidate in gates.items():
        text += f'[[gate]]\nname = "{gate}"\ncandidate.upstream = "{candidate}"\nbaseline.upstream = "old"\n'
        text += f'settled_after = "0s"\nnot_worse_by = {{ {margins} }}\n'
    (folder / "proxy.toml").write_text(text)
    return folder / "proxy.toml"


@pytest.fixture(scope="module")
def watched(tokengauge, tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    with contextlib.ExitStack() as processes:
        models = {}
        for name, behaviour in MODELS.items():
            command = [tokengauge, "demo", "backend", "--listen", ANY_PORT, "--behave", behaviour]
            sim = processes.enter_context(running(command, folder / f"{name}.log"))
            models[name] = sim.wait_for_line(r"listening on (\S+)")
        config = written(folder, models)
        command = [tokengauge, "run", "--config", config, "--listen", ANY_PORT, "--admin", ANY_PORT]
        process = processes.enter_context(running(command, folder / "proxy.log", expected_exit=0))
        url = process.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)")
        gauge = Gauge(f"http://{url}", "http://" + process.wait_for_line(r"\badmin on (127\.0\.0\.1:\d+)"), None)
        with concurrent.futures.ThreadPoolExecutor(8) as agents:
            calls = [agents.submit(call, gauge.url, model, f"{model}-{number}") for number in range(SESSIONS) for model in MODELS]
            for done in calls:
                done.result()
        count = SESSIONS * len(MODELS)
        process.wait_for(lambda: gauge.metric("tokengauge_ledger_records_total") == count, "the calls in the ledger")
        # A reload evaluates gates again.
        process.child.send_signal(signal.SIGHUP)
        watching = processes.enter_context(prometheus(folder / "prometheus", {"tokengauge": [gauge.admin.removeprefix("http://")]}))
        for verdict in VERDICTS:
            watching.wait_for(f'{GAUGE}{{gate="{verdict}",verdict="{verdict}"}} == 1')
        yield Watched(gauge, config, watching)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_argos_measurement_of_the_api_is_the_verdict(tokengauge, watched, argo, verdict):
    (template,) = emitted(tokengauge, watched.config, verdict, "argo", "--admin", watched.gauge.admin)
    (metric,) = template["spec"]["metrics"]
    assert argo.web(metric) == VERDICTS[verdict]


def test_promtool_has_nothing_to_say_about_the_gauges(watched):
    assert checked("promtool", "check", "metrics", text=watched.gauge.scrape("/metrics")) == ""


def values(watching, query):
    return [value for _, value in watching.query(query)]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_prometheus_answers_the_emitted_queries(tokengauge, watched, argo, verdict):
    address = watched.watching.url
    (template,) = emitted(tokengauge, watched.config, verdict, "argo", "--prometheus", address)
    (metric,) = template["spec"]["metrics"]
    asked = metric["provider"]["prometheus"]
    assert asked["address"] == address
    assert argo.phase(metric, values(watched.watching, asked["query"])) == VERDICTS[verdict]
    check, canary = emitted(tokengauge, watched.config, verdict, "flagger", "--prometheus", address)
    assert check["spec"]["provider"]["address"] == address
    (value,) = values(watched.watching, check["spec"]["query"])
    (metric,) = canary["spec"]["analysis"]["metrics"]
    assert (value >= metric["thresholdRange"]["min"]) == (verdict == "pass"), "a failed check is below the least value"


EXITS = {"Successful": 0, "Failed": 1, "Inconclusive": 3}


def asked(tokengauge, gate, address):
    """Returns exit code, standard output and standard error of the command that queries Prometheus."""
    done = subprocess.run([tokengauge, "gate", gate, "--prometheus", address], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_command_asks_prometheus_and_exits_by_the_verdict(tokengauge, watched, verdict):
    code, out, error = asked(tokengauge, verdict, watched.watching.url + "/")
    assert (code, out.split(": ")[:2]) == (EXITS[VERDICTS[verdict]], [f"gate {verdict}", verdict]), error
    assert (error == "") == (verdict == "pass")


def test_a_server_other_than_prometheus_is_reported(tokengauge, watched):
    nowhere = f"http://127.0.0.1:{free_port()}"
    others = [(nowhere, "is a Prometheus running there?"), (watched.gauge.admin, "is it a Prometheus?"), ("x y", "the URL of a Prometheus")]
    for address, words in others:
        code, out, error = asked(tokengauge, "pass", address)
        assert (code, out) == (1, "") and words in error, error
    code, out, _ = asked(tokengauge, "unknown", watched.watching.url)
    assert code == 3 and "no data about this gate" in out


# Verdict of each of several proxies → Argo's result.
FLEETS = [
    (["pass", "pass"], "Successful"),
    (["pass", "inconclusive"], "Inconclusive"),
    (["pass", "fail"], "Failed"),
    (["inconclusive", "fail"], "Failed"),
    ([], "Inconclusive"),
]


def test_a_fleet_passes_if_all_proxies_pass(tokengauge, example, argo, tmp_path):
    (template,) = emitted(tokengauge, example, "Rollout 2", "argo", "--prometheus", "http://prometheus:9090")
    (metric,) = template["spec"]["metrics"]
    for number, (said, phase) in enumerate(FLEETS):
        with contextlib.ExitStack() as proxies:
            addresses = [proxies.enter_context(exporter(exposition(one))) for one in said]
            watching = proxies.enter_context(prometheus(tmp_path / str(number), {"tokengauge": addresses}))
            if said:
                watching.wait_for(f"count({GAUGE})", lambda series, all=3 * len(said): series == all)
            assert argo.phase(metric, values(watching, metric["provider"]["prometheus"]["query"])) == phase, said
            code, out, _ = asked(tokengauge, "Rollout 2", watching.url)
            assert (code, out.split(": ")[1]) == (EXITS[phase], next(one for one in VERDICTS if VERDICTS[one] == phase)), out


def exposition(said):
    lines = [f'{GAUGE}{{gate="Rollout 2",verdict="{one}"}} {int(one == said)}\n' for one in VERDICTS]
    return lambda: f"# TYPE {GAUGE} gauge\n{''.join(lines)}"
