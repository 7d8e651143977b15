"""The S3 sink with AWS credentials. moto checks signatures and policies, and issuers require their token. Every call
is delivered or waits, and no credential appears in a log."""

import contextlib
import datetime
import os

import pytest

import aws
from processes import free_port, running
from test_ledger import Proxy
from test_sinks import duckdb, ledger_ids, run, said, until
from test_tls_stores import Authority, connects

pytestmark = pytest.mark.part("aws")

CALLS = 8
WAITING = 'tokengauge_sink_waiting_records{sink="s3"}'
WRITER = aws.policy("s3:PutObject")
READER = aws.policy("s3:GetObject")


@pytest.fixture(scope="module")
def account(tmp_path_factory):
    with aws.account(tmp_path_factory.mktemp("aws") / "moto.log") as account:
        account.writer = account.role("writer", WRITER)
        yield account


@pytest.fixture
def issuer(account):
    with aws.issuer(account) as issuer:
        issuer.role = account.writer
        yield issuer


@pytest.fixture
def plain(account, issuer):
    """Returns the addresses of S3 and the issuer, and the TLS settings of the sink."""
    return account.url, issuer.url, ""


@pytest.fixture
def tls(plain, tmp_path):
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.leaf("server")
    both = tmp_path / "server.pem"
    both.write_text(certificate.read_text() + key.read_text())
    lines = ["global", "  log stderr format raw local0", "defaults", "  mode tcp", "  timeout connect 5s"]
    lines += ["  timeout client 60s", "  timeout server 60s"]
    ports = [free_port(), free_port()]
    for port, behind in zip(ports, plain, strict=False):
        address = behind.removeprefix("http://")
        lines += [f"listen {port}", f"  bind 127.0.0.1:{port} ssl crt {both}", f"  server one {address}"]
    file = tmp_path / "haproxy.cfg"
    file.write_text("\n".join(lines) + "\n")
    with running(["haproxy", "-db", "-f", file], tmp_path / "haproxy.log") as haproxy:
        haproxy.wait_for(lambda: all(connects(port) for port in ports), "haproxy")
        yield *(f"https://127.0.0.1:{port}" for port in ports), f'tls = {{ ca = "{authority.ca}" }}'


def environment(variables):
    """Returns the prefix of a command that has these variables and no other AWS variables."""
    unset = [f"--unset={name}" for name in os.environ if name.startswith("AWS_")]
    return ["env", *unset, *(f"{name}={value}" for name, value in variables.items())]


class Sidecar:
    """A proxy whose sink gets its credentials from variables, and the lines of its configuration."""

    def __init__(self, tokengauge, simulator, folder):
        self.tokengauge, self.simulator, self.folder = tokengauge, simulator, folder
        self.config = folder / "proxy.toml"
        self.logs = []

    def running(self, s3, variables, *lines):
        self.config.write_text(
            f"""
listen = "127.0.0.1:0"
state_dir = "{self.folder}/state"
[admin]
listen = "127.0.0.1:0"
[[upstream]]
name = "simulator"
url = "{self.simulator}"
[[route]]
upstream = "simulator"
[[sink]]
kind = "s3"
url = "{s3}"
bucket = "{aws.BUCKET}"
prefix = "{self.folder.name}"
region = "{aws.REGION}"
batch_wait = "100ms"
"""
            + "\n".join(lines)
        )
        self.logs.append(self.folder / f"proxy-{len(self.logs)}.log")
        command = [*environment({**variables, "TOKENGAUGE_LOG": "debug"}), self.tokengauge, "run", "--config", self.config]
        return running(command, self.logs[-1], expected_exit=0)

    def status(self, proxy):
        return run(self.tokengauge, "export", "sink", "status", "--admin", proxy.admin)

    def says(self, proxy, *parts):
        """Returns the sink's status for people and in the log, once it contains `parts`."""
        until(lambda: all(part in self.status(proxy) for part in parts), lambda: self.status(proxy), 120)
        until(lambda: all(part in self.logs[-1].read_text() for part in parts), lambda: self.logs[-1].read_text()[-4000:], 120)
        return self.status(proxy)

    def arrived(self, account):
        """Asserts that each call of the ledger is in the bucket once."""
        files = account.files(self.folder.name, self.folder / "files")
        assert files, "no file is in the bucket"
        read = f"read_parquet({[str(file) for file in files]}, hive_partitioning = true)"
        ids = [row[0] for row in duckdb(f"SELECT id FROM {read} ORDER BY id")]
        assert ids == ledger_ids(self.config)
        return len(ids)

    def keeps(self, hidden):
        assert len(hidden) > 0
        for log in self.logs:
            written = log.read_text()
            assert not [secret for secret in hidden if secret in written]


@pytest.fixture
def sidecar(tokengauge, simulator, tmp_path):
    return Sidecar(tokengauge, simulator, tmp_path)


