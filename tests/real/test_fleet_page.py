"""`tokengauge fleet` over ten real proxies and a ClickHouse, in a real browser: streams of all pods, a session on
two pods as one waterfall, a killed pod that is named, filters."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import threading
import urllib.request

import pytest

import test_page
from processes import running
from test_ledger import BODY, Proxy
from test_sinks import clickhouse, run, until  # noqa: F401 (a fixture)

pytestmark = pytest.mark.part("stores")

PODS = 10
# A separate folder, because tests of a proxy's page begin by clearing theirs.
SHOTS = test_page.PROJECT / "target/fleet-page"
SCENARIOS = ["streams", "pods", "upstreams", "session", "filters", "teams"]


def chat(proxy, session, behave):
    headers = {"content-type": "application/json", "x-tokengauge-session": session, "x-sim": behave}
    request = urllib.request.Request(f"{proxy.url}/v1/chat/completions", BODY, headers)
    with contextlib.suppress(OSError, http.client.HTTPException), urllib.request.urlopen(request, timeout=300) as response:
        response.read()


def config(folder, simulator, store):
    path = folder / "proxy.toml"
    path.write_text(
        f"""
listen = "127.0.0.1:0"
drain_timeout = "1s"
[admin]
listen = "127.0.0.1:0"
[[upstream]]
name = "simulator"
url = "{simulator}"
[[route]]
upstream = "simulator"
[[price]]
model = "*"
output = 100
[[slo]]
name = "fast"
objective = 0.9
window = "30d"
ttft.at_most = "10s"
[[sink]]
kind = "clickhouse"
url = "{store}"
batch_wait = "200ms"
"""
    )
    return path


@pytest.fixture
def fleet(tokengauge, simulator, clickhouse, tmp_path):  # noqa: F811
    path = config(tmp_path, simulator, clickhouse.url)
    run(tokengauge, "export", "sink", "ddl", "--apply", "--config", path)
    with contextlib.ExitStack() as stack:
        pods = {}
        for number in range(1, PODS + 1):
            name = f"agent-{number}"
            attributes = f"k8s.namespace.name=agents,k8s.pod.name={name}"
            # A sidecar gets it from its pod's label.
            team = f"TOKENGAUGE_TEAM={'search' if number % 2 else 'ads'}"
            command = ["env", f"OTEL_RESOURCE_ATTRIBUTES={attributes}", team, tokengauge, "run", "--config", path]
            process = stack.enter_context(running(command, tmp_path / f"{name}.log"))
            pods[name] = (process, Proxy(process))
        addresses = ",".join(proxy.admin.removeprefix("http://") for _, proxy in pods.values())
        command = [tokengauge, "fleet", "--store", clickhouse.url, "--pods", addresses, "--listen", "127.0.0.1:0", "--config", path]
        process = stack.enter_context(running(command, tmp_path / "fleet.log", expected_exit=0))
        admin = "http://" + process.wait_for_line(r"admin on (\S+)")
        yield admin, pods


def asked(admin, path):
    with urllib.request.urlopen(f"{admin}/api/v1/{path}", timeout=10) as response:
        return json.load(response)


def test_the_page_of_ten_proxies(fleet, tmp_path):
    admin, pods = fleet
    order = ["agent-1", "agent-2", "agent-1"]
    for name in order:
        chat(pods[name][1], "handed-over", "ttft=20ms,gap=2ms,tokens=40,usage=on")
    for _, proxy in pods.values():
        chat(proxy, "own", "ttft=20ms,gap=2ms,tokens=40,usage=on")
        slow = (proxy, "slow", "ttft=20ms,gap=100ms,tokens=3000")
        threading.Thread(target=chat, args=slow, daemon=True).start()
    connected = lambda: {pod["name"] for pod in asked(admin, "pods")["pods"] if pod["state"] == "connected"}
    until(lambda: connected() == pods.keys(), lambda: asked(admin, "pods"))
    until(lambda: len(asked(admin, "calls?limit=1000")["calls"]) == PODS + len(order), lambda: asked(admin, "pods")["store"])
    killed = f"agent-{PODS}"
    os.kill(pods[killed][0].child.pid, signal.SIGKILL)
    pods[killed][0].child.wait()
    until(lambda: asked(admin, "pods")["unreachable"] == 1, lambda: asked(admin, "pods"))
    SHOTS.mkdir(parents=True, exist_ok=True)
    world = {
        "admin": admin,
        "alive": [name for name in pods if name != killed],
        "killed": killed,
        "session": {"id": "handed-over", "pods": order},
        "shots": str(SHOTS),
    }
    (tmp_path / "fleet.json").write_text(json.dumps(world))
    results = tmp_path / "results.json"
    subprocess.run(["node", test_page.PAGE / "fleet.mjs", tmp_path / "fleet.json", results], check=True, timeout=900)
    told = json.loads(results.read_text())
    assert sorted(told) == sorted(SCENARIOS)
    assert told == dict.fromkeys(SCENARIOS), "\n".join(filter(None, told.values()))
