"""A real Prometheus on a free port with its queries, and scrape targets that are not proxies."""

import contextlib
import dataclasses
import datetime
import http.server
import json
import math
import pathlib
import subprocess
import threading
import time
import urllib.parse
import urllib.request

from processes import answers, free_port, running

# A version with native histograms; Debian's own is too old.
NATIVE = pathlib.Path(__file__).parent.parent.parent / ".cache/real/prometheus/root/usr/bin/prometheus"
SCRAPE_SECONDS = 1
DATA_SECONDS = 120


def figure(point):
    """Returns the value of a sample; for a native histogram the number of observations."""
    value = point[1]
    return float(value["count"] if isinstance(value, dict) else value)


@dataclasses.dataclass
class Prometheus:
    """The HTTP API of a running Prometheus, and the time range of its scrapes."""

    url: str
    start: float
    end: float | None = None

    def ask(self, path, **parameters):
        query = urllib.parse.urlencode(parameters, doseq=True)
        request = urllib.request.Request(f"{self.url}/api/v1/{path}?{query}")
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression, at=None):
        """Returns labels and value of every series at an instant."""
        found = self.ask("query", query=expression, **({"time": at} if at else {}))["result"]
        return [(one["metric"], figure(one["value"] if "value" in one else one["histogram"])) for one in found]

    def value(self, expression, at=None):
        """Returns the only value of an expression, or None if there is none."""
        values = [value for _, value in self.query(expression, at)]
        assert len(values) < 2, f"{expression} has {len(values)} values"
        return values[0] if values else None

    def query_range(self, expression, step=1):
        """Returns labels and points of every series over the whole time."""
        found = self.ask("query_range", query=expression, start=self.start, end=self.end or time.time(), step=step)
        points = [(one["metric"], one.get("values", []) + one.get("histograms", [])) for one in found["result"]]
        return [(labels, [(point[0], figure(point)) for point in each]) for labels, each in points]

    def exemplars(self, expression):
        found = self.ask("query_exemplars", query=expression, start=self.start, end=time.time())
        return [exemplar for series in found for exemplar in series["exemplars"]]

    def series(self, selector):
        return self.ask("series", **{"match[]": selector}, start=self.start, end=time.time())

    def label_values(self, label, selector):
        return self.ask(f"label/{label}/values", **{"match[]": selector}, start=self.start, end=time.time())

    def wait_for(self, expression, holds=lambda value: value > 0, within=DATA_SECONDS):
        """Polls until the expression has a value that `holds` accepts, and returns the value."""
        deadline = time.monotonic() + within
        while not ((value := self.value(expression)) is not None and holds(value)):
            assert time.monotonic() < deadline, f"{expression} was {value} for {within} s"
            time.sleep(0.1)
        return value

    def end_at_a_scrape(self):
        """Ends the time range at a scrape. A target has no value after a scrape that timed out, so all scrapes of
        the last seconds must have succeeded."""
        self.end = self.wait_for("min(timestamp(up)) and count(min_over_time(up[3s]) == 1) == count(up)")

    def wait_for_recordings(self, seconds):
        """Waits until rules with an interval of `seconds` have evaluated everything so far, then the rules that use
        their results, and until both were scraped.

        Rules evaluate a time that is a fifth of the interval in the past."""
        begun = time.time()
        scraped = self.wait_for("min(timestamp(up))", lambda at: at >= begun)
        self.wait_for_evaluation(scraped + seconds / 5)
        self.wait_for_evaluation(time.time(), below=seconds)
        # A query for a time before an evaluation returns the previous value.
        evaluated = time.time()
        self.wait_for("min(timestamp(up))", lambda at: at >= evaluated)

    def wait_for_evaluation(self, at, below=math.inf):
        """Waits until all groups of rules, or those with an interval below `below` seconds, were evaluated after
        `at`."""
        deadline = time.monotonic() + DATA_SECONDS
        while True:
            groups = [group for group in self.ask("rules")["groups"] if group["interval"] < below]
            last = [datetime.datetime.fromisoformat(group["lastEvaluation"]).timestamp() for group in groups]
            # An evaluation may begin a second after its timestamp.
            if min(last, default=math.inf) >= at + 1:
                return
            assert time.monotonic() < deadline, f"a group of rules was last evaluated {time.time() - min(last):.0f} s ago"
            time.sleep(0.1)


@contextlib.contextmanager
def exporter(exposition, seconds=0):
    """Yields the address of an endpoint whose scrapes return `exposition`, delayed by `seconds`."""

    class Endpoint(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = exposition().encode()
            time.sleep(seconds)
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            # A Prometheus that is ending closes its connection.
            with contextlib.suppress(ConnectionError):
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def finite(points):
    return [value for _, value in points if math.isfinite(value)]


@contextlib.contextmanager
def prometheus(folder: pathlib.Path, targets, rules=(), alertmanager=None, evaluation_seconds=1, native=False):
    """Starts a Prometheus that scrapes `targets` every second: a dict of job name → addresses, or → addresses with
    labels.

    With `native` it scrapes protobuf and keeps native histograms, and classic ones of targets without native ones."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "global": {
            "scrape_interval": f"{SCRAPE_SECONDS}s",
            "scrape_timeout": f"{SCRAPE_SECONDS}s",
            "evaluation_interval": f"{evaluation_seconds}s",
        },
        "rule_files": [str(file) for file in rules],
        "scrape_configs": [
            {"job_name": job, "static_configs": [one if isinstance(one, dict) else {"targets": [one]} for one in addresses]}
            for job, addresses in targets.items()
        ],
    }
    if alertmanager:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    file = folder / "prometheus.yml"
    # JSON is YAML.
    file.write_text(json.dumps(config))
    checked("promtool", "check", "config", file)
    address = f"127.0.0.1:{free_port()}"
    command = [NATIVE if native else "prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
    features = "exemplar-storage" + (",native-histograms" if native else "")
    command += [f"--web.listen-address={address}", f"--enable-feature={features}", "--log.level=warn"]
    with running(command, folder / "prometheus.log") as process:
        url = f"http://{address}"
        process.wait_for(lambda: answers(f"{url}/-/ready"), "readiness")
        yield Prometheus(url, time.time())


def checked(*command, text=None):
    """Returns the output of a checking tool, which must succeed."""
    command = [str(part) for part in command]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