def no_call_waits(proxy, at_least=CALLS):
    stored = 'tokengauge_sink_records_total{sink="s3"}'
    until(
        lambda: proxy.metric(stored) >= at_least and proxy.metric(WAITING) == 0,
        lambda: f"{proxy.metric(stored)} are stored, {proxy.metric(WAITING)} wait",
    )


def file_of(folder, name, text):
    file = folder / name
    # Replace the file atomically, as the kubelet does.
    new = folder / f"{name}.new"
    new.write_text(text)
    new.rename(file)
    return file


def variables(account, issuer, url, folder):
    key = account.user(folder.name, WRITER)
    issuer.secrets.add(key["SecretAccessKey"])
    return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}


def session(account, issuer, url, folder):
    key = account.assume(account.writer)
    issuer.secrets |= {key["SecretAccessKey"], key["SessionToken"]}
    keys = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    return {**keys, "AWS_SESSION_TOKEN": key["SessionToken"]}


def web_identity(account, issuer, url, folder):
    token = file_of(folder, "token", issuer.token())
    return {"AWS_ROLE_ARN": account.writer, "AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ENDPOINT_URL_STS": url}


def pod_identity(account, issuer, url, folder):
    token = file_of(folder, "token", issuer.token())
    return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}/v1/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": token}


def instance(account, issuer, url, folder):
    return {"AWS_METADATA_ENDPOINT": url}


KINDS = [(kind, "plain") for kind in (variables, session, web_identity, pod_identity, instance)]
KINDS += [(kind, "tls") for kind in (web_identity, pod_identity, instance)]


@pytest.mark.parametrize("kind, way", KINDS, ids=lambda part: getattr(part, "__name__", part))
def test_calls_arrive_with_credentials_of_each_kind(request, account, issuer, sidecar, tmp_path, kind, way):
    s3, url, tls = request.getfixturevalue(way)
    with sidecar.running(s3, kind(account, issuer, url, tmp_path), tls) as process:
        proxy = Proxy(process)
        proxy.calls(CALLS, "s")
        no_call_waits(proxy)
    assert sidecar.arrived(account) == CALLS
    sidecar.keeps(issuer.secrets)


def test_keys_of_files_are_signed_with_and_read_again(account, issuer, plain, sidecar, tmp_path):
    s3, _, _ = plain
    key = account.user(tmp_path.name, WRITER)
    issuer.secrets |= {key["SecretAccessKey"], "of-somebody-else"}
    files = [file_of(tmp_path, "key", key["AccessKeyId"]), file_of(tmp_path, "secret", "of-somebody-else\n")]
    lines = [f'access_key_id_file = "{files[0]}"', f'secret_access_key_file = "{files[1]}"']
    with sidecar.running(s3, {}, *lines) as process:
        proxy = Proxy(process)
        proxy.calls(CALLS, "s")
        sidecar.says(proxy, "SignatureDoesNotMatch")
        file_of(tmp_path, "secret", key["SecretAccessKey"] + "\n")
        no_call_waits(proxy)
    assert sidecar.arrived(account) == CALLS
    sidecar.keeps(issuer.secrets)


@pytest.mark.parametrize("kind", [web_identity, pod_identity], ids=lambda kind: kind.__name__)
def test_a_rotated_token_is_read_again_when_credentials_run_out(account, issuer, plain, sidecar, tmp_path, kind):
    s3, url, _ = plain
    # The sink renews credentials 5 minutes before they expire.
    issuer.lifetime = datetime.timedelta(minutes=5, seconds=1)
    with sidecar.running(s3, kind(account, issuer, url, tmp_path)) as process:
        proxy = Proxy(process)
        proxy.calls(CALLS, "one")
        no_call_waits(proxy, CALLS)
        (first,) = issuer.known
        second = issuer.token()
        file_of(tmp_path, "token", second)

        def asked_again():
            proxy.calls(1, "two")
            return second in issuer.seen

        until(asked_again, lambda: f"{len(issuer.seen)} times asked")
        no_call_waits(proxy, CALLS + 1)
    # The old token is not sent once there is a new one.
    turn = issuer.seen.index(second)
    assert set(issuer.seen[:turn]) == {first} and set(issuer.seen[turn:]) == {second}
    assert sidecar.arrived(account) > CALLS
    sidecar.keeps(issuer.secrets)


def test_a_role_that_may_not_write_is_refused_and_nothing_is_lost(account, issuer, plain, sidecar, tmp_path):
    s3, url, _ = plain
    arn = account.role(tmp_path.name, READER)
    with sidecar.running(s3, {**web_identity(account, issuer, url, tmp_path), "AWS_ROLE_ARN": arn}) as process:
        proxy = Proxy(process)
        proxy.calls(CALLS, "s")
        said = sidecar.says(proxy, "AccessDenied: Access Denied", "s3:PutObject", "AWS_ROLE_ARN", f"s3://{aws.BUCKET}")
        assert f"waiting    {CALLS} calls" in said and "lost       0 calls" in said
        assert proxy.metric('tokengauge_sink_failures_total{sink="s3",reason="denied"}') > 0
        assert proxy.metric(WAITING) == CALLS
        account.allow(tmp_path.name, WRITER)
        no_call_waits(proxy)
        assert proxy.metric('tokengauge_sink_lost_records_total{sink="s3",reason="retention"}') == 0
    assert sidecar.arrived(account) == CALLS
    sidecar.keeps(issuer.secrets)


