"""A backend that answers over WebSocket: OpenAI's Responses and Realtime, and Gemini Live.

It records by its own clock when it got a request and when it sent which text, and the usage in its last message."""

import asyncio
import contextlib
import dataclasses
import http
import json
import threading
import time

import websockets.asyncio.server

WORDS = "The boats carry grain, timber and salt down the river, and in winter nothing at all, for it is frozen over. ".split()
PIECES = [f"{word} " for word in WORDS * 2]
FIRST, GAP = 0.12, 0.01
INPUT = 321


@dataclasses.dataclass
class Answer:
    request: dict
    asked: float
    sent: list = dataclasses.field(default_factory=list)
    output: int = 0

    @property
    def text(self):
        return "".join(text for _, text in self.sent)

    @property
    def first(self):
        return self.sent[0][0] - self.asked

    @property
    def seconds(self):
        return self.sent[-1][0] - self.sent[0][0]


class Backend:
    def __init__(self):
        self.answers, self.refused, self.handshakes, self.prepared = [], 0, [], 0
        self.url = None

    async def answer(self, socket):
        path = socket.request.path.split("?")[0]
        self.handshakes.append(socket.request)
        with contextlib.suppress(websockets.exceptions.ConnectionClosed):
            if path.endswith("BidiGenerateContent"):
                await self.live(socket)
            elif path.endswith("/realtime"):
                await self.realtime(socket)
            else:
                await self.responses(socket)

    async def pieces(self, answer, message):
        await asyncio.sleep(FIRST)
        for piece in PIECES:
            written = message(piece)
            answer.sent.append((time.monotonic(), piece))
            await written
            await asyncio.sleep(GAP)
        answer.output = len(PIECES) + 11

    def begin(self, request):
        self.answers.append(Answer(request, time.monotonic()))
        return self.answers[-1], f"resp_{len(self.answers)}"

    async def responses(self, socket):
        async for text in socket:
            request = json.loads(text)
            if request["type"] != "response.create":
                continue
            if request.get("previous_response_id") == "resp_gone":
                self.refused += 1
                error = {"type": "invalid_request_error", "code": "previous_response_not_found", "message": "It is gone."}
                await send(socket, type="error", status=400, error=error, sequence_number=0)
                continue
            if request.get("generate") is False:
                self.prepared += 1
                whole = response(f"resp_warm_{self.prepared}", request, "completed", [], 0)
                await send(socket, type="response.created", response=whole | {"status": "in_progress"}, sequence_number=0)
                await send(socket, type="response.completed", response=whole, sequence_number=1)
                continue
            await self.response(socket, request)

    async def response(self, socket, request):
        answer, name = self.begin(request)
        number = iter(range(10_000))

        def message(kind, **members):
            return send(socket, type=kind, sequence_number=next(number), **members)

        at = {"item_id": f"msg_{name}", "output_index": 0, "content_index": 0}
        item = {"id": at["item_id"], "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        await message("response.created", response=response(name, request, "in_progress", [], None))
        await message("response.output_item.added", output_index=0, item=item)
        await message("response.content_part.added", part=part, **at)
        await self.pieces(answer, lambda piece: message("response.output_text.delta", delta=piece, logprobs=[], **at))
        part |= {"text": answer.text}
        item |= {"status": "completed", "content": [part]}
        await message("response.output_text.done", text=answer.text, logprobs=[], **at)
        await message("response.content_part.done", part=part, **at)
        await message("response.output_item.done", output_index=0, item=item)
        await message("response.completed", response=response(name, request, "completed", [item], answer.output))

    async def realtime(self, socket):
        await send(socket, type="session.created", event_id="e", session={"id": "sess_1", "type": "realtime", "model": "gpt-realtime"})
        async for text in socket:
            request = json.loads(text)
            if request["type"] != "response.create":
                continue
            answer, name = self.begin(request)
            at = {"event_id": "e", "response_id": name, "item_id": f"item_{name}", "output_index": 0, "content_index": 0}
            whole = {"object": "realtime.response", "id": name, "status": "in_progress", "output": []}
            await send(socket, type="response.created", event_id="e", response=whole)
            delta = "response.output_audio_transcript.delta"
            await self.pieces(answer, lambda piece: send(socket, type=delta, delta=piece, **at))
            await send(socket, type="response.output_audio_transcript.done", transcript=answer.text, **at)
            # A second part without deltas.
            answer.sent.append((time.monotonic(), "Ice."))
            await send(socket, type="response.output_text.done", text="Ice.", **at | {"content_index": 1})
            content = [{"type": "output_audio", "transcript": answer.text.removesuffix("Ice.")}, {"type": "output_text", "text": "Ice."}]
            item = {"id": at["item_id"], "type": "message", "role": "assistant", "status": "completed", "content": content}
            await send(socket, type="response.output_item.done", event_id="e", response_id=name, output_index=0, item=item)
            used = {"input_tokens": INPUT, "output_tokens": answer.output, "total_tokens": INPUT + answer.output}
            whole |= {"status": "completed", "output": [item], "usage": used}
            await send(socket, type="response.done", event_id="e", response=whole)

    async def live(self, socket):
        """Sends JSON in binary messages, as Google does."""

        def message(**members):
            return socket.send(json.dumps(members).encode())

        async for text in socket:
            request = json.loads(text)
            if "setup" in request:
                await message(setupComplete={"sessionId": "live_1"})
                continue
            if not (request.get("clientContent") or request.get("client_content") or {}).get("turnComplete", True):
                continue
            answer, _ = self.begin(request)
            parts = lambda piece: {"modelTurn": {"role": "model", "parts": [{"text": piece}]}}
            await self.pieces(answer, lambda piece: message(serverContent=parts(piece)))
            await message(serverContent={"generationComplete": True})
            used = {"promptTokenCount": INPUT, "responseTokenCount": answer.output, "totalTokenCount": INPUT + answer.output}
            await message(serverContent={"turnComplete": True}, usageMetadata=used)


def response(name, request, status, output, used):
    usage = None
    if used is not None:
        usage = {"input_tokens": INPUT, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": used}
        usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": INPUT + used}
    return {
        "id": name, "object": "response", "created_at": 1, "status": status, "model": request["model"], "output": output,
        "usage": usage, "error": None, "incomplete_details": None, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }


def send(socket, **members):
    return socket.send(json.dumps(members))


def only_sockets(connection, request):
    """Answers 404 to requests that are not WebSockets."""
    if request.headers.get("upgrade", "").lower() != "websocket":
        return connection.respond(http.HTTPStatus.NOT_FOUND, "not here\n")
    return None


@contextlib.contextmanager
def serving(compression="deflate"):
    """A running backend."""
    backend, ready, loop = Backend(), threading.Event(), asyncio.new_event_loop()

    async def serve():
        server = await websockets.asyncio.server.serve(
            backend.answer, "127.0.0.1", 0, compression=compression, process_request=only_sockets, max_size=None
        )
        backend.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        backend.stop = asyncio.Event()
        ready.set()
        await backend.stop.wait()
        server.close()
        await server.wait_closed()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield backend
    finally:
        loop.call_soon_threadsafe(backend.stop.set)
        thread.join(10)
