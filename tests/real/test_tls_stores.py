"""Stores behind TLS with a private authority, by haproxy and OpenSSL, which require a client certificate: sinks,
`--store` and the quota store, also with a certificate of another authority."""

import socket
import subprocess

import pytest

from clickhouse import ClickHouse
from processes import free_port, running
from test_ledger import Proxy
from test_quota_store import PASSWORD, Valkey
from test_sinks import run, seaweed, until  # noqa: F401  (a fixture)

pytestmark = pytest.mark.part("stores")

CALLS = 20


def openssl(*arguments):
    subprocess.run(["openssl", *(str(one) for one in arguments)], check=True, capture_output=True)


class Authority:
    def __init__(self, folder):
        folder.mkdir()
        self.folder, self.ca = folder, folder / "ca.crt"
        self.new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        openssl(*self.new, "-subj", "/CN=test CA", "-keyout", folder / "ca.key", "-out", self.ca)

    def leaf(self, name):
        """Returns the files of a certificate for the loopback address and its key."""
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        leaf = ["-CA", self.ca, "-CAkey", self.folder / "ca.key", "-subj", f"/CN={name}"]
        leaf += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:false"]
        openssl(*self.new, *leaf, "-keyout", key, "-out", certificate)
        return certificate, key


@pytest.fixture
def stores(tmp_path, seaweed):  # noqa: F811
    """Yields the TLS ports in front of a ClickHouse, an S3 and a Valkey."""
    ours = Authority(tmp_path / "ours")
    certificate, key = ours.leaf("server")
    both = tmp_path / "server.pem"
    both.write_text(certificate.read_text() + key.read_text())
    valkey = Valkey(tmp_path)
    with ClickHouse(tmp_path / "clickhouse", tmp_path / "clickhouse.log").started() as clickhouse:
        valkey.start()
        behind = {"clickhouse": clickhouse.port, "s3": int(seaweed.url.rsplit(":", 1)[1]), "valkey": valkey.port}
        ports = {name: free_port() for name in behind}
        lines = ["global", "  log stderr format raw local0", "defaults", "  mode tcp", "  timeout connect 5s"]
        lines += ["  timeout client 60s", "  timeout server 60s"]
        for name, port in behind.items():
            tls = f"ssl crt {both} ca-file {ours.ca} verify required"
            lines += [f"listen {name}", f"  bind 127.0.0.1:{ports[name]} {tls}", f"  server one 127.0.0.1:{port}"]
        file = tmp_path / "haproxy.cfg"
        file.write_text("\n".join(lines) + "\n")
        with running(["haproxy", "-db", "-f", file], tmp_path / "haproxy.log") as haproxy:
            haproxy.wait_for(lambda: connects(ports["s3"]), "haproxy")
            yield ours, clickhouse, seaweed, valkey, ports
        valkey.stop()


def connects(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def config(folder, simulator, ports, authority, client):
    certificate, key = client
    tls = f'tls = {{ ca = "{authority.ca}", certificate = "{certificate}", key = "{key}" }}'
    for name, text in (("key", "any"), ("secret", "any"), ("password", PASSWORD)):
        (folder / name).write_text(text)
    file = folder / "proxy.toml"
    file.write_text(
        f"""
listen = "127.0.0.1:0"
state_dir = "{folder}/state"
[admin]
listen = "127.0.0.1:0"
[[upstream]]
name = "simulator"
url = "{simulator}"
[[route]]
upstream = "simulator"
[[quota]]
name = "minutes"
per = "all"
requests_per_minute = 60000
[quota_store]
url = "rediss://127.0.0.1:{ports["valkey"]}"
password_file = "{folder}/password"
{tls}
[[sink]]
kind = "clickhouse"
url = "https://127.0.0.1:{ports["clickhouse"]}"
batch_wait = "100ms"
{tls}
[[sink]]
kind = "s3"
url = "https://127.0.0.1:{ports["s3"]}"
bucket = "llm"
prefix = "{folder.name}"
region = "us-east-1"
access_key_id_file = "{folder}/key"
secret_access_key_file = "{folder}/secret"
batch_wait = "100ms"
{tls}
"""
    )
    return file


def test_stores_behind_tls_with_client_certificates(tokengauge, simulator, stores, tmp_path):
    ours, clickhouse, s3, valkey, ports = stores
    file = config(tmp_path, simulator, ports, ours, ours.leaf("client"))
    run(tokengauge, "export", "sink", "ddl", "--apply", "--config", file)
    with running([tokengauge, "run", "--config", file], tmp_path / "proxy.log", expected_exit=0) as process:
        proxy = Proxy(process)
        proxy.calls(CALLS, "s")
        until(lambda: len(clickhouse.ids()) == CALLS, lambda: f"{len(clickhouse.ids())} calls")
        until(lambda: list(s3.names(tmp_path.name)), lambda: "no file is in the bucket")
        until(valkey.keys, lambda: "nothing is counted in the quota store")
        assert proxy.metric("tokengauge_quota_store_fallback") == 0
    certificate, key = ours.leaf("reader")
    store = f"clickhouses://127.0.0.1:{ports['clickhouse']}/default?ca={ours.ca}"
    export = ["export", "--format", "jsonl", "--since", "1h", "--store"]
    lines = run(tokengauge, *export, f"{store}&certificate={certificate}&key={key}").splitlines()
    assert len(lines) == CALLS
    # Nothing can be read without a certificate, or with the host's roots.
    for url in (store, f"clickhouses://127.0.0.1:{ports['clickhouse']}/default?certificate={certificate}&key={key}"):
        refused = subprocess.run([tokengauge, *export, url], capture_output=True, text=True, timeout=60)
        assert refused.returncode == 1 and refused.stdout == "" and "ertificate" in refused.stderr, refused.stderr


def test_a_certificate_of_another_authority_is_refused_and_nothing_is_lost(tokengauge, simulator, stores, tmp_path):
    ours, clickhouse, s3, valkey, ports = stores
    others = Authority(tmp_path / "others")
    file = config(tmp_path, simulator, ports, others, ours.leaf("client"))
    with running([tokengauge, "run", "--config", file], tmp_path / "proxy.log") as process:
        proxy = Proxy(process)
        proxy.calls(CALLS, "s")
        for sink in ("clickhouse", "s3"):
            until(
                lambda: proxy.metric(f'tokengauge_sink_waiting_records{{sink="{sink}"}}') == CALLS, lambda: f"{sink} took calls"
            )
        until(lambda: "ertificate" in process.written() or "UnknownIssuer" in process.written(), process.written)
    assert valkey.keys() == []
    assert not list(s3.names(tmp_path.name))
    # With the right authority, waiting calls are delivered.
    file = config(tmp_path, simulator, ports, ours, ours.leaf("client"))
    run(tokengauge, "export", "sink", "ddl", "--apply", "--config", file)
    with running([tokengauge, "run", "--config", file], tmp_path / "again.log", expected_exit=0):
        until(lambda: len(clickhouse.ids()) == CALLS, lambda: f"{len(clickhouse.ids())} calls")
