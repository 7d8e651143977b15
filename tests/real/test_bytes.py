"""Raw HTTP: the proxy must forward the backend's bytes unchanged."""

import http.client
import json
import re
import urllib.parse

import pytest

QUESTION = [{"role": "user", "content": "Tell me of rivers."}]
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "rivers"}]}], "generationConfig": {"maxOutputTokens": 64}}

ENGINE_REQUESTS = {
    "chat": ("/v1/chat/completions", {"messages": QUESTION, "temperature": 0, "max_tokens": 64}),
    "completions": ("/v1/completions", {"prompt": "rivers", "temperature": 0, "max_tokens": 64}),
    "responses": ("/v1/responses", {"input": "rivers", "temperature": 0, "max_output_tokens": 64}),
    "anthropic": ("/v1/messages", {"messages": QUESTION, "temperature": 0, "max_tokens": 64}),
}
SIMULATOR_REQUESTS = {
    "chat": ("/v1/chat/completions", {"model": "m", "messages": QUESTION, "stream": True}),
    "chat, whole": ("/v1/chat/completions", {"model": "m", "messages": QUESTION}),
    "responses": ("/v1/responses", {"model": "m", "input": "rivers", "stream": True}),
    "anthropic": ("/v1/messages", {"model": "m", "max_tokens": 64, "messages": QUESTION, "stream": True}),
    "gemini": ("/v1beta/models/m:streamGenerateContent?alt=sse", CONTENTS),
    "gemini, array": ("/v1beta/models/m:streamGenerateContent", CONTENTS),
    "cohere": ("/v2/chat", {"model": "m", "messages": QUESTION, "stream": True}),
    "ollama": ("/api/chat", {"model": "m", "messages": QUESTION}),
}
# Headers of the connection, or new for every answer. All other headers must be equal, in the same order.
NOT_COMPARED = {"connection", "keep-alive", "date", "x-sim-id"}
VOLATILE = re.compile(
    rb'"(?:id|item_id|created_at)":"[^"]*"|"(?:created|created_at|completed_at|\w+_duration)":\d+|"timings":{[^}]*}'
)


def exchange(base, method, path, body=None):
    """Returns status, reason and header lines in order, and the body without values that are new for every answer."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(base).netloc, timeout=60)
    headers = {"content-type": "application/json", "accept-encoding": "identity"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    lines = [(name, value) for name, value in response.getheaders() if name.lower() not in NOT_COMPARED]
    data = response.read()
    connection.close()
    if VOLATILE.search(data):
        # New values may have another length.
        lines = [(name, value) for name, value in lines if name.lower() != "content-length"]
    return (response.status, response.reason, lines), VOLATILE.sub(b"", data)


@pytest.mark.parametrize("name", SIMULATOR_REQUESTS)
def test_a_simulated_answer_is_the_same_in_every_byte(simulator, simulator_gauge, name):
    path, body = SIMULATOR_REQUESTS[name]
    head, direct = exchange(simulator, "POST", path, body)
    assert head[0] == 200
    assert len(direct) > 200
    assert exchange(simulator_gauge.url, "POST", path, body) == (head, direct)


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", ENGINE_REQUESTS)
def test_an_engines_answer_is_the_same_in_every_byte(engine, engine_gauge, name, streamed):
    path, body = ENGINE_REQUESTS[name]
    body = {"model": "tiny", "stream": streamed, **body}
    head, direct = exchange(engine, "POST", path, body)
    assert head[0] == 200
    assert len(direct) > 200
    assert exchange(engine_gauge.url, "POST", path, body) == (head, direct)


@pytest.mark.parametrize(
    "method, path",
    [
        ("GET", "/v1/models"),
        ("GET", "/health"),
        ("GET", "/no/such/path"),
        ("HEAD", "/health"),
        ("OPTIONS", "/v1/chat/completions"),
    ],
)
def test_requests_other_than_generations_are_forwarded(engine, engine_gauge, method, path):
    assert exchange(engine_gauge.url, method, path) == exchange(engine, method, path)


def test_an_engines_refusal_is_passed_on(engine, engine_gauge):
    refused = exchange(engine, "POST", "/v1/chat/completions", {"messages": "not a list"})
    with engine_gauge.next_record() as records:
        through = exchange(engine_gauge.url, "POST", "/v1/chat/completions", {"messages": "not a list"})
    assert refused[0][0] >= 400
    assert through == refused
    assert (records[0]["status"], records[0]["outcome"]) == (refused[0][0], "http_error")
