"""Writes inputs for the fuzz targets into a folder, from the fixtures of the tests and by hand."""

import json
import pathlib
import re
import struct
import sys
import zlib

root = pathlib.Path(__file__).resolve().parent.parent
out = pathlib.Path(sys.argv[1])

# In the order of the enum, because the targets use its numbers. The last two have no fixtures.
VARIANTS = re.findall(r"^    (\w+),$", (root / "crates/core/src/dialect.rs").read_text().split("pub enum Dialect {")[1].split("\n}")[0], re.M)
DIALECTS = [re.sub(r"(?<!^)(?=[A-Z])", "_", variant).lower() for variant in VARIANTS]
KINDS = {".sse": 0, ".ndjson": 1, ".json": 2}


def write(target, name, data):
    folder = out / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data[:4096])


def frame(kind, payload):
    head = b""
    for name, value in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event")):
        head += bytes([len(name)]) + name.encode() + b"\7" + struct.pack(">H", len(value)) + value.encode()
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    whole = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return whole + struct.pack(">I", zlib.crc32(whole))


def socket(payload, mask):
    length = len(payload)
    size = bytes([length]) if length < 126 else b"\x7e" + struct.pack(">H", length)
    size = bytes([size[0] | (0x80 if mask else 0)]) + size[1:]
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)) if mask else payload
    return b"\x81" + size + mask + masked


def bodies():
    """Yields every fixture body: dialect, name, framing, bytes."""
    for fixture in sorted((root / "tests/fixtures").rglob("*")):
        dialect, suffix = fixture.parent.name, fixture.suffix
        if dialect not in DIALECTS or fixture.name.endswith((".events", ".expected.json")):
            continue
        body, name = fixture.read_bytes(), f"{dialect}-{fixture.name}"
        if suffix in (".frames", ".chunks"):
            lines = [line.split(b" ", 1) for line in body.splitlines() if b" " in line]
            yield dialect, name, 3, b"".join(frame(kind.decode(), payload) for kind, payload in lines)
        elif suffix in KINDS:
            yield dialect, name, KINDS[suffix], body
            if dialect == "openai_realtime":
                for kind, mask in ((5, b""), (5, b"\1\2\3\4"), (6, b"")):
                    yield dialect, f"{name}-{kind}-{len(mask)}", kind, b"".join(socket(line, mask) for line in body.splitlines())


def gzipped(body):
    packer = zlib.compressobj(wbits=31)
    return packer.compress(body) + packer.flush()


for dialect, name, kind, body in bodies():
    number = DIALECTS.index(dialect)
    write("wire", name, bytes([number, kind, 0, 7]) + body)
    write("wire", name + "-gzip", bytes([number, kind, 1, 7]) + gzipped(body[:2048]))
    write("wire", name + "-deflate", bytes([number, kind, 2, 5]) + zlib.compress(body[:2048]))
    write("inject", name, bytes([9]) + body)
    write("counter", name, bytes([3]) + body)
    write("chunked", name, bytes([5]) + b"%x\r\n" % len(body[:512]) + body[:512] + b"\r\n0\r\nx-a: b\r\n\r\n")
    events = [line.removeprefix(b"data: ") for line in body.splitlines() if line.lstrip().startswith((b"data: {", b"{"))]
    for how in (0, 1, 2, 3, 4, 4 + 8 * 3, 4 + 8 * 15):
        write("framed", f"{name}-{how}", bytes([number, how, 11, 9]) + b"\n".join(events))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    write("answers", name, bytes([64]) + head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body[:300]) + body[:300] + b"\r\n0\r\nx-sum: 1\r\n\r\n")

# Texts that are hard to count: scripts, marks, emoji, long words, white space, digits, contractions.
TEXTS = ["I'll we're DON'T", "中文字符，標點。", "👩‍👩‍👧‍👦🏳️‍🌈", "e\u0301\u0301 ﬃ ǅ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", " \t\r\n \n\n  x", "1234567 ٣٤٥", "_a/b\\c--d__", "\u00a0\u2028\u3000", "हिन्दी ไทย العربية", "<|endoftext|>"]
for at, text in enumerate(TEXTS):
    write("counter", f"hard-{at}", bytes([at + 1]) + text.encode())

for path in ("/v1/chat/completions", "/v1/messages", "/v1beta/models/m:streamGenerateContent?alt=sse", "/model/m/converse", "/v1/responses", "/api/chat", "/v2/rerank", "/v1/embeddings", "/openai/deployments/d/chat/completions?api-version=1"):
    head = b"x-session-id:s\nuser-agent:codex_cli\nbaggage:session.id=a,user.id=b\ntraceparent:00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"
    body = b'{"model":"m","stream":true,"user":"u","metadata":{"session_id":"s"},"messages":[{"role":"user","content":"hi"}]}'
    write("request", path.replace("/", "_"), b"\0".join((path.encode(), head, body)))
