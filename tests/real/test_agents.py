"""Real agents through the proxy: each session is recognised, and its sums match the backend and the agent."""

import dataclasses
import json
import os
import pathlib
import subprocess

import pytest

import scripted
from otlp import eventually

pytestmark = pytest.mark.part("agents")

HERE = pathlib.Path(__file__).parent
CACHE = HERE.parent.parent / ".cache/real"
NODE = CACHE / "agents"
PYTHON = CACHE / "agents-python/bin/python"
TIMEOUT = 300
SONNET = "claude-sonnet-4-6"
GPT = "gpt-5.1"
# US dollars per million tokens by the providers' price lists: input, cache read, cache write for minutes and for an
# hour, output.
PRICES = {SONNET: (3.0, 0.3, 3.75, 6.0, 15.0), GPT: (1.25, 0.125, 0, 0, 10.0), "gpt-4.1-mini": (0.4, 0.1, 0, 0, 1.6)}


@dataclasses.dataclass
class AgentHome:
    """A clean home, a working folder, and the proxy that the agent uses."""

    home: pathlib.Path
    work: pathlib.Path
    gauge: object

    def run(self, *command, **variables):
        """Returns the program's output. Its environment has only PATH of this machine."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), **variables}
        done = subprocess.run(
            [str(part) for part in command], env=environment, cwd=self.work, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=TIMEOUT,
        )
        assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def session(self, name, count):
        """Returns the proxy's sum of a session of `count` calls, and the calls, oldest first. The proxy stores calls
        a moment after their end."""

        def whole():
            listed = json.loads(self.gauge.scrape(f"/api/v1/sessions?session={name}"))["sessions"]
            return listed if sum(session["calls"] for session in listed) >= count else None

        listed = eventually(whole, f"{count} calls of {name}")
        assert [session["id"] for session in listed] == [name]
        calls = json.loads(self.gauge.scrape(f"/api/v1/sessions/{name}?limit=1000"))["calls"]
        composed(calls)
        return listed[0], sorted(calls, key=lambda call: call["offset"])


PARTS = ("system", "tool_schemas", "user", "assistant", "reasoning", "tool_calls", "tool_results", "other")


def composed(calls):
    """Asserts that the parts of each prompt are known, and that the tools that it defines have names."""
    for call in calls:
        prompt = call["prompt"]
        assert prompt and prompt["user"] > 0, call
        assert sum(prompt[part] for part in PARTS) > prompt["user"] or not prompt["tools"], prompt
        assert all(tool["name"] for tool in prompt["tools"]), prompt
        assert sum(tool["schema"] for tool in prompt["tools"]) <= prompt["tool_schemas"], prompt


def tools_of(call):
    return {tool["name"] for tool in call["prompt"]["tools"]}


@pytest.fixture
def place(tmp_path):
    def make(gauge):
        home, work = tmp_path / "home", tmp_path / "work"
        home.mkdir()
        work.mkdir()
        return AgentHome(home, work, gauge)

    return make


@pytest.fixture
def simulated(place, simulator_gauge, simulator):
    """An agent home in front of the simulated backend, and the backend's truth since then."""
    known = {call["id"] for call in truth(simulator_gauge)}
    made = place(simulator_gauge)
    return made, lambda: [call for call in truth(simulator_gauge) if call["id"] not in known]


def truth(gauge):
    return json.loads(subprocess.run(["curl", "-sSf", f"{gauge.url}/sim/truth?limit=1000"], capture_output=True, check=True).stdout)


def priced(model, *tokens):
    return sum(count * price for count, price in zip(tokens, PRICES[model], strict=True)) / 1e6


def agrees(session, calls, model):
    """Asserts that the proxy's sum of a session equals the sum of the backend's calls."""
    used = [call["usage"] for call in calls]
    total = {kind: sum(one[kind] or 0 for one in used) for kind in ("input", "cached_input", "cache_write", "output")}
    fresh = total["input"] - total["cached_input"] - total["cache_write"]
    assert (session["calls"], session["errors"], session["unpriced_calls"]) == (len(calls), 0, 0)
    assert session["tokens"]["input"] == total["input"]
    assert session["tokens"]["output"] == total["output"]
    cost = priced(model, fresh, total["cached_input"], total["cache_write"], 0, total["output"])
    assert session["cost_usd"] == pytest.approx(cost, rel=1e-9)
    assert total["output"] > 0 and cost > 0
    return total


def claude(place, *arguments, url):
    variables = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "ANTHROPIC_MODEL": SONNET}
    variables |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1"}
    return json.loads(place.run(NODE / "node_modules/.bin/claude", "-p", *arguments, "--output-format", "json", **variables))


def test_two_turns_of_claude_code_are_one_session_with_its_own_cost(simulated):
    place, since = simulated
    first = claude(place, "Say something of boats", url=place.gauge.url)
    second = claude(place, "And now?", "--resume", first["session_id"], url=place.gauge.url)
    assert first["session_id"] == second["session_id"]
    session, calls = place.session(first["session_id"], len(since()))
    agrees(session, since(), SONNET)
    assert session["cost_usd"] == pytest.approx(first["total_cost_usd"] + second["total_cost_usd"], rel=1e-9)
    assert {call["agent"].split("/")[0] for call in calls} == {"claude-cli"}
    assert {call["parent_agent"] for call in calls} == {None}
    assert session["user"] and len(session["user"]) == 32


