"""AWS for the tests: moto's S3, STS and IAM, which refuse unsigned and forbidden requests, and issuers of role
credentials: STS for web identities, the agent of EKS Pod Identity, and EC2's instance metadata."""

import contextlib
import datetime
import http.server
import json
import pathlib
import re
import secrets
import threading
import urllib.error
import urllib.parse
import urllib.request

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from processes import answers, free_port, running

MOTO = pathlib.Path(__file__).parent.parent.parent / ".cache/real/moto/bin/moto_server"
REGION = "us-east-1"
BUCKET = "llm"
ROLES = "/latest/meta-data/iam/security-credentials/"


def policy(*actions, resource=f"arn:aws:s3:::{BUCKET}/*", **principal):
    effect = {"Effect": "Allow", "Action": actions, **(principal or {"Resource": resource})}
    return json.dumps({"Version": "2012-10-17", "Statement": [effect]})


class Account:
    """An account with a bucket, users and roles. moto enforces their policies."""

    def __init__(self, url):
        self.url = url
        # Creating the first user needs no credentials.
        self.iam = self.client("iam", {"AccessKeyId": "first", "SecretAccessKey": "first"})
        self.admin = self.user("admin", policy("*", resource="*"))
        self.iam, self.sts, self.s3 = (self.client(service, self.admin) for service in ("iam", "sts", "s3"))
        self.s3.create_bucket(Bucket=BUCKET)

    def client(self, service, key):
        keys = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
        config = Config(connect_timeout=10, read_timeout=10, retries={"total_max_attempts": 1})
        return boto3.client(service, endpoint_url=self.url, region_name=REGION, config=config, **keys)

    def user(self, name, allowed):
        self.iam.create_user(UserName=name)
        self.iam.put_user_policy(UserName=name, PolicyName="given", PolicyDocument=allowed)
        return self.iam.create_access_key(UserName=name)["AccessKey"]

    def role(self, name, allowed):
        trust = policy("sts:AssumeRole", Principal={"AWS": "*"})
        arn = self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
        self.allow(name, allowed)
        return arn

    def allow(self, role, allowed):
        self.iam.put_role_policy(RoleName=role, PolicyName="given", PolicyDocument=allowed)

    def assume(self, arn):
        return self.sts.assume_role(RoleArn=arn, RoleSessionName="tests")["Credentials"]

    def files(self, prefix, folder):
        """Downloads the files of the bucket with this prefix into a folder."""
        listed = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/").get("Contents", [])
        for name in (each["Key"] for each in listed):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            self.s3.download_file(BUCKET, name, str(folder / name))
        return [folder / each["Key"] for each in listed]


@contextlib.contextmanager
def account(log):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    # The first user is created with three requests.
    command = ["env", "INITIAL_NO_AUTH_ACTION_COUNT=3", MOTO, "--host", "127.0.0.1", "--port", port]
    with running(command, log) as process:
        process.wait_for(lambda: answers(f"{url}/moto-api/"), "AWS")
        yield Account(url)


class Issuer:
    """Hands out credentials of roles for known tokens, and remembers each token and answer."""

    def __init__(self, account):
        self.account = account
        self.known = set()  # tokens
        self.seen = []  # tokens of web identities and pods
        self.lifetime = datetime.timedelta(hours=1)
        self.role = None  # role of pods and of the machine
        self.sessions = set()  # session tokens of instance metadata
        self.secrets = set()  # must not appear in any output

    def token(self):
        header, claims, signature = (secrets.token_urlsafe(size) for size in (30, 300, 60))
        token = f"{header}.{claims}.{signature}"
        self.known.add(token)
        self.secrets |= {token, claims, signature}
        return token

    def expiration(self):
        return (datetime.datetime.now(datetime.UTC) + self.lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")

    def of_role(self):
        """Credentials in the format of the agent and the metadata service."""
        given = self.account.assume(self.role)
        self.secrets |= {given["SecretAccessKey"], given["SessionToken"]}
        keys = {"AccessKeyId": given["AccessKeyId"], "SecretAccessKey": given["SecretAccessKey"]}
        return json.dumps({"Code": "Success", **keys, "Token": given["SessionToken"], "Expiration": self.expiration()})

    def web_identity(self, query):
        """Forwards to moto's STS. Moto wants a signature where AWS wants only the token, so the token is checked
        here."""
        asked = dict(urllib.parse.parse_qsl(query))
        self.seen.append(asked["WebIdentityToken"])
        if asked["WebIdentityToken"] not in self.known:
            return 400, refusal("InvalidIdentityToken", "No OpenIDConnect provider found in your account for https://tests")
        admin = Credentials(self.account.admin["AccessKeyId"], self.account.admin["SecretAccessKey"])
        form = {"content-type": "application/x-www-form-urlencoded"}
        request = AWSRequest(method="POST", url=f"{self.account.url}/", data=query, headers=form)
        SigV4Auth(admin, "sts", REGION).add_auth(request)
        forwarded = urllib.request.Request(request.url, query.encode(), dict(request.headers))
        with urllib.request.urlopen(forwarded, timeout=10) as response:
            answer = response.read().decode()
        for name in ("SecretAccessKey", "SessionToken"):
            self.secrets.add(re.search(f"<{name}>(.*?)</{name}>", answer)[1])
        return 200, re.sub("(?<=<Expiration>).*?(?=</)", self.expiration(), answer)

    def answer(self, method, url, headers):
        """Returns status and body."""
        match method, url.path:
            case "POST", "/":
                return self.web_identity(url.query)
            case "GET", "/v1/credentials":
                self.seen.append(headers["authorization"])
                if headers["authorization"] not in self.known:
                    return 400, "Service account token cannot be empty or is not known"
                return 200, self.of_role()
            case "PUT", "/latest/api/token":
                assert int(headers["x-aws-ec2-metadata-token-ttl-seconds"]) > 0
                session = secrets.token_urlsafe(40)
                self.sessions.add(session)
                self.secrets.add(session)
                return 200, session
            case "GET", path if path.startswith(ROLES):
                if headers["x-aws-ec2-metadata-token"] not in self.sessions:
                    return 401, NO_PAGE
                name = self.role and self.role.rsplit("/", 1)[1]
                if path == ROLES and name:
                    return 200, name
                return (200, self.of_role()) if name and path == ROLES + name else (404, NO_PAGE)
        return 404, NO_PAGE


# EC2's page for an unknown path.
NO_PAGE = '<?xml version="1.0" encoding="iso-8859-1"?>\n<html>\n <body>\n  <h1>404 - Not Found</h1>\n </body>\n</html>\n'


def refusal(code, message):
    """An error in the format of STS."""
    error = f"<Error>\n    <Type>Sender</Type>\n    <Code>{code}</Code>\n    <Message>{message}</Message>\n  </Error>"
    return f'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">\n  {error}\n</ErrorResponse>\n'


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        status, body = self.server.issuer.answer(self.command, url, self.headers)
        self.send_response(status)
        self.send_header("content-length", len(body))
        self.end_headers()
        self.wfile.write(body.encode())

    do_POST = do_PUT = do_GET

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def issuer(account):
    with http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Handler) as server:
        server.daemon_threads = True
        server.issuer = Issuer(account)
        server.issuer.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.issuer
        finally:
            server.shutdown()
            thread.join()
