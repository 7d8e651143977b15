"""No secret leaves the process: prompts, answers and keys are planted in calls of every kind, every feature is on,
and all output is searched."""

import base64
import gzip
import http.client
import json
import urllib.parse

import pytest

from otlp import eventually, exporting, receiving, upstream

PROMPT = "the prompt's PLANTED-PROMPT-7f3a"
ANSWER = "the answer's PLANTED-ANSWER-91bc"
THOUGHT = "the thought's PLANTED-THOUGHT-5d2e"
ARGUMENT = "the argument's PLANTED-ARGUMENT-c4f8"
KEY = "PLANTED-KEY-26e0"
USER = "ada-PLANTED-USER@example.org"
PLANTED = "PLANTED-"

# Every header in which a provider accepts a key, and a few similar ones.
KEYS = {
    "authorization": f"Bearer sk-{KEY}",
    "x-api-key": f"sk-ant-{KEY}",
    "api-key": f"azure-{KEY}",
    "x-goog-api-key": f"AIza{KEY}",
    "proxy-authorization": "Basic " + base64.b64encode(KEY.encode()).decode(),
    "cookie": f"session={KEY}",
    "x-amz-security-token": f"aws-{KEY}",
    "openai-organization": f"org-{KEY}",
    "helicone-auth": f"Bearer {KEY}",
    "ocp-apim-subscription-key": KEY,
    "helicone-user-id": USER,
    "tracestate": f"vendor={KEY}",
    "baggage": f"token={KEY},session.id=s-1",
}
MESSAGES = [{"role": "system", "content": PROMPT}, {"role": "user", "content": PROMPT}]
TOOLS = [{"type": "function", "function": {"name": "look_up", "description": PROMPT}}]
CHAT = {"model": "m", "messages": MESSAGES, "tools": TOOLS, "user": USER}


def events(*payloads, end="data: [DONE]\n\n"):
    return "".join(f"data: {json.dumps(payload)}\n\n" for payload in payloads) + end


def delta(**fields):
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": fields}]}