def test_a_subagent_of_claude_code_belongs_to_the_session_and_knows_its_parent(place, gauge):
    with scripted.scripted() as backend:
        here = place(gauge("subagent-gauge", backend.url))
        result = claude(here, "Ask somebody about the boats", url=here.gauge.url)
        assert sorted(line for line, _ in backend.said) == ["result", "start", "subagent"]
        used = [scripted.USAGE[line] for line, _ in backend.said]
    session, calls = here.session(result["session_id"], 3)
    sums = [sum(kind) for kind in zip(*used)]
    assert session["calls"] == 3
    assert session["tokens"]["input"] == sum(sums[:4])
    assert session["tokens"]["cached_input"] == sums[1]
    assert session["tokens"]["output"] == sums[4]
    assert session["cost_usd"] == pytest.approx(priced(SONNET, *sums), rel=1e-9)
    assert session["cost_usd"] == pytest.approx(result["total_cost_usd"], rel=1e-9)
    program, subagent, again = calls
    assert {"Bash", "Read"} <= tools_of(program)
    [asked] = again["wait"]["tools"]
    assert again["wait"]["kind"] == "tools" and asked in ("Agent", "Task") and asked in tools_of(program)
    assert program["agent"] == again["agent"] and program["agent"].startswith("claude-cli/")
    assert program["parent_agent"] is None
    assert subagent["agent"] not in (None, program["agent"])
    assert subagent["parent_agent"] == program["agent"]
    assert set(session["agents"]) == {program["agent"], subagent["agent"]}


def events_of(printed):
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def test_two_turns_of_codex_are_one_session(simulated):
    place, since = simulated
    (place.home / ".codex").mkdir()
    (place.home / ".codex/config.toml").write_text(
        f'model = "{GPT}"\nmodel_provider = "gauge"\n[model_providers.gauge]\nname = "gauge"\n'
        f'base_url = "{place.gauge.url}/v1"\nwire_api = "responses"\nenv_key = "GAUGE_KEY"\n'
    )
    codex = [NODE / "node_modules/.bin/codex", "exec"]
    common = ["--skip-git-repo-check", "--json"]
    variables = {"GAUGE_KEY": "none"}
    first = events_of(place.run(*codex, *common, "Say something of boats", **variables))
    thread = next(event["thread_id"] for event in first if event["type"] == "thread.started")
    second = events_of(place.run(*codex, "resume", *common, thread, "And now?", **variables))
    session, calls = place.session(thread, 2)
    total = agrees(session, since(), GPT)
    assert session["calls"] == 2
    # A resumed thread continues its counts.
    used = next(event["usage"] for event in second if event["type"] == "turn.completed")
    assert (used["input_tokens"], used["output_tokens"]) == (total["input"], total["output"])
    assert session["agents"] == ["codex_exec"]
    assert {call["parent_agent"] for call in calls} == {None}


PYTHON_AGENTS = {
    "openai_agents": (GPT, "Agents/Python"),
    "pydantic_ai": ("gpt-4.1-mini", "pydantic-ai/"),
    "langchain": ("gpt-4.1-mini", "river-guide"),
}


def of_itself(session, result):
    """Asserts that the proxy's sum equals the agent's."""
    assert session["calls"] == result["calls"] == 2
    assert (session["tokens"]["input"], session["tokens"]["output"]) == (result["input"], result["output"])


@pytest.mark.parametrize("framework", PYTHON_AGENTS)
def test_a_conversation_by_a_framework_is_one_session(simulated, framework):
    place, since = simulated
    model, agent = PYTHON_AGENTS[framework]
    name = f"{framework}-session"
    printed = place.run(PYTHON, HERE / "agents/conversation.py", framework, place.gauge.url, name)
    session, _ = place.session(name, 2)
    agrees(session, since(), model)
    of_itself(session, json.loads(printed.splitlines()[-1]))
    assert len(session["agents"]) == 1 and session["agents"][0].startswith(agent)
    if framework == "pydantic_ai":
        assert len(session["user"]) == 32, "hashed"
    if framework == "langchain":
        assert (session["experiment"], session["variant"]) == ("prompts", "short")


@pytest.fixture(scope="module")
def guessing(gauge, simulator, logs):
    config = logs / "guessing.toml"
    ways = f'[[upstream]]\nname = "sim"\nurl = "{simulator}"\n[[route]]\nupstream = "sim"\n'
    config.write_text(f"[attribution]\nguess_sessions = true\n{ways}")
    return gauge("guessing", config=config)


@pytest.mark.parametrize("framework", PYTHON_AGENTS)
def test_two_conversations_by_a_framework_that_names_no_session_are_two_guessed_ones(place, guessing, framework):
    here = place(guessing)
    known = {call["id"] for call in guessing.calls()}
    for _ in range(2):
        here.run(PYTHON, HERE / "agents/conversation.py", framework, guessing.url, "-")
    new = lambda: [call for call in guessing.calls() if call["id"] not in known]  # noqa: E731
    eventually(lambda: len(new()) >= 4, "four calls")
    calls = sorted(new(), key=lambda call: call["started_at"])
    assert [call["session_guess"] for call in calls] == ["prefix"] * 4
    one, again, other, then = (call["session"] for call in calls)
    assert one == again != other == then


def test_a_conversation_by_the_vercel_sdk_is_one_session_by_its_prompt_cache_key(simulated):
    place, since = simulated
    printed = place.run("node", NODE / "vercel.mjs", place.gauge.url, "vercel-session")
    session, _ = place.session("vercel-session", 2)
    agrees(session, since(), GPT)
    of_itself(session, json.loads(printed))
    assert session["agents"][0].startswith("ai-sdk/openai/")
