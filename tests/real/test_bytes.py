"""Raw HTTP: what the proxy passes on is what the backend sent, byte for byte."""

import http.client
import json
import re
import urllib.parse

import pytest

QUESTION = [{"role": "user", "content": "Tell me of rivers."}]
CONVERSE = {"messages": [{"role": "user", "content": [{"text": "rivers"}]}], "inferenceConfig": {"maxTokens": 64}}
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
    "converse": ("/model/m/converse-stream", CONVERSE),
}
# Ours to set or of the connection; everything else in a head must be the same.
NOT_COMPARED = {"date"}
# What llama.cpp makes anew for every answer.
VOLATILE = re.compile(rb'"(?:id|item_id)":"[^"]*"|"(?:created|created_at|completed_at)":\d+|"timings":{[^}]*}')


def exchange(base, method, path, body=None):
    """Status, reason, header lines in order and body bytes of one exchange."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(base).netloc, timeout=60)
    headers = {"content-type": "application/json", "accept-encoding": "identity"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    lines = [(name, value) for name, value in response.getheaders() if name.lower() not in NOT_COMPARED]
    data = response.read()
    connection.close()
    return response.status, response.reason, lines, data


@pytest.mark.parametrize("name", SIMULATOR_REQUESTS)
def test_a_simulated_answer_is_identical_in_every_byte(simulator, simulator_gauge, name):
    path, body = SIMULATOR_REQUESTS[name]
    direct = exchange(simulator, "POST", path, body)
    through = exchange(simulator_gauge.url, "POST", path, body)
    assert direct[0] == 200
    assert len(direct[3]) > 200
    assert through == direct


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", ENGINE_REQUESTS)
def test_an_engines_answer_differs_only_in_what_it_makes_anew(engine, engine_gauge, name, streamed):
    path, body = ENGINE_REQUESTS[name]
    body = {"model": "tiny", "stream": streamed, **body}
    *direct_head, direct = exchange(engine, "POST", path, body)
    *through_head, through = exchange(engine_gauge.url, "POST", path, body)
    assert VOLATILE.sub(b"", through) == VOLATILE.sub(b"", direct)
    assert without_length(through_head) == without_length(direct_head)


def without_length(head):
    """Timings are of varying length, so bodies are, too."""
    status, reason, lines = head
    return status, reason, [(name, None if name.lower() == "content-length" else value) for name, value in lines]


@pytest.mark.parametrize(
    "method, path",
    [("GET", "/v1/models"), ("GET", "/health"), ("GET", "/no/such/path"), ("OPTIONS", "/v1/chat/completions"), ("HEAD", "/health")],
)
def test_what_is_no_generation_passes_all_the_same(engine, engine_gauge, method, path):
    *direct_head, direct = exchange(engine, method, path)
    *through_head, through = exchange(engine_gauge.url, method, path)
    assert through_head == direct_head
    assert VOLATILE.sub(b"", through) == VOLATILE.sub(b"", direct)


def test_an_engines_refusal_is_passed_on(engine, engine_gauge):
    direct = exchange(engine, "POST", "/v1/chat/completions", {"messages": "not a list"})
    with engine_gauge.next_record() as records:
        through = exchange(engine_gauge.url, "POST", "/v1/chat/completions", {"messages": "not a list"})
    assert direct[0] >= 400
    assert through == direct
    assert (records[0]["status"], records[0]["outcome"]) == (direct[0], "http_error")
