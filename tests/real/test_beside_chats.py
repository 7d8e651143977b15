"""Conversations, interactions, transcriptions and images by the vendors' SDKs. A backend here answers with fixtures
of these dialects, because no vendor's service is available. Our records must match what the SDKs read."""

import contextlib
import http.server
import threading
import time

import pytest

from conftest import PROJECT
from tokens import counts

FIXTURES = PROJECT / "tests/fixtures"
TIMEOUT = 20
ANSWERS = {
    "/v1/audio/transcriptions": ("openai_media/transcription.sse", "openai_media/transcription.json"),
    "/v1/images/generations": ("openai_media/image.sse", "openai_media/image.json"),
    "/v1/conversations": ("mistral_conversations/stream.sse", "mistral_conversations/whole.json"),
    "/v1/interactions": ("gemini_interactions/steps.sse", "gemini_interactions/whole.json"),
}


class Backend(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).replace(b" ", b"")
        path = self.path.split("?")[0].split("#")[0]
        streamed = b'"stream":true' in body or b'name="stream"' in body
        answer = (FIXTURES / ANSWERS[path][0 if streamed else 1]).read_bytes()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def proxy(gauge):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with contextlib.closing(server.socket):
        yield gauge("beside-chats", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def openai_client(proxy):
    import openai

    return openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="none")


def transcription(proxy, stream):
    file = ("a.wav", b"RIFF")
    made = openai_client(proxy).audio.transcriptions.create(model="gpt-4o-transcribe", file=file, **({"stream": True} if stream else {}))
    if not stream:
        return made.text, (made.usage.input_tokens, made.usage.output_tokens)
    events = list(made)
    usage = events[-1].usage
    return "".join(one.delta for one in events if one.type == "transcript.text.delta"), (usage.input_tokens, usage.output_tokens)


def image(proxy, stream):
    asked = {"stream": True, "partial_images": 2} if stream else {}
    made = openai_client(proxy).images.generate(model="gpt-image-1", prompt="a boat", **asked)
    usage = list(made)[-1].usage if stream else made.usage
    return None, (usage.input_tokens, usage.output_tokens)


def conversation(proxy, stream):
    from mistralai.client import Mistral

    client = Mistral(server_url=proxy.url, api_key="none").beta.conversations
    asked = {"model": "mistral-medium-latest", "inputs": "hi"}
    if not stream:
        made = client.start(**asked)
        parts = [part.text for one in made.outputs if one.type == "message.output" for part in one.content]
        return "".join(parts), (made.usage.prompt_tokens, made.usage.completion_tokens)
    events = [event.data for event in client.start_stream(**asked)]
    parts = [event.content for event in events if event.type == "message.output.delta"]
    parts = [part if isinstance(part, str) else part.text for part in parts if isinstance(part, str) or part.type == "text"]
    return "".join(parts), (events[-1].usage.prompt_tokens, events[-1].usage.completion_tokens)


def interaction(proxy, stream):
    from google import genai

    client = genai.Client(api_key="none", http_options={"base_url": proxy.url})
    made = client.interactions.create(model="gemini-2.5-flash", input="hi", stream=stream)
    if stream:
        made = list(made)[-1].interaction
    usage = made.usage
    # By docs/measurement.md, tool use is input and thought is output.
    used = (usage.total_input_tokens + usage.total_tool_use_tokens, usage.total_output_tokens + usage.total_thought_tokens)
    return None, used


def made_since(proxy, known):
    deadline = time.monotonic() + TIMEOUT
    while not (calls := [call for call in proxy.calls() if call["id"] not in known]):
        assert time.monotonic() < deadline, "no record"
        time.sleep(0.02)
    [call] = calls
    return call


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("ask, dialect", [
    (transcription, "openai_media"), (image, "openai_media"), (conversation, "mistral_conversations"), (interaction, "gemini_interactions"),
])
def test_what_an_sdk_reads_is_in_the_record(proxy, ask, dialect, stream):
    known = {call["id"] for call in proxy.calls()}
    text, used = ask(proxy, stream)
    call = made_since(proxy, known)
    assert (call["dialect"], call["operation_class"], call["outcome"]) == (dialect, "generation", "complete")
    assert (call["tokens"]["reported"]["input"], call["tokens"]["reported"]["output"]) == used
    if text is not None:
        assert text and call["tokens"]["normalised"]["answer"] == counts([text])[0]
