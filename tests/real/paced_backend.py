"""A backend that streams at a constant pace and records by its own clock which tokens it sent in which second:
`paced_backend.py`. The path sets the pace: `/{name}/{streams of}/{tokens}/{every
ms}/{chunks}/v1/chat/completions`, or `/{name}/whole/{tokens}/{after ms}/0/…` for one body. `GET /truth` returns
`{name: {"streamed": {second: tokens}, "whole": [[from, to, tokens], …]}}` in seconds since 1970. A word is a
token. A path without a name has the one stream that benchmark tools are compared on (see BENCH)."""

import asyncio
import collections
import json
import time

TRUTH = collections.defaultdict(lambda: {"streamed": collections.Counter(), "whole": []})
# One stream whose parts differ enough to show what a tool counts. The role arrives `role` seconds after the request.
# Chunks of four words (five tokens in the engine's count) arrive from `first` on every `every`, and the finish reason
# `tail` after the last.
BENCH = {"role": 0.1, "first": 0.3, "every": 0.04, "tail": 0.2, "chunks": 31, "words": 4, "reported": 5}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(delta, reason=None):
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    data = b"data: " + json.dumps({"id": "c", "model": "paced", "choices": [choice]}).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


async def stream(writer, name, tokens, every, chunks):
    writer.write(HEAD)
    data, came = chunk({"content": " word" * tokens}), TRUTH[name]["streamed"]
    loop = asyncio.get_running_loop()
    due = loop.time()
    for _ in range(chunks):
        due += every
        await asyncio.sleep(due - loop.time())
        came[int(time.time())] += tokens
        writer.write(data)
        await writer.drain()
    end = b"data: [DONE]\n\n"
    writer.write(chunk({}, "stop") + b"%x\r\n%s\r\n0\r\n\r\n" % (len(end), end))


async def bench(writer):
    loop, plan = asyncio.get_running_loop(), BENCH
    due = loop.time()

    async def send(after, delta, reason=None, tokens=0):
        nonlocal due
        due += after
        await asyncio.sleep(due - loop.time())
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
        usage = {"prompt_tokens": 20, "completion_tokens": tokens, "total_tokens": 20 + tokens}
        data = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "paced", "choices": choices, "usage": usage}
        event = b"data: " + json.dumps(data).encode() + b"\n\n"
        writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        await writer.drain()

    writer.write(HEAD)
    await send(plan["role"], {"role": "assistant", "content": ""})
    for index in range(plan["chunks"]):
        after = plan["every"] if index else plan["first"] - plan["role"]
        await send(after, {"content": " word" * plan["words"]}, tokens=plan["reported"] * (index + 1))
    await send(plan["tail"], {}, "stop", plan["reported"] * plan["chunks"])
    await send(0, None, tokens=plan["reported"] * plan["chunks"])
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


async def whole(writer, name, tokens, after):
    began = time.time()
    await asyncio.sleep(after)
    message = {"role": "assistant", "content": " word" * tokens}
    body = json.dumps({"model": "paced", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    await writer.drain()
    TRUTH[name]["whole"].append([began, time.time(), tokens])


async def serve(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, path, _ = head.split("\r\n")[0].split(" ")
            if method == "GET":
                body = json.dumps(TRUTH).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            else:
                length = next(line for line in head.lower().split("\r\n") if line.startswith("content-length:"))
                await reader.readexactly(int(length.split(":")[1]))
                if path.startswith("/v1/"):
                    await bench(writer)
                    continue
                _, name, kind, tokens, millis, chunks, *_ = path.split("/")
                if kind == "whole":
                    await whole(writer, name, int(tokens), int(millis) / 1000)
                else:
                    await stream(writer, name, int(tokens), int(millis) / 1000, int(chunks))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=4096, limit=1 << 20)
    print("listening on http://127.0.0.1:%d" % server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