HEADS = (
    b'x-codex-turn-metadata:{"session_id":"s","thread_id":"t"}\noriginator:codex_cli_rs\nx-openai-subagent:review',
    b"x-claude-code-session-id:s\nx-claude-code-agent-id:a\nx-claude-code-parent-agent-id:p",
    b'x-portkey-metadata:{"_user":"u"}\nx-litellm-tags:a,user:u\nhelicone-user-id:u\nx-tokengauge-experiment:a/b/c',
    b"traceparent:00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-00\ntraceparent:cc-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01-x",
)
for at, head in enumerate(HEADS):
    write("request", f"head-{at}", b"\0".join((b"/v1/messages", head, b'{"metadata":{"user_id":"{\\"session_id\\":\\"x\\"}"},"system":[{"text":"a"}]}')))

text = (root / "proxy-config.toml").read_text()
plain = "\n".join(line.removeprefix("# ") if line.startswith("# [") or " = " in line else line for line in text.splitlines())
write("config", "head.toml", text[:4000].encode())
write("config", "every-key.toml", plain.encode())
BASE = '[[upstream]]\nname = "u"\nurl = "http://127.0.0.1:1"\n[[route]]\nupstream = "u"\n'
# Each table of the example by itself, on a complete base.
for at, table in enumerate(re.findall(r"(?m)^# (\[\[[a-z]+\]\]\n(?:#.*\n)+)", text)):
    lines = [re.sub(r"^# ?", "", line) for line in table.splitlines()]
    write("config", f"table-{at}.toml", (BASE + "\n".join(lines)).encode())
for at, sli in enumerate(("ttft = { p95 = \"2s\" }", "error_rate = { at_most = 0.01 }", "output_tps = { at_least = 20 }")):
    write("config", f"slo-{at}.toml", f'{BASE}[[slo]]\nname = "s{at}"\nobjective = 0.99\nwindow = "30d"\n{sli}\n'.encode())
write("config", "injector.toml", b'image = "i"\nnative_sidecar = "auto"\nkubernetes_version = "1.31"\n[base_urls]\nA = "/a"\n')
write("config", "openslo.yaml", b"apiVersion: openslo/v1\nkind: SLO\nmetadata: {name: a}\nspec:\n  service: s\n  timeWindow: [{duration: 30d, isRolling: true}]\n  budgetingMethod: Occurrences\n  indicator: {metadata: {name: i}, spec: {thresholdMetric: {metricSource: {type: Prometheus, spec: {query: 'tokengauge_time_to_first_token_seconds{model=\"m\"}'}}}}}\n  objectives: [{op: lte, value: 2, target: 0.99}]\n")

for pod in sorted((root / "tests/fixtures/pods").glob("*.yaml")):
    write("manifests", pod.name, pod.read_bytes())
    body = pod.read_text()
    write("manifests", "deployment-" + pod.name, ("# kept\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  template:\n" + "\n".join("    " + line for line in body.splitlines() if not line.startswith(("apiVersion", "kind"))) + "\n---\nkind: Service\n").encode())
PODS = (
    {"metadata": {"annotations": {"tokengauge.dev/inject": "true"}}, "spec": {"containers": [{"name": "agent", "image": "a", "env": [{"name": "OPENAI_BASE_URL", "value": "http://x/v1"}]}]}},
    {"metadata": {"annotations": {"tokengauge.dev/engine-port": "8000", "tokengauge.dev/engine-moves-to": "18000"}}, "spec": {"containers": [{"name": "vllm", "args": ["--port", "8000"], "ports": [{"containerPort": 8000}], "readinessProbe": {"httpGet": {"port": 8000}}}]}},
    {"metadata": {"annotations": {"tokengauge.dev/upstream.a": "http://a", "tokengauge.dev/slo.a": "ttft p95 2s", "tokengauge.dev/workload": "w"}}, "spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "a"}, {"name": "b"}], "volumes": [{"name": "v"}]}},
    {"metadata": {"labels": {"a": "b"}}, "spec": {"hostNetwork": True, "containers": []}},
    {"spec": {"restartPolicy": "Never", "containers": [{"name": "istio-proxy", "image": "i"}]}},
)
for at, pod in enumerate(PODS):
    for how in range(4):
        write("admission", f"pod-{at}-{how}", bytes([how]) + json.dumps(pod).encode())
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "kind": {"kind": "Pod"}, "object": pod}}
    write("admission", f"review-{at}", bytes([4]) + json.dumps(review).encode())

