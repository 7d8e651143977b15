"""The container image, built by buildah and run by podman: its content, size and start time. A static binary without
other files must resolve names, trust certificates, and stop on SIGTERM."""

import datetime
import json
import os
import re
import subprocess
import tarfile
import time
import zlib

import pytest

from containers import asked, inside, network
from processes import running

pytestmark = pytest.mark.part("containers")

HOST = "engine.example"
MB = 1_000_000
# The released image, and the unoptimized image of the tests.
GOAL_MB = 25 if os.environ.get("IMAGE_PROFILE") == "image" else 30
GOAL_SECONDS = 0.1
BODY = json.dumps({"model": "far-away", "messages": [{"role": "user", "content": "Hello"}]})
ASK = ["--data", BODY, "--header", "content-type: application/json", "--write-out", " %{http_code}"]


@pytest.fixture(scope="module")
def loopback():
    with network() as name:
        yield name


def test_it_has_a_binary_and_roots_and_no_other_program(containers, image, tmp_path):
    containers.podman("create", "--name", "contents", image)
    containers.podman("export", "--output", tmp_path / "all.tar", "contents")
    containers.podman("rm", "contents")
    with tarfile.open(tmp_path / "all.tar") as opened:
        files = {f"/{member.name.strip('/')}": member for member in opened if not member.isdir()}
    # Podman leaves empty files at its mount points.
    ours = {name: member for name, member in files.items() if member.size or name.startswith("/usr")}
    assert ours.keys() == {"/usr/bin/tokengauge", "/etc/ssl/certs/ca-certificates.crt", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf"}
    assert [name for name, member in files.items() if member.mode & 0o111 and member.size] == ["/usr/bin/tokengauge"]


def test_it_has_labels_and_an_unprivileged_user(containers, image):
    config = containers.inspect(image)["Config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["/usr/bin/tokengauge"]
    assert set(config["ExposedPorts"]) == {"8080/tcp", "9464/tcp"}
    labels = {name.removeprefix("org.opencontainers.image.") for name in config["Labels"]}
    assert {"title", "description", "licenses", "version", "revision"} <= labels


def test_it_is_small(containers, image, image_binary):
    size = containers.inspect(image)["Size"]
    binary = image_binary.stat().st_size
    packed = len(zlib.compress(image_binary.read_bytes(), 6))
    print(f"\nimage {size / MB:.1f} MB, of which binary {binary / MB:.1f} MB; to pull {packed / MB:.1f} MB, goal {GOAL_MB} MB")
    assert size - binary < 0.5 * MB
    assert packed + size - binary < GOAL_MB * MB, "compressed, as registries keep it"


def test_the_binary_needs_no_other_file(image_binary):
    readelf = subprocess.run(["readelf", "--wide", "--dynamic", "--program-headers", image_binary], capture_output=True, text=True, check=True)
    assert "NEEDED" not in readelf.stdout and "INTERP" not in readelf.stdout


def test_it_is_ready_soon_and_holds_no_privilege(containers, image, loopback, logs):
    took, with_runtime = [], []
    for number in range(4):
        asking = inside(loopback, "python3", os.path.join(os.path.dirname(__file__), "ready.py"), "9464", "/readyz")
        with running(asking, logs / f"ready-{number}.log") as waiting:
            waiting.wait_for_line("(asking)")
            with containers.running(image, network=loopback) as name:
                ready = float(waiting.wait_for_line(r"at (\S+)"))
                state = containers.inspect(name)["State"]
                took.append(ready - datetime.datetime.fromisoformat(state["StartedAt"]).timestamp())
                with_runtime.append(ready - forked(state["Pid"]))
                status = dict(re.findall(r"^(\w+):\s+(.*)$", open(f"/proc/{state['Pid']}/status").read(), re.MULTILINE))
                assert set(status["Uid"].split()) == set(status["Gid"].split()) == {"65532"}
                assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
                assert status["NoNewPrivs"] == "1"
    for what, times in (("the runtime has started it", took), ("the runtime has begun to make it", with_runtime)):
        print(f"\nready {', '.join(f'{1000 * one:.0f}' for one in times)} ms after {what}, goal {1000 * GOAL_SECONDS:.0f} ms", end="")
    assert min(took) < GOAL_SECONDS


def forked(pid):
    """Returns when the runtime forked the process, to a tick of the clock."""
    ticks = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks


@pytest.fixture(scope="module")
def far_away(loopback, logs):
    """Starts a name server and an HTTPS server with a certificate of a new CA. Yields the folder of the CA."""
    folder = logs / "far-away"
    folder.mkdir()
    openssl = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    ca = [*openssl, "-subj", "/CN=test CA", "-keyout", folder / "ca.key", "-out", folder / "ca.crt"]
    leaf = [*openssl, "-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"]
    leaf += ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", folder / "leaf.key", "-out", folder / "leaf.crt"]
    for command in (ca, leaf):
        subprocess.run([str(part) for part in command], check=True, capture_output=True)
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (folder / "hosts").write_text(f"127.0.0.1 localhost by-hosts-file.example\n127.0.0.1 {HOST}\n")
    (folder / "no-hosts").write_text("127.0.0.1 localhost\n")
    for file in folder.iterdir():
        file.chmod(0o644)
    backend = os.path.join(os.path.dirname(__file__), "backend.py")
    with running(inside(loopback, "python3", backend, HOST, folder / "leaf.crt", folder / "leaf.key"), logs / "backend.log") as process:
        process.wait_for_line("(names)")
        process.wait_for_line("(answers)")
        yield folder


def call_through(containers, image, loopback, far_away, hosts="no-hosts", roots=True, resolver="resolv.conf"):
    """Returns the status of a call to https://HOST through a container, and the container's output."""
    mounts = [(far_away / hosts, "/etc/hosts"), (far_away / resolver, "/etc/resolv.conf")]
    if roots:
        mounts.append((far_away / "ca.crt", "/etc/ssl/certs/ca-certificates.crt"))
    options = [part for source, target in mounts for part in ("--volume", f"{source}:{target}:ro")]
    arguments = ["run", "--upstream", f"https://{HOST}", "--listen", "127.0.0.1:8080", "--admin", "127.0.0.1:9464"]
    with containers.running(image, *arguments, options=options, network=loopback) as name:
        ready = ["--retry", "50", "--retry-delay", "0", "--retry-connrefused", "--retry-max-time", "10"]
        asked(loopback, "http://127.0.0.1:9464/readyz", *ready)
        answer = asked(loopback, "http://127.0.0.1:8080/v1/chat/completions", *ASK)
        return int(answer.split()[-1]), answer, containers.logs(name)


def test_it_finds_names_by_dns_and_trusts_the_roots_it_has(containers, image, loopback, far_away):
    status, answer, log = call_through(containers, image, loopback, far_away)
    assert status == 200 and "far-away" in answer, f"{answer}\n{log}"


def test_it_finds_names_in_the_hosts_file(containers, image, loopback, far_away):
    (far_away / "nobody.conf").write_text("nameserver 127.0.0.2\noptions timeout:1 attempts:1\n")
    status, answer, log = call_through(containers, image, loopback, far_away, hosts="hosts", resolver="nobody.conf")
    assert status == 200, f"{answer}\n{log}"


def test_it_trusts_no_other_authority(containers, image, loopback, far_away):
    status, answer, log = call_through(containers, image, loopback, far_away, roots=False)
    assert status == 502 and "certificate" in (answer + log).lower(), f"{answer}\n{log}"


def test_a_name_that_does_not_exist_is_told(containers, image, loopback, far_away):
    options = ["--volume", f"{far_away / 'resolv.conf'}:/etc/resolv.conf:ro"]
    with containers.running(image, "probe", "--within=1s", "http://nowhere.example/", options=options, network=loopback) as name:
        assert containers.podman("wait", name).strip() == "1"
        assert "nowhere.example" in containers.logs(name)


def test_it_probes_and_pauses_without_a_shell(containers, image, loopback):
    with containers.running(image, network=loopback):
        targets = ["tcp://127.0.0.1:8080", "http://127.0.0.1:9464/readyz"]
        with containers.running(image, "probe", "--within=10s", *targets, network=loopback) as probe:
            assert containers.podman("wait", probe).strip() == "0", containers.logs(probe)
            assert "127.0.0.1:8080/: accepts connections" in containers.logs(probe)
        with containers.running(image, "probe", "--within=1s", "http://127.0.0.1:9464/nothing", network=loopback) as probe:
            assert containers.podman("wait", probe).strip() == "1"
            assert "answered 404" in containers.logs(probe)
    began = time.monotonic()
    containers.podman("run", "--rm", "--network", "none", "--read-only", image, "pause", "1s")
    assert time.monotonic() - began >= 1


def test_it_ends_when_it_is_told(containers, image, loopback):
    with containers.running(image, network=loopback) as name:
        asked(loopback, "http://127.0.0.1:9464/readyz", "--retry", "50", "--retry-delay", "0", "--retry-connrefused")
        containers.podman("stop", "--time", "20", name)
        state = containers.inspect(name)["State"]
        assert (state["ExitCode"], state["OOMKilled"]) == (0, False), containers.logs(name)
        assert '"ended"' in containers.logs(name)
