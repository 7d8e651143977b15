"""Writes inputs for the fuzz targets, made from the fixtures of the tests, into a folder."""

import pathlib
import sys

root = pathlib.Path(__file__).resolve().parent.parent
out = pathlib.Path(sys.argv[1])

# The order of the lists in fuzz_targets/wire.rs.
DIALECTS = (
    "openai_chat openai_completions openai_responses openai_realtime anthropic anthropic_complete gemini "
    "bedrock_converse bedrock_invoke ollama cohere_v1 cohere_v2 tgi embeddings rerank"
).split()
KINDS = {".sse": 0, ".ndjson": 1, ".json": 2, ".bin": 3, ".ws": 5}


def write(target, name, data):
    folder = out / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data[:4096])


for fixture in sorted((root / "tests/fixtures").rglob("*")):
    kind = KINDS.get(fixture.suffix)
    if not fixture.is_file() or kind is None or fixture.name.endswith(".expected.json"):
        continue
    body = fixture.read_bytes()
    name = f"{fixture.parent.name}-{fixture.name}"
    write("wire", name, bytes([DIALECTS.index(fixture.parent.name), kind, 0, 7]) + body)
    write("inject", name, bytes([9]) + body)
    write("counter", name, bytes([3]) + body)
    write("chunked", name, bytes([5]) + b"%x\r\n" % len(body[:512]) + body[:512] + b"\r\n0\r\nx-a: b\r\n\r\n")

for path in ("/v1/chat/completions", "/v1/messages", "/v1beta/models/m:streamGenerateContent?alt=sse", "/model/m/converse"):
    head = b"x-session-id:s\nuser-agent:codex_cli\nbaggage:session.id=a,user.id=b\ntraceparent:00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"
    body = b'{"model":"m","stream":true,"user":"u","metadata":{"session_id":"s"},"messages":[{"role":"user","content":"hi"}]}'
    write("request", path.replace("/", "_"), b"\0".join((path.encode(), head, body)))

write("config", "proxy-config.toml", (root / "proxy-config.toml").read_bytes())
text = (root / "proxy-config.toml").read_text()
plain = "\n".join(line.removeprefix("# ") if line.startswith("# [") or " = " in line else line for line in text.splitlines())
write("config", "every-key.toml", plain.encode())
