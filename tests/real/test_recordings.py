"""Every recorded response of the corpus through the real binary: equal bytes, and counts that were checked by hand.

TOKENGAUGE_CORPUS names the folder of the recordings. Without it this file is skipped."""

import http.client
import http.server
import json
import os
import pathlib
import random
import threading
import time
import urllib.parse

import pytest

PROJECT = pathlib.Path(__file__).parent.parent.parent
NAMED = os.environ.get("TOKENGAUGE_CORPUS")
if NAMED is None:
    pytest.skip("TOKENGAUGE_CORPUS names no folder of recordings", allow_module_level=True)
# Relative to the project, as in the Rust tests.
CORPUS = PROJECT / NAMED
# Not a response to one HTTP request.
NOT_HTTP = {"openai-realtime"}
# Recordings whose answer begins with <think>. The hand-checked counts treat all of it as visible, but a record counts
# it as reasoning.
REASONING_IN_THE_ANSWER = {
    "lcgo-huggingface-router-testhuggingfacellmwithprovider-0": {"answer": 0, "reasoning": 52, "output": 52},
    "pydai-together-hf-model-thinking-part-iter-0": {"answer": 629, "reasoning": 301, "output": 930},
}
PIECES = 24
CONTENT_TYPES = {
    "sse": "text/event-stream",
    "ndjson": "application/x-ndjson",
    "aws-eventstream": "application/vnd.amazon.eventstream",
}
# A meter may skip data that arrives faster than any model writes, and therefore long bodies are sent in small pieces.
PIECE_BYTES, PIECE_SECONDS = 8192, 0.001


def recordings():
    found = sorted(meta.parent for meta in CORPUS.glob("*/*/meta.json"))
    return [folder for folder in found if folder.parent.name not in NOT_HTTP]


every_recording = pytest.mark.parametrize(
    "folder", recordings(), ids=lambda folder: f"{folder.parent.name}/{folder.name}"
)


def test_the_corpus_is_there():
    assert (CORPUS / "index.tsv").exists(), (
        f"TOKENGAUGE_CORPUS is {CORPUS}, which has no index.tsv: name the folder of the recordings, or unset it"
    )
    assert len(recordings()) > 400, f"recordings in {CORPUS}"


class Player(http.server.BaseHTTPRequestHandler):
    """Answers with the recording that a header names, cut at places unrelated to its events."""

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
            if len(body) > PIECES * PIECE_BYTES / 4:
                time.sleep(PIECE_SECONDS)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


def content_type(meta):
    if meta["content_type"]:
        return meta["content_type"]
    return CONTENT_TYPES.get(meta["framing"], "application/json")


def pieces(seed, body):
    count = min(max(PIECES, len(body) // PIECE_BYTES), max(len(body) - 1, 0))
    cuts = sorted(random.Random(seed).sample(range(1, len(body)), count)) if count else []
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
    """Returns status and body bytes of one recording for its recorded request."""
    meta = json.loads((folder / "meta.json").read_text())
    request = folder / "request.json"
    body = request.read_bytes() if request.exists() else b"{}"
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(base).netloc, timeout=30)
    headers = {"content-type": "application/json", "x-recording": str(folder.relative_to(CORPUS))}
    # Some sources replace the address by a placeholder.
    path = "/" + (meta["request_path"] or "").lstrip("/")
    connection.request("POST", path, body, headers)
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
        assert measured(record) == truth(expected) | REASONING_IN_THE_ANSWER.get(folder.name, {})
        assert record["tokens"]["reported"]["output"] in reported(expected, record)


def measured(record):
    counts = {channel: count or 0 for channel, count in record["tokens"]["normalised"].items() if channel != "input"}
    return counts | {"model": record["model"], "finish_reasons": record["finish_reasons"]}


def truth(expected):
    counts = {"answer": "visible_tokens", "reasoning": "reasoning_tokens", "tool_call": "tool_call_tokens"}
    counts = {channel: expected[name] for channel, name in counts.items()}
    counts["output"] = expected["output_tokens_total"]
    return counts | {"model": expected["model"], "finish_reasons": expected["finish_reasons"]}


def reported(expected, record):
    """The provider's own output count. Some providers exclude reasoning, which our count includes."""
    native = expected["native_output_tokens"]
    if native is None:
        return {None, record["tokens"]["reported"]["output"]}
    return {native, native + (record["tokens"]["reported"]["reasoning"] or 0)}
