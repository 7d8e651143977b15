"""Answers over WebSocket by SDKs and agents that use it: each is one correct record."""

import asyncio
import json
import os
import pathlib
import ssl
import subprocess
import time

import pytest

import socket_backend
import tokens
from otlp import eventually

# Tolerance between the proxy and the backend, in seconds and as a share.
NEAR = 0.3

HERE = pathlib.Path(__file__).parent
AGENTS = HERE.parent.parent / ".cache/real"
TIMEOUT = 300


@pytest.fixture(params=["deflate", None], ids=["compressed", "plain"])
def backend(request):
    with socket_backend.serving(request.param) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def ready_sdk():
    """The SDK creates its types at the first event, in the backend's process, which may then be late by a second."""
    import openai

    with socket_backend.serving(None) as running:
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none")
        with client.responses.connect() as connection:
            ask(connection, model="gpt-5.1", input="Say something")
        with client.realtime.connect(model="gpt-realtime") as connection:
            until_done(connection)


@pytest.fixture
def through(gauge, backend, request):
    return gauge(f"sockets-{abs(hash(request.node.name))}", backend.url)


def records(gauge, count):
    deadline = time.monotonic() + 60
    while len(gauge.logged()) < count:
        assert time.monotonic() < deadline, f"{len(gauge.logged())} of {count} records"
        time.sleep(0.02)
    time.sleep(0.3)
    found = sorted(gauge.logged(), key=lambda record: record["started_at"])
    assert len(found) == count, [(record["path"], record["outcome"]) for record in found]
    return found


def agree(record, answer, dialect):
    assert (record["dialect"], record["outcome"], record["streamed"]) == (dialect, "complete", True)
    assert record["operation_class"] == "generation"
    counted = tokens.count(answer.text)
    assert record["tokens"]["normalised"]["output"] == counted
    assert record["tokens"]["reported"]["input"] == socket_backend.INPUT
    assert record["tokens"]["reported"]["output"] == answer.output
    # Times of the backend's clock and the proxy's, on a busy machine.
    assert record["seconds"]["ttft"] == pytest.approx(answer.first, abs=NEAR)
    assert record["tps"]["output"] == pytest.approx(counted / answer.seconds, rel=NEAR)


def ask(connection, **request):
    """Returns text and last event of one answer from the SDK."""
    connection.response.create(**request)
    text = ""
    for event in connection:
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type in ("response.completed", "error"):
            return text, event
    raise AssertionError("the connection ended")


def until_done(connection):
    connection.response.create()
    for event in connection:
        if event.type == "response.done":
            break


def test_responses_by_the_openai_sdk(backend, through):
    import openai

    client = openai.OpenAI(base_url=f"{through.url}/v1", api_key="none")
    with client.responses.connect() as connection:
        first, done = ask(connection, model="gpt-5.1", input="Say something of boats", user="ada", service_tier="flex")
        last = done.response.id
        _, error = ask(connection, model="gpt-5.1", input="And?", previous_response_id="resp_gone")
        assert error.type == "error"
        second, _ = ask(connection, model="gpt-5.1-mini", input="And now?", previous_response_id=last)
    assert [first, second] == [answer.text for answer in backend.answers]
    one, failed, two = records(through, 3)
    for record, answer, model in zip((one, two), backend.answers, ("gpt-5.1", "gpt-5.1-mini")):
        agree(record, answer, "openai_responses")
        assert record["model_requested"] == record["model"] == model
    assert (one["response_id"], two["response_id"]) == ("resp_1", "resp_2")
    assert one["service_tier"] == "flex" and one["user"]
    assert failed["outcome"] == "error_event" and failed["tokens"]["normalised"]["output"] in (None, 0)
    assert one["session"] and one["session"] == two["session"] == failed["session"]


def test_realtime_by_the_openai_sdk(backend, through):
    import openai

    client = openai.OpenAI(base_url=f"{through.url}/v1", api_key="none")
    with client.realtime.connect(model="gpt-realtime") as connection:
        for _ in range(2):
            until_done(connection)
    for record, answer in zip(records(through, 2), backend.answers):
        assert record["dialect"] == "openai_realtime"
        transcript, second = answer.text.removesuffix("Ice."), "Ice."
        assert record["tokens"]["normalised"]["output"] == tokens.count(transcript) + tokens.count(second)
        assert record["session"] == "sess_1"
        assert record["seconds"]["ttft"] == pytest.approx(answer.first, abs=NEAR)


