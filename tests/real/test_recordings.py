"""Every recorded response of the corpus through the real binary: the same bytes, and the counts that were checked."""

import http.client
import http.server
import json
import os
import pathlib
import random
import threading
import urllib.parse

import pytest

PROJECT = pathlib.Path(__file__).parent.parent.parent
CORPUS = pathlib.Path(os.environ.get("TOKENGAUGE_CORPUS", PROJECT / "../shared/corpus"))
# Not a response to one HTTP request.
NOT_HTTP = {"openai-realtime"}
PIECES = 24


def recordings():
    found = sorted(meta.parent for meta in CORPUS.glob("*/*/meta.json"))
    return [folder for folder in found if folder.parent.name not in NOT_HTTP]


every_recording = pytest.mark.parametrize(
    "folder", recordings(), ids=lambda folder: f"{folder.parent.name}/{folder.name}"
)


def test_the_corpus_is_there():
    if not recordings() and os.environ.get("CI") != "true":
        pytest.skip(f"no recordings in {CORPUS}: set TOKENGAUGE_CORPUS")
    assert len(recordings()) > 400, f"recordings in {CORPUS}"


class Player(http.server.BaseHTTPRequestHandler):
    """Answers with the recording that a header names, cut at places that have nothing to do with its events."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        folder = CORPUS / self.headers["x-recording"]
        meta = json.loads((folder / "meta.json").read_text())
        body = (folder / "response.body").read_bytes()
        self.send_response(meta["status"])
        self.send_header("content-type", content_type(meta))
        if meta["content_encoding"]:
            self.send_header("content-encoding", meta["content_encoding"])
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces(folder.name, body):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


def content_type(meta):
    if meta["content_type"]:
        return meta["content_type"]
    by_framing = {"sse": "text/event-stream", "ndjson": "application/x-ndjson", "aws-eventstream": "application/vnd.amazon.eventstream"}
    return by_framing.get(meta["framing"], "application/json")


def pieces(seed, body):
    cuts = sorted(random.Random(seed).sample(range(1, len(body)), min(PIECES, len(body) - 1))) if body else []
    return [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)]) if start < end]


@pytest.fixture(scope="module")
def player():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Player)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.fixture(scope="module")
def player_gauge(gauge, player):
    return gauge("player-gauge", player)


def replayed(base, folder):
    """Status and body bytes of one recording, and its request as recorded."""
    meta = json.loads((folder / "meta.json").read_text())
    request = folder / "request.json"
    body = request.read_bytes() if request.exists() else b"{}"
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(base).netloc, timeout=30)
    headers = {"content-type": "application/json", "x-recording": str(folder.relative_to(CORPUS))}
    connection.request("POST", meta["request_path"] or "/", body, headers)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, data


@every_recording
def test_a_recording_passes_unchanged_and_is_counted(player_gauge, folder):
    meta, expected = (json.loads((folder / name).read_text()) for name in ("meta.json", "expected.json"))
    with player_gauge.next_record() as records:
        status, body = replayed(player_gauge.url, folder)
    assert status == meta["status"]
    assert body == (folder / "response.body").read_bytes()
    record = records[0]
    assert record["status"] == meta["status"]
    assert record["bytes"]["response"] == len(body)
    if expected.get("trusted") and meta["status"] < 400 and folder.parent.name != "other":
        assert told(record) == truth(expected)


def told(record):
    normalised = record["tokens"]["normalised"]
    return {
        "answer": normalised["answer"] or 0,
        "reasoning": normalised["reasoning"] or 0,
        "tool_call": normalised["tool_call"] or 0,
        "output": normalised["output"] or 0,
        "model": record["model"],
        "finish_reasons": record["finish_reasons"],
        "reported output": record["tokens"]["reported"]["output"],
    }


def truth(expected):
    return {
        "answer": expected["visible_tokens"],
        "reasoning": expected["reasoning_tokens"],
        "tool_call": expected["tool_call_tokens"],
        "output": expected["output_tokens_total"],
        "model": expected["model"],
        "finish_reasons": expected["finish_reasons"],
        "reported output": expected["native_output_tokens"],
    }