METRICS = (
    'vllm:num_requests_waiting{model_name="m"} 3.0\nvllm:kv_cache_usage_perc{engine="0"} 0.5\nprocess_start_time_seconds 1.7e9\nvllm:request_queue_time_seconds_sum 2\nvllm:request_queue_time_seconds_count 4\n',
    'sglang:num_running_reqs{tp_rank="0"} 1\nsglang:num_running_reqs{tp_rank="1"} 1\nsglang:token_usage 0.1\nsglang:per_stage_req_latency_seconds_sum{stage="prefill_forward"} 2\n',
    'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used"} 4\nnv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"} 8\nnv_trt_llm_request_metrics{request_type="waiting"} 2\n',
    '# HELP a b\n tgi_queue_size 2 1700000000\nllamacpp:requests_deferred{x="}\\"{",} +Inf\ntgi_batch_inference_duration_sum{method="prefill"} NaN\nprocess_start_time_seconds -1\n',
)
for at, metrics in enumerate(METRICS):
    write("engine", f"engine-{at}", metrics.encode())

QUERIES = (
    "/api/v1/calls?limit=7&since=1h&model=gpt-5.1&outcome=complete", "/api/v1/calls?cursor=123", "/api/v1/sessions?sort=cost&limit=3&cursor=5.1",
    "/api/v1/sessions/abc?limit=2&cursor=9", "/api/v1/models?by=model,workload&until=2026-01-31T09:30:00Z", "/api/v1/workloads?user=u&experiment=e",
    "/api/v1/timeseries?metric=ttft&step=5m&since=6h", "/api/v1/capacity?upstream=openai", "/api/v1/streams", "/api/v1/slos", "/api/v1/budgets",
    "/api/v1/about", "/api/v1/openapi.json", "/metrics", "/readyz", "/api/v1/groups?by=agent", "/page/page.js", "/api/v1/calls?agent=%C3%BC&session=",
)
for at, query in enumerate(QUERIES):
    for store in (0, 1):
        write("query", f"query-{at}-{store}", bytes([store]) + query.encode())

ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n2\r\nab\r\n0\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nTrailer: x\r\n\r\n2;a=b\r\nab\r\n0\r\nx: y\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", b"HTTP/1.1 200 OK\r\nConnection: x-a, close\r\nX-A: hop\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX-A: b\r\n folded\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n", b"\r\n\r\nHTTP/1.1 500 \xff\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\nx", b"not HTTP at all", b"",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n",
)
for at, answer in enumerate(ANSWERS):
    write("answers", f"answer-{at}", bytes([at % 3 + 1]) + answer)

# Bytes after a complete response: another response, the beginning of one, and bytes that are not a response.
BEHIND = (b"HTTP/1.1 200 OK\r\nSet-Cookie: planted=1\r\nContent-Length: 7\r\n\r\nplanted", b"HTTP/1.1 200 OK\r\nSet-Cookie: planted=1\r\nX-Rest: ", b"HTTP/1.1 103 Early Hints\r\nLink: </planted>\r\n\r\n", b"\r\n", b"planted")
WHOLE = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
)
for at, whole in enumerate(WHOLE):
    for behind_at, behind in enumerate(BEHIND):
        write("poisoning", f"behind-{at}-{behind_at}", bytes([(behind_at * 40 + at * 6 + (at & 1)) % 256]) + whole + behind)

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n"
REQUESTS = (
    b"GET /open/a HTTP/1.1\r\nHost: h\r\n\r\n", b"POST /open HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab", b"POST /open/b?c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nx: y\r\n\r\n",
    b"POST /open HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN, b"POST /open HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 33\r\n\r\n" + HIDDEN,
    b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n", b"GET http://elsewhere/open/a HTTP/1.1\r\nHost: h\r\n\r\n", b"GET /open/../a HTTP/1.1\r\nHost: h\r\n\r\n", b"GET /open/%2e%2e/a HTTP/1.1\r\nHost: h\r\n\r\n", b"GET //open//..//x HTTP/1.1\r\nHost: h\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", b"GET /open HTTP/1.0\r\n\r\n", b"POST /open HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", b"GET /open HTTP/1.1\r\nHost: h\r\nConnection: host, x-a\r\nX-A: b\r\nTE: trailers\r\n\r\n",
    b"GET /open HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", b"GET /open HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", b"POST /open HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", b"GET /opening HTTP/1.1\r\nHost: h\r\n\r\n",
    b"TRACE /open HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\n\r\n", b"HEAD /open/x HTTP/1.1\r\nHost: h\r\n\r\n" + b"DELETE /open/y HTTP/1.1\r\nHost: h\r\n\r\n",
)
for at, request in enumerate(REQUESTS):
    write("smuggling", f"request-{at}", bytes([at % 5 + 1]) + request)
