"""A backend that plays a script for Claude Code: the agent starts a subagent, which answers.

It keeps the usage that it reported for each call, for comparison with other sums."""

import contextlib
import http.server
import json
import threading

ANSWER = "The boats carry grain, timber and salt, and in winter nothing at all, for the river is frozen over."
# Prompt, cache read, cache write for minutes and for an hour, answer: for the first agent's two calls and the
# subagent's call.
USAGE = {"start": (9_000, 0, 2_000, 6_000, 60), "subagent": (3_000, 2_000, 500, 0, 25), "result": (1_200, 8_000, 0, 300, 30)}


def role(body, headers):
    """Returns the line of the script for a request; None for other requests."""
    if headers.get("x-claude-code-agent-id"):
        return "subagent"
    if not any(tool["name"] in ("Agent", "Task") for tool in body.get("tools", ())):
        return None
    blocks = [block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]]
    return "result" if any(block["type"] == "tool_result" for block in blocks) else "start"


def block_of(body, line):
    """Returns the only content block of an answer, and its deltas."""
    if line != "start":
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": word + " "} for word in ANSWER.split()], "end_turn"
    name = next(tool["name"] for tool in body["tools"] if tool["name"] in ("Agent", "Task"))
    given = {"description": "Look at boats", "prompt": "What do the boats carry?", "subagent_type": "general-purpose"}
    text = json.dumps(given | {"run_in_background": False})
    pieces = [text[at : at + 8] for at in range(0, len(text), 8)]
    block = {"type": "tool_use", "id": "toolu_01", "name": name, "input": {}}
    return block, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces], "tool_use"


def events(body, line):
    fresh, cached, minutes, hour, output = USAGE[line]
    usage = {"input_tokens": fresh, "cache_read_input_tokens": cached, "cache_creation_input_tokens": minutes + hour, "output_tokens": 1}
    usage["cache_creation"] = {"ephemeral_5m_input_tokens": minutes, "ephemeral_1h_input_tokens": hour}
    message = {"id": f"msg_{line}", "type": "message", "role": "assistant", "model": body["model"], "content": []}
    yield {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None, "usage": usage}}
    block, deltas, reason = block_of(body, line)
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": output}}
    yield {"type": "message_stop"}


class Script(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        line = role(body, self.headers) if self.path.split("?")[0] == "/v1/messages" else None
        if line is None:
            return self.answer(404, "application/json", b'{"type":"error","error":{"type":"not_found_error","message":"not in the script"}}')
        self.server.said.append((line, body["model"]))
        written = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events(body, line))
        self.answer(200, "text/event-stream", written.encode())

    def answer(self, status, content_type, body):
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def scripted():
    """A running backend: `said` lists its requests, `url` is its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Script)
    server.said = []
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