@pytest.fixture
def secure(gauge, backend, tmp_path):
    """A proxy with its own certificate, and a context that trusts it: Google's SDK opens WebSockets only over TLS."""
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True)
    config = tmp_path / "secure.toml"
    route = '[[route]]\npath = "/gemini"\nupstream = "gemini"\n'
    tls = f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\n'
    config.write_text(f'{tls}[admin]\nlisten = "127.0.0.1:0"\n[[upstream]]\nname = "gemini"\nurl = "{backend.url}"\n{route}')
    return gauge(f"secure-{tmp_path.name}", config=config), ssl.create_default_context(cafile=certificate)


def test_gemini_live_by_the_google_sdk(backend, secure):
    from google import genai

    through, trusting = secure
    address = through.url.replace("http:", "https:") + "/gemini"
    client = genai.Client(api_key="none", http_options={"base_url": address, "async_client_args": {"ssl": trusting}})

    async def talk():
        heard = []
        async with client.aio.live.connect(model="gemini-live-2.5-flash", config={"response_modalities": ["TEXT"]}) as session:
            for question in ("Say something of boats", "And now?"):
                await session.send_client_content(turns={"role": "user", "parts": [{"text": question}]}, turn_complete=True)
                heard.append("".join([message.text or "" async for message in session.receive()]))
        return heard

    assert asyncio.run(talk()) == [answer.text for answer in backend.answers]
    for record, answer in zip(records(through, 2), backend.answers):
        agree(record, answer, "gemini_live")
        assert record["session"] == "live_1"
        assert record["model_requested"] == "gemini-live-2.5-flash"
        assert "key" not in record["path"]


CODEX = {
    "provider": 'model_provider = "gauge"\n[model_providers.gauge]\nname = "gauge"\nbase_url = "{url}/v1"\n'
    'wire_api = "responses"\nenv_key = "CODEX_API_KEY"\nsupports_websockets = true\n',
    "openai_base_url": 'openai_base_url = "{url}/v1"\n',
}


@pytest.mark.part("agents")
@pytest.mark.parametrize("config", CODEX)
def test_codex(backend, through, config, tmp_path):
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/config.toml").write_text('model = "gpt-5.1"\n' + CODEX[config].format(url=through.url))
    codex = [AGENTS / "agents/node_modules/.bin/codex", "exec", "--skip-git-repo-check", "--json", "Say something of boats"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CODEX_API_KEY": "none"}
    done = subprocess.run(
        codex, env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    thread = next(event["thread_id"] for event in events if event["type"] == "thread.started")
    used = next(event["usage"] for event in events if event["type"] == "turn.completed")
    generations = lambda: [call for call in through.calls() if call["operation_class"] == "generation"]  # noqa: E731
    calls = eventually(generations, "the generation")
    assert len(calls) == len(backend.answers) == 1, [(call["path"], call["outcome"]) for call in through.calls()]
    agree(calls[0], backend.answers[0], "openai_responses")
    assert calls[0]["session"] == thread
    assert calls[0]["status"] == 101
    assert (used["input_tokens"], used["output_tokens"]) == (socket_backend.INPUT, backend.answers[0].output)


AGENT = """
import asyncio, sys, openai
from agents import Agent, OpenAIResponsesWSModel, Runner, set_tracing_disabled
set_tracing_disabled(True)
async def main():
    client = openai.AsyncOpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
    agent = Agent(name="guide", model=OpenAIResponsesWSModel("gpt-5.1", client))
    history = []
    for question in ("Say something of boats", "And now?"):
        result = Runner.run_streamed(agent, [*history, {"role": "user", "content": question}])
        async for _ in result.stream_events():
            pass
        history = result.to_input_list()
asyncio.run(main())
"""


@pytest.mark.part("agents")
def test_openai_agents(backend, through):
    python = AGENTS / "agents-python/bin/python"
    subprocess.run([python, "-c", AGENT, through.url], check=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL)
    found = records(through, 2)
    for record, answer in zip(found, backend.answers):
        agree(record, answer, "openai_responses")
    assert found[0]["session"] == found[1]["session"]
