"""Calls as agents make them: streams of several dialects, whole answers, cancels, errors, stalls."""

import concurrent.futures
import contextlib
import dataclasses
import http.client
import itertools
import json
import random
import time
import urllib.parse

QUESTION = "Tell me of rivers, of the towns beside them and of what the boats carried. "


@dataclasses.dataclass
class Call:
    """One request, and the simulator's behaviour."""

    path: str
    body: dict
    behave: str = ""
    cancel_after: int | None = None  # after this number of response bytes
    trace: str | None = None

    def headers(self):
        headers = {"content-type": "application/json", "x-sim": self.behave}
        if self.trace:
            headers["traceparent"] = f"00-{self.trace}-{self.trace[:16]}-01"
        return {name: value for name, value in headers.items() if value}

    def make(self, base):
        """Makes the call, which may end in an error."""
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(base).netloc, timeout=30)
        with contextlib.suppress(http.client.HTTPException, OSError), contextlib.closing(connection):
            connection.request("POST", self.path, json.dumps(self.body), self.headers())
            connection.getresponse().read(self.cancel_after)


def messages(words):
    return [{"role": "user", "content": QUESTION * max(1, words // 15)}]


def chat(route, model, words=15, stream=True, **how):
    body = {"model": model, "stream": stream, "messages": messages(words), "max_tokens": 96}
    if stream:
        body["stream_options"] = {"include_usage": True}
    return Call(f"/{route}/v1/chat/completions", body, **how)


def anthropic(route, model, words=15, stream=True, **how):
    body = {"model": model, "max_tokens": 96, "stream": stream, "messages": messages(words)}
    return Call(f"/{route}/v1/messages", body, **how)


def responses(route, model, words=15, stream=True, **how):
    body = {"model": model, "stream": stream, "input": QUESTION * (words // 15), "max_output_tokens": 96}
    return Call(f"/{route}/v1/responses", body, **how)


def ollama(route, model, **how):
    return Call(f"/{route}/api/chat", {"model": model, "messages": messages(15)}, **how)


def gemini(route, model, **how):
    contents = [{"role": "user", "parts": [{"text": QUESTION}]}]
    return Call(f"/{route}/v1beta/models/{model}:streamGenerateContent?alt=sse", {"contents": contents}, **how)


def cohere(route, model, **how):
    return Call(f"/{route}/v2/chat", {"model": model, "stream": True, "messages": messages(15)}, **how)


def bedrock(route, model, **how):
    content = [{"role": "user", "content": [{"text": QUESTION}]}]
    return Call(f"/{route}/model/{model}/converse-stream", {"messages": content}, **how)


def embeddings(route, model, **how):
    return Call(f"/{route}/v1/embeddings", {"model": model, "input": QUESTION}, **how)


def simulated(dice):
    """Returns one round of calls to the simulator: every dialect, every way to end, every speed."""
    pace = f"gap={dice.choice([4, 8, 14, 22, 45])}ms~3ms,ttft={dice.choice([20, 60, 120, 350])}ms"
    quick = "gap=4ms,ttft=30ms"
    return [
        chat("chat", "gpt-sim", behave=f"{pace},tokens=40..110,reasoning=20"),
        chat("chat", "gpt-sim-mini", words=1500, behave=f"{pace},tokens=40..80,prefill=60ms"),
        chat("agents", "gpt-sim", words=9000, behave="gap=9ms,ttft=100ms,tokens=60,prefill=20ms,tool=24"),
        chat("chat", "gpt-sim", stream=False, behave="ttft=200ms,tokens=60"),
        anthropic("agents", "claude-sim", words=2500, behave=f"{pace},tokens=50..90,reasoning=30,tool=20"),
        anthropic("agents", "claude-sim", behave="gap=6ms,tokens=60,stall=600ms@30"),
        responses("agents", "gpt-sim", words=600, behave=f"{pace},tokens=60"),
        gemini("chat", "gemini-sim", behave=f"{pace},tokens=50"),
        cohere("chat", "command-sim", behave=f"{quick},tokens=50"),
        ollama("chat", "llama-sim", behave=f"{quick},tokens=60"),
        bedrock("chat", "nova-sim", behave=f"{quick},tokens=50"),
        embeddings("agents", "embed-sim"),
        chat("chat", "gpt-sim", behave="gap=10ms,tokens=200", cancel_after=dice.choice([400, 6000])),
        chat("chat", "gpt-sim", behave="gap=5ms,reset=@40"),
        anthropic("agents", "claude-sim", behave="gap=5ms,error=overloaded_error@20"),
        chat("chat", "gpt-sim", behave=f"status={dice.choice([400, 429, 500])}"),
        chat("chat", "gpt-sim", behave="head=2s"),
        chat("gone", "gpt-sim"),
    ]


def engine(dice):
    return [
        chat("engine", "tiny"),
        anthropic("engine", "tiny", words=300),
        responses("engine", "tiny", stream=dice.random() < 0.7),
    ]


def made_up_models():
    return [chat("chat", f"made-up-{number}", behave="ttft=5ms,gap=1ms,tokens=8") for number in range(30)]


def run(base, seconds, seed=7, at_once=8, traced=True):
    """Makes calls for some time, with a higher load in the middle. Returns the trace ids that were sent."""
    dice = random.Random(seed)
    end = time.monotonic() + seconds
    traces = set()
    with concurrent.futures.ThreadPoolExecutor(4 * at_once) as agents:
        pending = set()
        for round_number in itertools.count():
            calls = simulated(dice) + (engine(dice) if round_number % 4 == 0 else [])
            if round_number == 1:
                # The models of the first round have a series each, however slow a call is.
                concurrent.futures.wait(pending)
                calls += made_up_models()
            dice.shuffle(calls)
            for call in calls:
                if traced and dice.random() < 0.5:
                    call.trace = f"{dice.getrandbits(128):032x}"
                    traces.add(call.trace)
                crowd = at_once if (end - time.monotonic()) / seconds > 0.5 else 4 * at_once
                while len(pending) >= crowd:
                    _, pending = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)
                if time.monotonic() > end:
                    return traces
                pending.add(agents.submit(call.make, base))


def burst(base, streams=140):
    """Starts as many concurrent streams as the highest class of concurrency needs."""
    call = chat("agents", "gpt-sim", behave="ttft=2500ms,gap=10ms,tokens=48")
    with concurrent.futures.ThreadPoolExecutor(streams) as agents:
        list(agents.map(lambda _: call.make(base), range(streams)))
