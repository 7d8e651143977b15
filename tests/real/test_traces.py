"""Traces without text: AIPerf and guidellm replay them, and the shares that prompts have in common are those that a
real engine takes from its cache."""

import json
import os
import random
import re
import subprocess
import time
import urllib.request

import pytest

from conftest import HERE, MODEL, PROJECT
from processes import answers, free_port, running

TOOLS = PROJECT / ".cache/real/bench-tools"
BLOCK = 64
TURNS = 4
WORDS = sorted(set(re.findall(r"[a-z]{3,9}", (PROJECT / "docs/measurement.md").read_text())))


def words(dice, count):
    return " ".join(dice.choice(WORDS) for _ in range(count))


def ask(url, messages, session, agent="coder"):
    """Sends a call, and returns its usage and the answer."""
    body = json.dumps({"model": "tiny", "messages": messages, "max_tokens": 16, "cache_prompt": True}).encode()
    headers = {"content-type": "application/json", "x-tokengauge-session": session, "x-tokengauge-agent": agent}
    request = urllib.request.Request(url + "/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        answer = json.load(response)
    return answer, answer["choices"][0]["message"].get("content") or ""


def converse(url, dice, session, system, turns):
    """Makes the turns of an agent, each with the whole conversation, and returns the answers of the server."""
    messages, found = [{"role": "system", "content": system}], []
    for _ in range(turns):
        messages.append({"role": "user", "content": words(dice, 400)})
        answer, text = ask(url, messages, session)
        found.append(answer)
        messages.append({"role": "assistant", "content": text})
    return found


def proxy(gauge, folder, name, upstream):
    """A proxy with a ledger, and with hashes of blocks."""
    config = folder / f"{name}.toml"
    ledger = folder / f"{name}.sqlite"
    tables = f'[[upstream]]\nname = "up"\nurl = "{upstream}"\n[[route]]\nupstream = "up"\n'
    config.write_text(f'{tables}[ledger]\npath = "{ledger}"\n[analysis]\nprompt_blocks = true\n')
    return gauge(name, config=config), ledger


def export(tokengauge, ledger, form, calls, file):
    """Exports once the ledger has all calls."""
    deadline = time.monotonic() + 60
    while True:
        command = [tokengauge, "export", "--format", form, "--since", "1h", "--ledger", ledger, "-o", file]
        subprocess.run(command, check=True, capture_output=True)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        found = sum(len(line["requests"]) for line in lines) if form == "weka" else len(lines)
        if found >= calls:
            return lines
        assert time.monotonic() < deadline, f"{found} of {calls} calls"
        time.sleep(0.2)


def tool(command, folder):
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "HF_HUB_OFFLINE": "1", "TIKTOKEN_CACHE_DIR": str(TOOLS / "tiktoken")}
    environment["AIPERF_SERVICE_HEARTBEAT_MISSED_THRESHOLD"] = "40"
    done = subprocess.run([str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
made = Tokenizer(models.BPE())
made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
made.train_from_iterator(open(sys.argv[2]), trainers.BpeTrainer(vocab_size=4000, special_tokens=["<e>"], initial_alphabet=alphabet))
PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<e>").save_pretrained(sys.argv[1])
"""


@pytest.fixture(scope="module")
def traces(gauge, tokengauge, simulator, tmp_path_factory):
    """Traces of two conversations with the simulator that have a system prompt in common."""
    folder = tmp_path_factory.mktemp("traces")
    traced, ledger = proxy(gauge, folder, "traced", simulator)
    dice = random.Random(54)
    system = words(dice, 500)
    for session in ("one", "two"):
        converse(traced.url, dice, session, system, TURNS)
    files = {form: folder / f"{form}.jsonl" for form in ("mooncake", "weka")}
    lines = {form: export(tokengauge, ledger, form, 2 * TURNS, file) for form, file in files.items()}
    return folder, files, lines


def test_traces_have_the_shape_of_the_conversations(traces):
    _, _, lines = traces
    for line in lines["mooncake"]:
        assert len(line["hash_ids"]) == -(-line["input_length"] // BLOCK)
        assert "session_id" not in line
    first, second = (conversation["requests"] for conversation in lines["weka"])
    assert len(first) == len(second) == TURNS
    for earlier, later in zip(first, first[1:], strict=False):
        shared = sum(one == other for one, other in zip(earlier["hash_ids"], later["hash_ids"], strict=False))
        assert shared >= len(earlier["hash_ids"]) - 1, "a turn begins with the prompt of the previous turn"
    ids = [line["hash_ids"] for line in lines["mooncake"]]
    assert any(one[:5] == other[:5] and one[-2] != other[-2] for one in ids[:TURNS] for other in ids[TURNS:])


@pytest.mark.part("bench-tools")
def test_aiperf_replays_the_traces(traces, simulator, tmp_path):
    _, files, lines = traces
    folder = tmp_path / "conversations"
    folder.mkdir()
    for number, line in enumerate(files["weka"].read_text().splitlines()):
        (folder / f"{number}.json").write_text(line)
    command = [TOOLS / "bin/aiperf", "profile", "-m", "sim-model", "--url", simulator, "--endpoint-type", "chat", "--streaming"]
    command += ["--export-level", "records", "--no-server-metrics", "--no-gpu-telemetry", "--ui", "none", "--tokenizer", "builtin"]
    mooncake = ["--custom-dataset-type", "mooncake_trace", "--isl-block-size", BLOCK, "--fixed-schedule", "--input-file", files["mooncake"]]
    weka = ["--custom-dataset-type", "weka_trace", "--request-count", 2 * TURNS, "--input-file", folder]
    for name, more in (("mooncake", mooncake), ("weka", weka)):
        tool([*command, *more, "--artifact-dir", tmp_path / name], tmp_path)
        calls = [json.loads(line) for line in (tmp_path / name / "profile_export.jsonl").read_text().splitlines()]
        assert len(calls) == 2 * TURNS and not any(call.get("error") for call in calls), name
        lengths = sorted(call["metrics"]["input_sequence_length"]["value"] for call in calls)
        if name == "mooncake":
            assert lengths == sorted(line["input_length"] for line in lines["mooncake"])


@pytest.mark.part("bench-tools")
@pytest.mark.parametrize("kind", ["mooncake", "weka"])
def test_guidellm_replays_the_traces(traces, simulator, tmp_path, kind):
    _, files, _ = traces
    tool([TOOLS / "bin/python", "-c", TOKENIZER, tmp_path / "tokenizer", PROJECT / "docs/measurement.md"], tmp_path)
    data = {"kind": kind, "source": {"kind": "json_file", "path": str(files[kind])}, "hash_id_block_size": BLOCK}
    if kind == "mooncake":
        data["time_scale"] = 0.001  # its timestamps are milliseconds
    command = [TOOLS / "bin/guidellm", "run", "--profile", "kind=replay", "--disable-console", "--data", json.dumps(data)]
    command += ["--backend", f"kind=openai_http,target={simulator},model=sim-model,validate_backend=false"]
    command += ["--tokenizer", f"kind=hf_auto,model={tmp_path / 'tokenizer'}"]
    tool([*command, "--output", f"kind=json,path={tmp_path / 'report.json'}"], tmp_path)
    requests = json.loads((tmp_path / "report.json").read_text())["benchmarks"][0]["requests"]
    assert not requests["errored"] and not requests["incomplete"], requests
    # guidellm may end before it has read the last result (see test_bench_tools.py).
    assert len(requests["successful"]) in (2 * TURNS - 1, 2 * TURNS)


@pytest.fixture(scope="module")
def caching_engine(logs):
    """A real engine that keeps the prompt before, of one conversation at a time."""
    port = free_port()
    command = [HERE / "llama-server", "--model", MODEL, "--alias", "tiny", "--host", "127.0.0.1", "--port", port]
    command += ["--ctx-size", 32768, "--parallel", 1, "--threads", 1, "--seed", 1, "--no-ui"]
    with running(command, logs / "caching-llama-server.log") as process:
        url = f"http://127.0.0.1:{port}"
        process.wait_for(lambda: answers(f"{url}/health"), "health")
        yield url


def predicted(prompts, capacity):
    """The share of each prompt that a cache of the blocks used last already has."""
    kept, shares = {}, []
    for ids, length in prompts:
        hits = next((at for at, one in enumerate(ids) if one not in kept), len(ids))
        shares.append(min(BLOCK * hits, length) / length)
        for one in ids:
            kept.pop(one, None)
            kept[one] = True
        while len(kept) > capacity:
            del kept[next(iter(kept))]
    return shares


def test_shared_blocks_predict_what_a_real_engine_takes_from_its_cache(gauge, tokengauge, caching_engine, tmp_path):
    traced, ledger = proxy(gauge, tmp_path, "traced-engine", caching_engine)
    dice = random.Random(7)
    system = words(dice, 7_800)
    found = converse(traced.url, dice, "one", system, TURNS)
    found += converse(traced.url, dice, "two", system, 2)
    found += converse(traced.url, dice, "three", words(dice, 7_800), 2)
    lines = export(tokengauge, ledger, "mooncake", len(found), tmp_path / "trace.jsonl")
    # The cache of the engine has as many blocks as its context.
    shares = predicted([(line["hash_ids"], line["input_length"]) for line in lines], 32768 // BLOCK)
    compared = 0
    for line, share, answer in zip(lines, shares, found, strict=True):
        usage = answer["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"]
        if line["input_length"] >= 8_000:
            compared += 1
            assert abs(share - cached) <= 0.03 + BLOCK / line["input_length"], (share, cached, usage)
    assert compared >= 6
    assert max(shares) > 0.9 and min(shares) < 0.1