CALL = [{"index": 0, "function": {"name": "look_up", "arguments": json.dumps({"q": ARGUMENT})}}]
ANTHROPIC = [
    {"type": "message_start", "message": {"id": "m1", "model": "m", "usage": {"input_tokens": 3, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": THOUGHT}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": ANSWER}},
    {"type": "message_stop"},
]
RESPONSES = [
    {"type": "response.created", "response": {"id": "r1", "model": "m"}},
    {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": ANSWER},
    {"type": "response.completed", "response": {"id": "r1", "model": "m", "status": "completed"}},
]
GEMINI = {"candidates": [{"content": {"parts": [{"text": ANSWER}, {"text": THOUGHT, "thought": True}]}}], "modelVersion": "m"}
COHERE = [
    {"type": "message-start", "id": "c"},
    {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": ANSWER}}}},
    {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}},
]
OLLAMA = [{"model": "m", "message": {"content": ANSWER}, "done": False}, {"model": "m", "done": True}]
ERROR = {"error": {"type": "invalid_request_error", "code": "bad", "message": f"you said: {PROMPT}; key sk-{KEY}"}}
SSE, JSON = "text/event-stream", "application/json"

# name → path, request body, (status or None to leave in the middle, content type, answer)
CALLS = {
    "chat": (
        "/v1/chat/completions",
        CHAT | {"stream": True},
        (200, SSE, events(delta(content=ANSWER), delta(reasoning_content=THOUGHT), delta(tool_calls=CALL))),
    ),
    "chat, whole": (
        "/v1/chat/completions",
        CHAT,
        (200, JSON, json.dumps({"id": "c", "model": "m", "choices": [{"message": {"content": ANSWER}}]})),
    ),
    "completions": ("/v1/completions", {"model": "m", "prompt": PROMPT, "stream": True}, (200, SSE, events({"choices": [{"text": ANSWER}]}))),
    "responses": ("/v1/responses", {"model": "m", "input": PROMPT, "stream": True}, (200, SSE, events(*RESPONSES, end=""))),
    "anthropic": ("/v1/messages", {"model": "m", "messages": MESSAGES, "stream": True, "metadata": {"user_id": USER}}, (200, SSE, events(*ANTHROPIC, end=""))),
    "gemini": (
        f"/v1beta/models/m:streamGenerateContent?alt=sse&key={KEY}",
        {"contents": [{"parts": [{"text": PROMPT}]}]},
        (200, SSE, events(GEMINI, end="")),
    ),
    "gemini, refused": (f"/v1beta/models/m:generateContent?key={KEY}", {"contents": [{"parts": [{"text": PROMPT}]}]}, (400, JSON, json.dumps(ERROR))),
    "cohere": ("/v2/chat", {"model": "m", "messages": MESSAGES, "stream": True}, (200, SSE, events(*COHERE, end=""))),
    "ollama": ("/api/chat", {"model": "m", "messages": MESSAGES}, (200, "application/x-ndjson", "".join(json.dumps(one) + "\n" for one in OLLAMA))),
    "embeddings": ("/v1/embeddings", {"model": "m", "input": PROMPT}, (200, JSON, json.dumps({"model": "m", "data": []}))),
    "bedrock": (f"/model/m/converse?token={KEY}", {"messages": [{"content": [{"text": PROMPT}]}]}, (200, JSON, json.dumps({"output": {"message": {"content": [{"text": ANSWER}]}}}))),
    "unknown": (f"/custom/{urllib.parse.quote('x')}?secret={KEY}", {"text": PROMPT}, (200, JSON, json.dumps({"text": ANSWER}))),
    "refused": ("/v1/chat/completions", CHAT, (401, JSON, json.dumps(ERROR))),
    "broken": ("/v1/chat/completions", CHAT, (500, "text/html", f"<h1>{PROMPT} {KEY}</h1>")),
    "an error inside": ("/v1/chat/completions", CHAT | {"stream": True}, (200, SSE, events(delta(content=ANSWER), ERROR))),
    "malformed": ("/v1/chat/completions", CHAT | {"stream": True}, (200, SSE, f'data: {{"choices":[{{"delta":{{"content":"{ANSWER}\n\ndata: {KEY}\n\n')),
    "of another shape": ("/v1/chat/completions", CHAT | {"stream": True}, (200, JSON, json.dumps([{"choices": ANSWER, "model": 7}]))),
    "left": ("/v1/chat/completions", CHAT | {"stream": True}, (None, SSE, events(delta(content=ANSWER), end=""))),
    "not gzip": ("/v1/chat/completions", CHAT | {"stream": True}, (200, SSE, events(delta(content=ANSWER)))),
}
# Requests that are invalid JSON, or invalid in that dialect.
MALFORMED = [f'{{"model":"m","messages":[{{"content":"{PROMPT}', f'"{PROMPT}"', PROMPT * 2000]


def call(url, path, body, **more):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=30)
    try:
        body = body if isinstance(body, (str, bytes)) else json.dumps(body)
        connection.request("POST", path, body, {"content-type": JSON, **KEYS, **more})
        response = connection.getresponse()
        return response.status, response.read()
    except (http.client.IncompleteRead, ConnectionError):
        return None, b""
    finally:
        connection.close()


@pytest.mark.parametrize("level", ["debug", "trace"])
def test_no_prompt_answer_or_key_leaves_the_process(level, tokengauge, tmp_path):
    current = {}
    with receiving(tmp_path / "receiver") as receiver, upstream(lambda *_: current["answer"]) as (url, heads):
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={KEY}",
            "OTEL_LOGS_EXPORTER": "otlp",
            "TOKENGAUGE_LOG": level,
            "RUST_BACKTRACE": "full",
        }
        seen = []
        with exporting(tokengauge, tmp_path / "proxy", url, variables) as gauge:
            made = 0
            for name, (path, body, (status, kind, answer)) in CALLS.items():
                current["answer"] = (status, kind, answer.encode())
                more = {"content-encoding": "gzip"} if name == "not gzip" else {}
                call(gauge.url, path, body, **more)
                made += 1
                seen.append(gauge.scrape("/api/v1/streams"))
            current["answer"] = (200, SSE, events(delta(content=ANSWER)).encode())
            for body in MALFORMED:
                call(gauge.url, "/v1/chat/completions", body)
                made += 1
            packed = gzip.compress(json.dumps(CHAT).encode())
            call(gauge.url, "/v1/chat/completions", packed, **{"content-encoding": "gzip"})
            made += 1
            eventually(lambda: len(gauge.logged()) == made, f"{made} records")
            seen += [gauge.scrape(path) for path in ("/metrics", f"/api/v1/calls?limit={2 * made}", "/livez", "/readyz")]
        dead = tmp_path / "dead"
        with exporting(tokengauge, dead, "http://127.0.0.1:9", variables) as gauge:
            status, refusal = call(gauge.url, f"/v1beta/models/m:generateContent?key={KEY}", CHAT)
            assert status == 502
            seen += [refusal.decode(), gauge.scrape("/metrics")]
        # The upstream received everything, so it could have leaked.
        assert any(KEY in line for line in heads[0])
        assert len(receiver.spans()) == 2 * made + 2
        assert receiver.messages("/v1/logs") and receiver.metrics()
        messages = [receiver.messages(path) for path in ("/v1/traces", "/v1/metrics", "/v1/logs")]
    seen += [json.dumps(message) for message in messages]
    for folder in (tmp_path / "proxy", dead):
        seen += [(folder / name).read_text() for name in ("proxy.log", "calls.jsonl")]
    # Permitted values are found by the search, so secrets would be found as well.
    records, (log, calls) = seen[-4 - 3], seen[-4:-2]
    assert all("s-1" in text for text in (records, calls))
    assert log.count('"outcome":') == made, "a line per call"
    encoded = base64.b64encode(KEY.encode()).decode()
    leaks = [line for text in seen for line in text.splitlines() if PLANTED in line or encoded in line]
    assert not leaks, "\n".join(line[:500] for line in leaks[:20])
