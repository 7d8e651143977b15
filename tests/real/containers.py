"""Images and containers by buildah and podman, in separate folders, and networks with only a loopback interface."""

import concurrent.futures
import contextlib
import copy
import ctypes
import json
import os
import pathlib
import re
import subprocess
import uuid

import yaml

PROJECT = pathlib.Path(__file__).parent.parent.parent
CLONE_NEWNET = 0x40000000
# Works as root inside a container: no system bus, no cgroup management, no raised limits.
CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
"""


class Containers:
    def __init__(self, folder: pathlib.Path):
        folder.mkdir()
        self.folder = folder
        (folder / "containers.conf").write_text(CONTAINERS_CONF)
        self.storage = ["--root", folder / "root", "--runroot", folder / "run", "--storage-driver", "vfs"]

    def podman(self, *arguments, expected_exit=0, **options):
        return self._ran("podman", *arguments, expected_exit=expected_exit, **options)

    def build(self, tag, *arguments):
        self._ran("buildah", "bud", "--isolation", "chroot", "-t", tag, *arguments, cwd=PROJECT)
        return tag

    def _ran(self, program, *arguments, expected_exit=0, **options):
        command = [str(part) for part in (program, *self.storage, *arguments)]
        environment = {**os.environ, "CONTAINERS_CONF": str(self.folder / "containers.conf")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, **options)
        assert done.returncode == expected_exit, f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def played(self, *documents):
        """Runs documents by `kube play` and returns the containers of their only pod, by container name."""
        file = self.folder / f"{uuid.uuid4().hex}.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        try:
            self.podman("kube", "play", "--network", "none", file)
            names = self.podman("ps", "--all", "--format", "{{.Names}}").split()
            # Podman names the pod of a Deployment DEPLOYMENT-pod-0.
            pods = [f"{one['metadata']['name']}-pod-0-" for one in documents if one["kind"] == "Deployment"]
            yield {name.removeprefix(pod): name for name in names for pod in pods if name.startswith(pod)}
        finally:
            self.podman("kube", "down", file)

    def network_of(self, name):
        return f"/proc/{self.inspect(name)['State']['Pid']}/ns/net"

    def inspect(self, name):
        return json.loads(self.podman("inspect", name))[0]

    def logs(self, name):
        command = [str(part) for part in ("podman", *self.storage, "logs", name)]
        environment = {**os.environ, "CONTAINERS_CONF": str(self.folder / "containers.conf")}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        return done.stdout

    @contextlib.contextmanager
    def running(self, image, *arguments, options=(), network=None):
        """Starts a read-only background container without capabilities and returns its name."""
        name = f"c{uuid.uuid4().hex[:8]}"
        network = f"ns:{network}" if network else "none"
        hardened = ["--network", network, "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all"]
        hardened += ["--security-opt", "no-new-privileges"]
        self.podman("create", "--name", name, *hardened, *options, image, *arguments)
        try:
            self.podman("start", name)
            yield name
        finally:
            self.podman("rm", "--force", "--time", "5", name)

    def remove(self):
        self.podman("rm", "--all", "--force", "--time", "1")
        self.podman("rmi", "--all", "--force")


# Values of the downward API, which podman does not provide.
FIELDS = {"metadata.name": "a-pod", "metadata.namespace": "a-namespace", "metadata.uid": "a-uid", "spec.nodeName": "a-node"}


def for_podman(document):
    """Adapts a Deployment to podman 4.3, which treats a native sidecar as a container that ends, publishes ports on
    a bridge, runs probes by a curl in the container, and knows few pod fields."""
    document = copy.deepcopy(document)
    spec = document["spec"]["template"]["spec"]
    sidecars = [one for one in spec.get("initContainers", []) if one.pop("restartPolicy", None) == "Always"]
    spec["initContainers"] = [one for one in spec.get("initContainers", []) if one not in sidecars]
    spec["containers"] = sidecars + spec["containers"]
    for container in spec["containers"]:
        for key in ("ports", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle"):
            container.pop(key, None)
        for variable in container.get("env", []):
            if field := variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath"):
                label = re.fullmatch(r"metadata\.labels\['(.+)'\]", field)
                labels = document["spec"]["template"]["metadata"]["labels"]
                variable.update(value=labels[label[1]] if label else FIELDS[field])
                del variable["valueFrom"]
    return document


@contextlib.contextmanager
def network():
    """Creates a network namespace with only a loopback interface and returns its path."""
    name = f"tokengauge-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield f"/run/netns/{name}"
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def inside(network, *command):
    return ["nsenter", f"--net={network}", *command]


def asked(network, url, *options):
    command = inside(network, "curl", "--silent", "--show-error", "--max-time", "20", *options, url)
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def within(network, work):
    """Returns the result of `work()` in a thread of that network. Its sockets and child processes are in the
    network."""

    def entered():
        with open(network) as namespace:
            failed = ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET)
        assert not failed, os.strerror(ctypes.get_errno())
        return work()

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(entered).result()