def test_a_replay_needs_to_list_and_to_read(account, issuer, plain, sidecar, tmp_path):
    s3, url, _ = plain
    given = {**web_identity(account, issuer, url, tmp_path), "AWS_ROLE_ARN": account.role(tmp_path.name, WRITER)}
    with sidecar.running(s3, given) as process:
        proxy = Proxy(process)
        proxy.calls(CALLS, "s")
        no_call_waits(proxy)
    bucket = f"arn:aws:s3:::{aws.BUCKET}"
    account.allow(tmp_path.name, aws.policy("s3:ListBucket", "s3:GetObject", resource=[bucket, f"{bucket}/*"]))
    replay = ["export", "sink", "replay", "--sink", "s3", "--since", "1h", "--config", sidecar.config]
    assert f"0 calls sent, {CALLS} already stored, 0 refused" in said(*environment(given), sidecar.tokengauge, *replay)


def unknown_token(issuer, folder):
    issuer.known.clear()


def no_token_file(issuer, folder):
    (folder / "token").unlink()


def no_role(issuer, folder):
    issuer.role = None


def nothing(issuer, folder):
    pass


def nobody(account, issuer, url, folder):
    return {"AWS_METADATA_ENDPOINT": f"http://127.0.0.1:{free_port()}"}


def metadata_of_moto(account, issuer, url, folder):
    """Issues credentials that moto's S3 does not know."""
    return {"AWS_METADATA_ENDPOINT": account.url}


# Issuer, its fault, the counted reason, and the status text.
BROKEN = {
    "token": (
        web_identity, unknown_token, "denied",
        ["no credentials from STS", "InvalidIdentityToken: No OpenIDConnect provider", "trust policy"],
    ),
    "token-file": (
        web_identity, no_token_file, "denied",
        ["no credentials from STS", "/token", "No such file", "AWS_WEB_IDENTITY_TOKEN_FILE"],
    ),
    "pod-token": (
        pod_identity, unknown_token, "denied",
        ["no credentials from EKS Pod Identity", "400 Bad Request: Service account token", "association"],
    ),
    "pod-token-file": (
        pod_identity, no_token_file, "denied",
        ["no credentials from EKS Pod Identity", "/token", "No such file"],
    ),
    "no-role": (
        instance, no_role, "denied",
        ["no credentials from the instance metadata", "404 Not Found", "access_key_id_file"],
    ),
    "unreachable": (
        nobody, nothing, "unreachable",
        ["no credentials from the instance metadata", "refused", "access_key_id_file"],
    ),
    "unknown-key": (
        metadata_of_moto, nothing, "denied",
        ["InvalidAccessKeyId", "s3:PutObject", "from the instance metadata"],
    ),
}


def test_a_failing_issuer_is_named_with_the_reason(tokengauge, simulator, account, tmp_path):
    with contextlib.ExitStack() as together:
        begun = []
        for name, (kind, broken, reason, parts) in BROKEN.items():
            issuer = together.enter_context(aws.issuer(account))
            issuer.role = account.writer
            (tmp_path / name).mkdir()
            sidecar = Sidecar(tokengauge, simulator, tmp_path / name)
            given = kind(account, issuer, issuer.url, tmp_path / name)
            broken(issuer, tmp_path / name)
            proxy = Proxy(together.enter_context(sidecar.running(account.url, given)))
            proxy.calls(CALLS, "s")
            begun.append((sidecar, proxy, issuer, reason, parts))
        for sidecar, proxy, issuer, reason, parts in begun:
            said = sidecar.says(proxy, *parts)
            assert f"waiting    {CALLS} calls" in said and "lost       0 calls" in said
            assert proxy.metric(f'tokengauge_sink_failures_total{{sink="s3",reason="{reason}"}}') > 0
            sidecar.keeps(issuer.secrets | {"test-secret-key", "test-session-token"})
            assert account.files(sidecar.folder.name, tmp_path / "files") == []


def test_the_configured_address_overrides_the_variables(account, issuer, plain, sidecar, tmp_path):
    s3, url, _ = plain
    nobody = f"http://127.0.0.1:{free_port()}"
    given = {**instance(account, issuer, url, tmp_path), "AWS_ENDPOINT_URL_S3": nobody, "AWS_ENDPOINT_URL": nobody}
    with sidecar.running(s3, given) as process:
        proxy = Proxy(process)
        proxy.calls(CALLS, "s")
        no_call_waits(proxy)
    assert sidecar.arrived(account) == CALLS
