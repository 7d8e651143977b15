"""boto3 with Bedrock through the proxy in the ways that docs/getting-started.md describes. The upstream checks
requests as AWS does."""

import base64
import http.server
import subprocess
import threading
import urllib.parse
import urllib.request

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.config
import botocore.credentials
import botocore.exceptions
import pytest

# A name that is escaped in the path, and escaped again for the signature.
MODEL = "anthropic.claude-3-haiku-20240307-v1:0"
KEYS = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
BEARER = base64.b64encode(b"bedrock-api-key").decode()
ASK = {"modelId": MODEL, "messages": [{"role": "user", "content": [{"text": "Say hello."}]}]}
WORDS = 96


def expected_signature(request, url, body, stated):
    """Returns botocore's signature of a received request."""
    signed = stated["SignedHeaders"].split(";")
    _, _, region, service, _ = stated["Credential"].split("/")
    aws = botocore.awsrequest.AWSRequest(request.command, url, headers={name: request.headers[name] for name in signed}, data=body)
    aws.context["timestamp"] = request.headers["x-amz-date"]
    credentials = botocore.credentials.Credentials(KEYS["aws_access_key_id"], KEYS["aws_secret_access_key"])
    signer = botocore.auth.SigV4Auth(credentials, service, region)
    return signer.signature(signer.string_to_sign(aws, signer.canonical_request(aws)), aws)


def problem_of(request, body):
    """Returns why AWS would refuse this request, or None."""
    sent = request.headers.get("authorization", "")
    if sent.startswith("Bearer "):
        return None if sent == f"Bearer {BEARER}" else "another bearer token"
    scheme, _, rest = sent.partition(" ")
    if scheme != "AWS4-HMAC-SHA256":
        return f"no signature: {scheme!r}"
    stated = dict(part.strip().split("=", 1) for part in rest.split(","))
    if not {"host", "x-amz-date"} <= set(stated["SignedHeaders"].split(";")):
        return "a signature that does not cover the host and the date"
    expected = expected_signature(request, f"http://{request.headers['host']}{request.path}", body, stated)
    return None if expected == stated["Signature"] else "the signature does not match"


class Bedrock(http.server.BaseHTTPRequestHandler):
    """Checks a request as AWS does, and lets the simulator answer valid ones."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        problem = problem_of(self, body)
        self.server.seen.append((self.path, problem))
        if problem:
            return self.answer(403, "application/json", b'{"message":"' + problem.encode() + b'"}')
        asked = urllib.request.Request(self.server.simulator + self.path, body, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            self.answer(answer.status, answer.headers["content-type"], answer.read())

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def bedrock(simulator):
    """Stands for `bedrock-runtime.us-east-1.amazonaws.com`; its name is `localhost` and a port."""
    with http.server.ThreadingHTTPServer(("localhost", 0), Bedrock) as server:
        server.seen, server.simulator = [], simulator
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.url = f"http://localhost:{server.server_port}"
        yield server
        server.shutdown()


CONFIG = """
[[upstream]]
name = "bedrock"
url = "{url}"

[[route]]
name = "by-host"
host = "localhost"
upstream = "bedrock"

[[route]]
name = "by-path"
path = "/bedrock"
upstream = "bedrock"
"""


@pytest.fixture(scope="module")
def plain(gauge, bedrock, logs):
    config = logs / "bedrock.toml"
    config.write_text(CONFIG.format(url=bedrock.url))
    return gauge("bedrock", config=config)


@pytest.fixture(scope="module")
def certificate(logs):
    files = logs / "bedrock.pem", logs / "bedrock.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, capture_output=True)
    return files


@pytest.fixture(scope="module")
def over_tls(gauge, bedrock, certificate, logs):
    config = logs / "bedrock-tls.toml"
    tls = '[tls]\ncertificate = "{}"\nkey = "{}"\n'.format(*certificate)
    config.write_text(tls + CONFIG.format(url=bedrock.url))
    return gauge("bedrock-tls", config=config)


def client(endpoint, keys=KEYS, proxies=None, **how):
    config = botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=30, proxies=proxies)
    return boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=endpoint, config=config, **keys, **how)


def through(proxy, bedrock, **keys):
    """The setup of docs/getting-started.md for signed requests: the proxy as `http` proxy, and Bedrock's own name
    without TLS."""
    return client(bedrock.url, proxies={"http": proxy.url}, **keys)


def whole(of):
    answer = of.converse(**ASK)
    return answer["usage"]["outputTokens"]


def streamed(of):
    parts = list(of.converse_stream(**ASK)["stream"])
    assert any("messageStop" in part for part in parts)
    return next(part["metadata"]["usage"]["outputTokens"] for part in parts if "metadata" in part)


@pytest.mark.parametrize("ask", [whole, streamed])
def test_a_signed_request_is_taken_behind_the_proxy_as_an_http_proxy(plain, bedrock, ask):
    with plain.next_record() as records:
        tokens = ask(through(plain, bedrock))
    path, problem = bedrock.seen[-1]
    assert problem is None and path.startswith(f"/model/{urllib.parse.quote(MODEL, safe='')}/")
    [record] = records
    assert (record["route"], record["outcome"], record["status"]) == ("by-host", "complete", 200)
    assert record["dialect"] == "bedrock_converse" and record["model_requested"] == MODEL
    assert record["streamed"] == (ask is streamed)
    assert record["tokens"]["reported"]["output"] == tokens == WORDS


def test_the_upstream_refuses_a_wrong_signature(plain, bedrock):
    wrong = KEYS | {"aws_secret_access_key": "another"}
    with pytest.raises(botocore.exceptions.ClientError, match="does not match"):
        whole(through(plain, bedrock, keys=wrong))


def test_a_signed_request_does_not_survive_a_prefix(plain, bedrock):
    with pytest.raises(botocore.exceptions.ClientError, match="does not match"):
        whole(client(plain.url + "/bedrock"))
    assert bedrock.seen[-1][0].startswith("/model/")


@pytest.mark.parametrize("ask", [whole, streamed])
def test_a_bearer_token_goes_over_tls_and_under_any_prefix(over_tls, certificate, bedrock, monkeypatch, ask):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", BEARER)
    endpoint = over_tls.url.replace("http://", "https://") + "/bedrock"
    with over_tls.next_record() as records:
        tokens = ask(client(endpoint, keys={}, verify=str(certificate[0])))
    assert bedrock.seen[-1][1] is None
    [record] = records
    assert (record["route"], record["outcome"]) == ("by-path", "complete")
    assert record["tokens"]["reported"]["output"] == tokens == WORDS


def test_boto3_sends_no_bearer_token_without_tls(plain, bedrock, monkeypatch):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", BEARER)
    before = len(bedrock.seen)
    with pytest.raises(botocore.exceptions.BotoCoreError, match="(?i)https"):
        whole(client(plain.url + "/bedrock", keys={}))
    assert len(bedrock.seen) == before
