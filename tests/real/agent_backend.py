"""A backend for simulated agents. It plays the answer that a request names in the header `x-answer`, and keeps its own
prefix cache, so that its counts of cached tokens do not depend on the proxy.

One token is four characters here, as of a provider with another tokenizer."""

import contextlib
import http.server
import json
import threading
import time

BLOCK = 128  # tokens: a cache keeps whole blocks
LEAST = 1024  # tokens: shorter prompts are not cached
CHARACTERS = 4  # of a token


def rendered(body):
    """The prompt as one text, in the order of prefix caches: tools, system prompt, messages."""
    parts = [json.dumps(tool, sort_keys=True) for tool in body.get("tools", ())]
    parts.append(json.dumps(body.get("system", "")))
    return "\n".join([*parts, *(json.dumps(message) for message in body["messages"])])


class PrefixCache:
    """The prompts that were sent, for each model."""

    def __init__(self):
        self.prompts = {}
        self.lock = threading.Lock()

    def look_up(self, model, prompt):
        """Returns the tokens of the prompt and how many of them were cached, and keeps the prompt."""
        with self.lock:
            known = self.prompts.setdefault(model, [])
            common = max((common_length(prompt, other) for other in known), default=0)
            known.append(prompt)
        cached = common // CHARACTERS // BLOCK * BLOCK
        return len(prompt) // CHARACTERS, cached if cached >= LEAST else 0

    def evict(self, model, prompt):
        """Drops every prompt that begins like this one."""
        with self.lock:
            known = self.prompts.get(model, [])
            known[:] = [other for other in known if common_length(prompt, other) < LEAST * CHARACTERS]


def common_length(one, other):
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def sse(value, event=None):
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def openai(body, answer, tokens, cached, number):
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}

    def chunk(delta, reason=None):
        return sse(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    for piece in answer["pieces"]:
        yield chunk({"content": piece})
    for index, call in enumerate(answer["calls"]):
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        yield chunk({"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": function}]})
    yield chunk({}, "tool_calls" if answer["calls"] else "stop")
    usage = {"prompt_tokens": tokens, "completion_tokens": 50, "total_tokens": tokens + 50}
    yield sse(head | {"choices": [], "usage": usage | {"prompt_tokens_details": {"cached_tokens": cached}}})
    yield b"data: [DONE]\n\n"


def anthropic(body, answer, tokens, cached, number):
    usage = {"input_tokens": 0, "cache_read_input_tokens": cached, "cache_creation_input_tokens": tokens - cached, "output_tokens": 1}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"], "content": []}
    yield sse({"type": "message_start", "message": message | {"stop_reason": None, "usage": usage}}, "message_start")
    blocks = [({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in answer["pieces"]])]
    for call in answer["calls"]:
        block = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
        blocks.append((block, [{"type": "input_json_delta", "partial_json": json.dumps(call["arguments"])}]))
    for index, (block, deltas) in enumerate(blocks):
        yield sse({"type": "content_block_start", "index": index, "content_block": block}, "content_block_start")
        for delta in deltas:
            yield sse({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
        yield sse({"type": "content_block_stop", "index": index}, "content_block_stop")
    reason = "tool_use" if answer["calls"] else "end_turn"
    yield sse({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 50}}, "message_delta")
    yield sse({"type": "message_stop"}, "message_stop")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = self.server.answers.pop(self.headers["x-answer"])
        if answer.get("evict"):
            self.server.cache.evict(body["model"], rendered(body))
        if answer.get("status"):
            return self.reply(answer["status"], "application/json", [json.dumps({"error": {"type": "server_error", "message": "overloaded"}}).encode()])
        tokens, cached = self.server.cache.look_up(body["model"], rendered(body))
        self.server.seen[self.headers["x-answer"]] = (tokens, cached)
        write = anthropic if self.path.startswith("/v1/messages") else openai
        time.sleep(answer["ttft"])
        return self.reply(200, "text/event-stream", write(body, answer, tokens, cached, self.headers["x-answer"]))

    def reply(self, status, content_type, chunks):
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


@contextlib.contextmanager
def agent_backend():
    """A running backend. `answers` has the answer for each name, `seen` the tokens and cached tokens of each request."""
    server = Server(("127.0.0.1", 0), Handler)
    server.answers, server.seen, server.cache = {}, {}, PrefixCache()
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
