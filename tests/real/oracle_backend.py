"""A backend with a known truth: `oracle_backend.py CASES.json`. It plays the case that the header `x-case` names and keeps,
by its own clock, when it sent which generated text. `GET /truth` gives all of it.

A case: `id`, `dialect`, `stream`, `model`, `pieces` ([channel, text, seconds before it]), `end` (`complete`, `cut`: the
connection is lost, `unterminated`: it ends as HTTP says but the dialect's end is missing, `error`: an error event,
`refused`: `status`), `tail` (seconds before the end), `usage` ({input, output, reasoning}), `ascii` (escapes in JSON).
"""

import asyncio
import json
import sys
import time

REASONS = {"openai_chat": "stop", "openai_completions": "stop", "anthropic": "end_turn", "gemini": "STOP"}


class Writer:
    """The chunks of one answer: `(bytes, channel or None, text, seconds before)`."""

    def __init__(self, case):
        self.case, self.model, self.usage = case, case["model"], case["usage"]
        self.chunks = []

    def json(self, value):
        return json.dumps(value, ensure_ascii=self.case["ascii"], separators=(",", ":")).encode()

    def sse(self, value, event=None):
        return (f"event: {event}\n".encode() if event else b"") + b"data: " + self.json(value) + b"\n\n"

    def add(self, data, channel=None, text="", wait=0.0):
        self.chunks.append((data, channel, text, wait))

    def runs(self):
        """Returns the pieces of each channel, in the order of the channels."""
        runs = []
        for channel, text, wait in self.case["pieces"]:
            if not runs or runs[-1][0] != channel:
                runs.append((channel, []))
            runs[-1][1].append((text, wait))
        return runs

    def texts(self):
        return {channel: "".join(text for text, _ in pieces) for channel, pieces in self.runs()}

    def write(self):
        getattr(self, self.case["dialect"] if self.case["stream"] else f"{self.case['dialect']}_whole")()
        return self.chunks

    def finish(self, *chunks):
        """Returns the end of a stream that is complete."""
        wait = self.case["tail"]
        if self.case["end"] == "error":
            chunks = [self.error()]
        elif self.case["end"] != "complete":
            return
        for chunk in chunks:
            self.add(chunk, wait=wait)
            wait = 0.0

    def error(self):
        fault = {"type": "server_error", "message": "the engine fell over"}
        match self.case["dialect"]:
            case "anthropic":
                return self.sse({"type": "error", "error": fault}, "error")
            case "openai_responses":
                return self.sse({"type": "error", "code": "server_error", "message": fault["message"]}, "error")
            case "ollama":
                return self.json({"error": fault["message"]}) + b"\n"
            case "cohere_v2":
                delta = {"finish_reason": "ERROR", "error": fault["message"]}
                return self.sse({"type": "message-end", "delta": delta}, "message-end")
            case _:
                return self.sse({"error": fault | {"code": 500}})

    # OpenAI chat completions and completions.

    def openai_usage(self):
        total = self.usage["input"] + self.usage["output"]
        counts = {"prompt_tokens": self.usage["input"], "completion_tokens": self.usage["output"], "total_tokens": total}
        return counts | {"completion_tokens_details": {"reasoning_tokens": self.usage["reasoning"]}}

    def openai_chat(self):
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": self.model}

        def chunk(delta, reason=None):
            return self.sse(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

        self.add(chunk({"role": "assistant", "content": ""}))
        for channel, pieces in self.runs():
            if channel == "tool_call":
                function = {"name": "look_up", "arguments": ""}
                self.add(chunk({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}))
            for text, wait in pieces:
                match channel:
                    case "reasoning":
                        delta = {"reasoning_content": text}
                    case "answer":
                        delta = {"content": text}
                    case "tool_call":
                        delta = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
                self.add(chunk(delta), channel, text, wait)
        last = self.sse(head | {"choices": [], "usage": self.openai_usage()})
        self.finish(chunk({}, "stop"), last, b"data: [DONE]\n\n")

    def openai_chat_whole(self):
        texts = self.texts()
        message = {"role": "assistant", "content": texts.get("answer")}
        if "reasoning" in texts:
            message["reasoning_content"] = texts["reasoning"]
        if "tool_call" in texts:
            function = {"name": "look_up", "arguments": texts["tool_call"]}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": self.model}
        self.add(self.json(body | {"choices": [choice], "usage": self.openai_usage()}))

    def openai_completions(self):
        head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": self.model}
        for _, pieces in self.runs():
            for text, wait in pieces:
                choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": None}
                self.add(self.sse(head | {"choices": [choice]}), "answer", text, wait)
        end = self.sse(head | {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
        last = self.sse(head | {"choices": [], "usage": self.openai_usage()})
        self.finish(end, last, b"data: [DONE]\n\n")

    def openai_completions_whole(self):
        choice = {"index": 0, "text": self.texts()["answer"], "finish_reason": "stop"}
        body = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": self.model}
        self.add(self.json(body | {"choices": [choice], "usage": self.openai_usage()}))

    # OpenAI responses.

    def response(self, status, output=()):
        body = {"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": self.model}
        body |= {"output": list(output), "usage": None}
        if status == "completed":
            details = {"reasoning_tokens": self.usage["reasoning"]}
            counts = {"input_tokens": self.usage["input"], "output_tokens": self.usage["output"]}
            body["usage"] = counts | {"output_tokens_details": details, "total_tokens": sum(counts.values())}
        return body

    def item(self, channel, text, status):
        if channel == "tool_call":
            call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": text}
            return call | {"status": status}
        if channel == "reasoning":
            content = [{"type": "reasoning_text", "text": text}] if text else []
            return {"id": "rs_1", "type": "reasoning", "summary": [], "content": content, "status": status}
        content = [{"type": "output_text", "text": text, "annotations": []}] if text else []
        return {"id": "msg_1", "type": "message", "role": "assistant", "content": content, "status": status}

    def openai_responses(self):
        def event(kind, **members):
            return self.sse({"type": kind, **members}, kind)

        names = {"answer": "output_text", "reasoning": "reasoning_text", "tool_call": "function_call_arguments"}
        self.add(event("response.created", response=self.response("in_progress")))
        for index, (channel, pieces) in enumerate(self.runs()):
            whole = "".join(text for text, _ in pieces)
            self.add(event("response.output_item.added", output_index=index, item=self.item(channel, "", "in_progress")))
            at = {"item_id": self.item(channel, "", "")["id"], "output_index": index}
            if channel != "tool_call":
                at["content_index"] = 0
            for text, wait in pieces:
                self.add(event(f"response.{names[channel]}.delta", delta=text, **at), channel, text, wait)
            done = {"arguments" if channel == "tool_call" else "text": whole}
            self.add(event(f"response.{names[channel]}.done", **at, **done))
            self.add(event("response.output_item.done", output_index=index, item=self.item(channel, whole, "completed")))
        output = [self.item(channel, text, "completed") for channel, text in self.texts().items()]
        self.finish(event("response.completed", response=self.response("completed", output)))

    def openai_responses_whole(self):
        output = [self.item(channel, text, "completed") for channel, text in self.texts().items()]
        self.add(self.json(self.response("completed", output)))

    # Anthropic messages.

    def block(self, channel, text):
        match channel:
            case "reasoning":
                return {"type": "thinking", "thinking": text, "signature": ""}
            case "answer":
                return {"type": "text", "text": text}
            case "tool_call":
                return {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": json.loads(text) if text else {}}

    def anthropic(self):
        def event(kind, **members):
            return self.sse({"type": kind, **members}, kind)

        usage = {"input_tokens": self.usage["input"], "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": self.model, "content": []}
        self.add(event("message_start", message=message | {"stop_reason": None, "usage": usage}))
        self.add(event("ping"))
        kinds = {"answer": ("text_delta", "text"), "reasoning": ("thinking_delta", "thinking")}
        for index, (channel, pieces) in enumerate(self.runs()):
            self.add(event("content_block_start", index=index, content_block=self.block(channel, "")))
            kind, member = kinds.get(channel, ("input_json_delta", "partial_json"))
            for text, wait in pieces:
                delta = event("content_block_delta", index=index, delta={"type": kind, member: text})
                self.add(delta, channel, text, wait)
            self.add(event("content_block_stop", index=index))
        end = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": self.usage["output"]})
        self.finish(end, event("message_stop"))

    def anthropic_whole(self):
        content = [self.block(channel, text) for channel, text in self.texts().items()]
        usage = {"input_tokens": self.usage["input"], "output_tokens": self.usage["output"]}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": self.model, "content": content}
        self.add(self.json(message | {"stop_reason": "end_turn", "usage": usage}))

    # Gemini.

    def gemini_chunk(self, parts, last=False):
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
        body = {"candidates": [candidate], "modelVersion": self.model, "responseId": "r1"}
        if last:
            candidate["finishReason"] = "STOP"
            thoughts = self.usage["reasoning"]
            counts = {"promptTokenCount": self.usage["input"], "candidatesTokenCount": self.usage["output"] - thoughts}
            body["usageMetadata"] = counts | {"thoughtsTokenCount": thoughts}
        return body

    def part(self, channel, text):
        return {"text": text, "thought": True} if channel == "reasoning" else {"text": text}

    def gemini(self):
        for channel, pieces in self.runs():
            for text, wait in pieces:
                self.add(self.sse(self.gemini_chunk([self.part(channel, text)])), channel, text, wait)
        self.finish(self.sse(self.gemini_chunk([{"text": ""}], last=True)))

    def gemini_whole(self):
        parts = [self.part(channel, text) for channel, text in self.texts().items()]
        self.add(self.json(self.gemini_chunk(parts, last=True)))

    # Ollama.

    def ollama_line(self, texts, done=False):
        message = {"role": "assistant", "content": texts.get("answer", "")}
        if "reasoning" in texts:
            message["thinking"] = texts["reasoning"]
        body = {"model": self.model, "created_at": "2026-01-01T00:00:00Z", "message": message, "done": done}
        if done:
            counts = {"prompt_eval_count": self.usage["input"], "eval_count": self.usage["output"]}
            body |= counts | {"done_reason": "stop"}
        return self.json(body) + b"\n"

    def ollama(self):
        for channel, pieces in self.runs():
            for text, wait in pieces:
                self.add(self.ollama_line({channel: text}), channel, text, wait)
        self.finish(self.ollama_line({}, done=True))

    def ollama_whole(self):
        self.add(self.ollama_line(self.texts(), done=True))

    # Cohere v2.

    def cohere_usage(self):
        counts = {"input_tokens": self.usage["input"], "output_tokens": self.usage["output"]}
        return {"billed_units": counts, "tokens": counts}

    def cohere_v2(self):
        def event(kind, **members):
            return self.sse({"type": kind, **members}, kind)

        self.add(event("message-start", id="c1", delta={"message": {"role": "assistant", "content": []}}))
        start = {"message": {"content": {"type": "text", "text": ""}}}
        self.add(event("content-start", index=0, delta=start))
        for _, pieces in self.runs():
            for text, wait in pieces:
                delta = {"message": {"content": {"text": text}}}
                self.add(event("content-delta", index=0, delta=delta), "answer", text, wait)
        self.add(event("content-end", index=0))
        self.finish(event("message-end", delta={"finish_reason": "COMPLETE", "usage": self.cohere_usage()}))

    def cohere_v2_whole(self):
        message = {"role": "assistant", "content": [{"type": "text", "text": self.texts()["answer"]}]}
        self.add(self.json({"id": "c1", "finish_reason": "COMPLETE", "message": message, "usage": self.cohere_usage()}))


class Backend:
    def __init__(self, cases):
        self.cases = {case["id"]: case for case in cases}
        self.truth = {}

    async def serve(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
                await reader.readexactly(int(headers.get("content-length", 0)))
                if lines[0].startswith("GET /truth"):
                    body = json.dumps(self.truth).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
                elif not await self.play(self.cases[headers["x-case"]], writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def play(self, case, writer):
        """Sends the answer. Returns False if the connection must be lost."""
        asked = time.monotonic()
        # Each chunk with text: channel, text, time of the write, and bytes of the body up to its end.
        truth = self.truth[case["id"]] = {"asked": asked, "chunks": [], "ended": None, "bytes": 0}
        if case["end"] == "refused":
            body = json.dumps({"error": {"type": "overloaded_error", "message": "later"}}).encode()
            head = f"HTTP/1.1 {case['status']} No\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            truth["ended"] = time.monotonic()
            return True
        chunks = Writer(case).write()
        if not case["stream"]:
            await asyncio.sleep(sum(wait for _, _, wait in case["pieces"]))
            (body, *_), = chunks
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            truth |= {"ended": time.monotonic(), "bytes": len(body)}
            return True
        kind = "application/x-ndjson" if case["dialect"] == "ollama" else "text/event-stream"
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        due = asked
        for data, channel, text, wait in chunks:
            due += wait
            if wait:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            at = time.monotonic()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
            truth["bytes"] += len(data)
            if channel:
                truth["chunks"].append((channel, text, at, truth["bytes"]))
        truth["ended"] = time.monotonic()
        if case["end"] == "cut":
            await asyncio.sleep(0.02)
            writer.transport.abort()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


async def main():
    with open(sys.argv[1]) as file:
        backend = Backend(json.load(file))
    server = await asyncio.start_server(backend.serve, "127.0.0.1", 0, backlog=512)
    print(f"listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
