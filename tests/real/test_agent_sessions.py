"""Simulated sessions of agents with a known truth: what each prompt consists of, what the agent waited for, which prompts
missed the cache and why, retries, repetition and scores. Texts are counted by a JavaScript tokenizer."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import os
import random
import time
import urllib.parse
import urllib.request

import pytest

from agent_backend import agent_backend
from gauge import Gauge
from processes import running
from tokens import counts

pytestmark = pytest.mark.part("alone")

SESSIONS = int(os.environ.get("TOKENGAUGE_AGENT_SESSIONS", 100))
AT_ONCE = 8
NEAR = 0.05  # seconds between the proxy's and the agent's time of the same wait
PARTS = ("system", "user", "assistant", "tool_calls", "tool_results")
WORDS = """the river carries boats with grain and timber past towns on its way to the sea function returns value list
index error path file open read write größere Brücken täglich 3,14 河流 运送 粮食 {"k": [1, 2]} café naïve""".split()
TOOLS = ("search", "read_file", "run_tests", "task", "fetch", "edit")
REPEATED = "I will try this again now. "
CONFIG = """
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
token = "{token}"
[ledger]
path = "{ledger}"
[[upstream]]
name = "backend"
url = "{backend}"
[[route]]
upstream = "backend"
[[price]]
model = "*"
upstream = "backend"
input = 2.0
cached_input = 0.2
output = 8.0
"""


TOKEN = "the-token-of-simulated-sessions"


class Proxy(Gauge):
    """A proxy whose admin address takes scores, and therefore needs a token."""

    def scrape(self, path):
        request = urllib.request.Request(self.admin + path, headers={"authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.read().decode()


def words(dice, count):
    return " ".join(dice.choice(WORDS) for _ in range(count))


@dataclasses.dataclass
class Turn:
    """What is true of one call."""

    name: str
    agent: str
    began: float
    ended: float = 0.0
    texts: dict = dataclasses.field(default_factory=dict)
    schemas: dict = dataclasses.field(default_factory=dict)
    new: list = dataclasses.field(default_factory=list)
    resent: list = dataclasses.field(default_factory=list)
    wait: tuple = None
    cause: tuple = None
    retry_of: str = None
    repeats: bool = False
    status: int = 200
    results: int = 0
    human: bool = False


class Agent:
    """One conversation: it is kept neutrally, and rendered for the dialect of each request."""

    def __init__(self, world, dice, session, name, parent=None):
        self.world, self.dice, self.session, self.name, self.parent = world, dice, session, name, parent
        self.dialect = dice.choice(["openai_chat", "anthropic"])
        self.model = f"model-{dice.randint(1, 3)}"
        self.system = words(dice, 900)
        self.tools = [self.schema(tool) for tool in dice.sample(TOOLS, dice.randint(2, 5))]
        self.items = []
        self.last, self.calls, self.answered, self.known_results = None, 0, 0, 0

    def schema(self, name):
        parameters = {"type": "object", "properties": {"query": {"type": "string", "description": words(self.dice, 30)}}}
        return {"name": name, "description": words(self.dice, 25), "parameters": parameters}

    # What is sent.

    def body(self):
        if self.dialect == "anthropic":
            tools = [{"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in self.tools]
            head = {"system": self.system, "max_tokens": 4096}
        else:
            tools = [{"type": "function", "function": tool} for tool in self.tools]
            head = {"stream_options": {"include_usage": True}}
        messages = [message for item in self.items for message in getattr(self, f"{self.dialect}_{item[0]}")(*item[1:])]
        if self.dialect == "openai_chat":
            messages.insert(0, {"role": "system", "content": self.system})
        return {"model": self.model, "stream": True, "tools": tools, "messages": messages} | head

    def openai_chat_user(self, text):
        return [{"role": "user", "content": text}]

    def openai_chat_assistant(self, text, calls):
        made = [{"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])}} for call in calls]
        return [{"role": "assistant", "content": text} | ({"tool_calls": made} if made else {})]

    def openai_chat_results(self, results):
        return [{"role": "tool", "tool_call_id": call["id"], "content": text} for call, text, _ in results]

    def anthropic_user(self, text):
        return [{"role": "user", "content": [{"type": "text", "text": text}]}]

    def anthropic_assistant(self, text, calls):
        made = [{"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]} for call in calls]
        return [{"role": "assistant", "content": [{"type": "text", "text": text}, *made]}]

    def anthropic_results(self, results):
        blocks = [{"type": "tool_result", "tool_use_id": call["id"], "content": text} | ({"is_error": True} if failed else {}) for call, text, failed in results]
        return [{"role": "user", "content": blocks}]

    # What is true of it.

    def truth(self, answer_name):
        turn = Turn(answer_name, self.name, time.monotonic())
        texts = collections.defaultdict(list)
        texts["system"].append(self.system)
        seen = self.known_results
        results = []
        for kind, *item in self.items:
            match kind:
                case "user":
                    texts["user"].append(item[0])
                case "assistant":
                    texts["assistant"].append(item[0])
                    texts["tool_calls"] += [json.dumps(call["arguments"]) for call in item[1]]
                case "results":
                    texts["tool_results"] += [text for _, text, _ in item[0]]
                    results += item[0]
        turn.texts = dict(texts)
        turn.schemas = {tool["name"]: json.dumps(tool) for tool in self.tools}
        turn.resent, turn.new, turn.results = results[:seen], results[seen:], len(results)
        return turn

    def call(self, answer, **true):
        """Sends the conversation; returns what is true of the call."""
        self.calls += 1
        name = f"{self.session}-{self.name}-{self.calls}"
        self.world.backend.answers[name] = {"ttft": self.dice.uniform(0.005, 0.03), "pieces": [], "calls": []} | answer
        headers = {"content-type": "application/json", "x-answer": name, "x-tokengauge-session": self.session, "x-tokengauge-agent": self.name}
        if self.parent:
            headers["x-tokengauge-parent-agent"] = self.parent
        turn = self.truth(name)
        body = json.dumps(self.body())
        path = "/v1/messages" if self.dialect == "anthropic" else "/v1/chat/completions"
        turn.began = time.monotonic()
        with contextlib.closing(http.client.HTTPConnection(urllib.parse.urlsplit(self.world.url).netloc, timeout=60)) as connection:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            response.read()
            turn.status = response.status
        turn.ended = time.monotonic()
        for key, value in true.items():
            setattr(turn, key, value)
        if self.last and not turn.retry_of and (turn.new or turn.human):
            tools = sorted({call["name"] for call, _, _ in turn.new})
            turn.wait = ("tools" if turn.new else "human", turn.began - self.last.ended, tools)
        self.world.turns.append(turn)
        self.last = turn
        if turn.status == 200:
            self.answered += 1
            self.known_results = turn.results
        return turn



class World:
    def __init__(self, backend, gauge):
        self.backend, self.url, self.admin, self.turns = backend, gauge.url, gauge.admin, []


def answer_of(agent, calls=(), text=None):
    text = text or words(agent.dice, 20)
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    return text, {"pieces": pieces, "calls": list(calls)}


def break_cache(agent, dice):
    """Changes what the next prompt begins with; returns the cause and the section that the proxy should find, and what the
    backend does."""
    kind = dice.choice(["system", "tool", "message", "evicted", "model"])
    match kind:
        case "system":
            agent.system = f"It is {dice.randint(10, 23)}:{dice.randint(10, 59)}:{dice.randint(10, 59)}. " + agent.system[20:]
            return ("changed", "system"), {}
        case "tool":
            tool = dice.choice(agent.tools)
            tool["description"] = words(dice, 26)
            return ("changed", f"tool {tool['name']}"), {}
        case "message":
            agent.items[0] = ("user", words(dice, 10) + agent.items[0][1])
            return ("changed", "message 1"), {}
        case "evicted":
            return ("evicted", None), {"evict": True}
        case "model":
            agent.model = f"{agent.model}-other"
            return ("other_model", None), {}


def play(world, number):
    """One session: a main agent, tools, a subagent, people, retries, breaks and an answer that repeats itself."""
    dice = random.Random(20261130 + number)
    session = f"agents-{number:03}"
    main = Agent(world, dice, session, "coder")
    breaks = dice.choice([0, 1, 1, 2])
    for task in range(dice.randint(1, 3)):
        if task > 0:
            time.sleep(dice.uniform(0.06, 0.2))
        # The first message is long: a change in it leaves less than half of the prompt.
        main.items.append(("user", words(dice, 3000 if task == 0 else 40)))
        human = True
        for step in range(dice.randint(1, 4)):
            cause, extra = None, {}
            if breaks and main.answered >= 2 and dice.random() < 0.5:
                breaks -= 1
                cause, extra = break_cache(main, dice)
            retried = None
            if dice.random() < 0.15:
                failed = main.call({"status": 500} | extra, human=human)
                time.sleep(0.01)
                retried, human = failed.name, False
            calls = tool_calls(main, dice)
            text, answer = answer_of(main, calls)
            main.call(answer | extra, cause=cause, retry_of=retried, human=human)
            human = False
            main.items.append(("assistant", text, calls))
            main.items.append(("results", [run_tool(world, dice, main, call) for call in calls]))
        repeats = dice.random() < 0.15
        text, answer = answer_of(main, text=REPEATED * 250 if repeats else None)
        main.call(answer, repeats=repeats)
        main.items.append(("assistant", text, []))
    success = dice.random() < 0.7
    score(world, session, success)
    return session, success


def tool_calls(agent, dice):
    names = [tool["name"] for tool in agent.tools]
    picked = dice.sample(names, min(len(names), dice.choice([1, 1, 2, 3])))
    return [{"id": f"call_{dice.getrandbits(48):012x}", "name": name, "arguments": {"query": words(dice, 6)}} for name in picked]


def run_tool(world, dice, agent, call):
    if call["name"] == "task":
        helper = Agent(world, dice, agent.session, f"helper-{agent.calls}", parent=agent.name)
        helper.items.append(("user", words(dice, 50)))
        text, answer = answer_of(helper)
        helper.call(answer)
        return call, text, False
    time.sleep(dice.uniform(0.02, 0.08))
    return call, words(dice, dice.randint(10, 400)), dice.random() < 0.2


def score(world, session, success):
    body = json.dumps({"session": session, "name": "success", "value": success}).encode()
    request = urllib.request.Request(f"{world.admin}/api/v1/scores", body, {"authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status == 201


@dataclasses.dataclass
class Played:
    gauge: Proxy
    turns: list
    records: dict
    successes: dict


@pytest.fixture(scope="module")
def played(tokengauge, tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents")
    with agent_backend() as backend, contextlib.ExitStack() as stack:
        config, log = folder / "proxy.toml", folder / "calls.jsonl"
        config.write_text(CONFIG.format(ledger=folder / "ledger.sqlite", backend=backend.url, token=TOKEN))
        command = [tokengauge, "run", "--config", config, "--call-log", log]
        proxy = stack.enter_context(running(command, folder / "proxy.log", expected_exit=0))
        traffic = proxy.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)")
        gauge = Proxy(f"http://{traffic}", f"http://{proxy.wait_for_line(r'admin on (127.0.0.1:[0-9]+)')}", log)
        world = World(backend, gauge)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as sessions:
            successes = dict(sessions.map(lambda number: play(world, number), range(SESSIONS)))
        proxy.wait_for(lambda: len(gauge.logged()) >= len(world.turns), "records of all calls")
        proxy.wait_for(lambda: gauge.metric("tokengauge_ledger_records_total") >= len(world.turns), "the ledger to have them")
        count_texts(world.turns)
        yield Played(gauge, world.turns, paired(gauge.logged(), world.turns), successes)


def paired(records, turns):
    """Returns the record of each turn: the calls of an agent are one after the other."""
    conversations = collections.defaultdict(lambda: ([], []))
    for record in records:
        conversations[record["session"], record["agent"]][0].append(record)
    for turn in turns:
        conversations[turn.name.rsplit(f"-{turn.agent}-", 1)[0], turn.agent][1].append(turn)
    pairs = {}
    for key, (theirs, ours) in conversations.items():
        assert len(theirs) == len(ours), key
        theirs.sort(key=lambda record: record["id"])
        ours.sort(key=lambda turn: turn.began)
        pairs |= {turn.name: record for turn, record in zip(ours, theirs)}
    return pairs


def count_texts(turns):
    texts = {text for turn in turns for part in turn.texts.values() for text in part}
    texts |= {text for turn in turns for text in turn.schemas.values()}
    texts |= {text for turn in turns for _, text, _ in turn.new + turn.resent}
    texts = sorted(texts)
    World.tokens = dict(zip(texts, counts(texts)))


def tokens(texts):
    return sum(World.tokens[text] for text in texts)


def answered(played):
    """The turns whose prompt the backend processed. Only these have a composition."""
    for turn in played.turns:
        prompt = played.records[turn.name]["prompt"]
        assert (prompt is None) == (turn.status != 200), turn.name
        if prompt:
            yield turn, prompt


def test_the_parts_of_every_prompt_are_those_that_were_sent(played):
    for turn, prompt in answered(played):
        expected = {part: tokens(turn.texts.get(part, [])) for part in PARTS}
        assert {part: prompt[part] for part in PARTS} == expected, turn.name
        assert prompt["reasoning"] == prompt["other"] == prompt["media"] == 0, turn.name
        schemas = {tool["name"]: tool["schema"] for tool in prompt["tools"] if tool["schema"]}
        assert schemas.keys() == turn.schemas.keys(), turn.name
        for name, schema in turn.schemas.items():
            # Definitions are counted with what separates them, and OpenAI wraps each in an object.
            assert 0 <= schemas[name] - World.tokens[schema] <= 16, (turn.name, name)
        assert 0 <= prompt["tool_schemas"] - sum(schemas.values()) <= 4, turn.name


def test_results_of_tools_are_new_once(played):
    for turn, prompt in answered(played):
        tools = {tool["name"]: tool for tool in prompt["tools"]}
        is_anthropic = played.records[turn.name]["dialect"] == "anthropic"
        for name, tool in tools.items():
            new = [(text, failed) for call, text, failed in turn.new if call["name"] == name]
            resent = [text for call, text, _ in turn.resent if call["name"] == name]
            assert tool["calls"] == len(new), (turn.name, name)
            assert tool["new_results"] == tokens(text for text, _ in new), (turn.name, name)
            assert tool["resent_results"] == tokens(resent), (turn.name, name)
            # OpenAI's chat completions cannot mark a result as an error.
            assert tool["failures"] == (sum(failed for _, failed in new) if is_anthropic else 0), (turn.name, name)


def test_waits_are_those_of_tools_and_of_people(played):
    for turn in played.turns:
        wait = played.records[turn.name]["wait"]
        if turn.wait is None:
            assert wait is None or wait["kind"] == "other", turn.name
            continue
        kind, seconds, tools = turn.wait
        assert (wait["kind"], sorted(set(wait["tools"]))) == (kind, tools), turn.name
        assert abs(wait["seconds"] - seconds) < NEAR, (turn.name, wait, seconds)


def test_every_cache_break_has_its_cause(played):
    wrong, breaks = [], 0
    for turn in played.turns:
        found = played.records[turn.name]["cache_break"]
        expected = turn.cause
        breaks += expected is not None
        if expected is None or expected[0] != "changed":
            assert found is None or found["cause"] != "changed", f"{turn.name}: nothing changed, {found}"
        if (found and (found["cause"], found["section"])) != expected:
            wrong.append((turn.name, expected, found))
    assert breaks >= SESSIONS // 4
    assert len(wrong) <= breaks * 0.05, wrong


def test_a_retry_names_the_call_that_failed(played):
    retries = 0
    for turn in played.turns:
        record = played.records[turn.name]
        expected = turn.retry_of and played.records[turn.retry_of]["id"]
        assert record["retry_of"] == expected, turn.name
        retries += expected is not None
    assert retries > 0


def test_only_an_answer_that_repeats_itself_is_flagged(played):
    for turn in played.turns:
        found = played.records[turn.name]["repetition"]
        assert (found is not None) == turn.repeats, (turn.name, found)
        if found:
            assert found["start"] < 64 and found["share"] > 0.9, (turn.name, found)
    assert any(turn.repeats for turn in played.turns)


def test_the_ledger_and_the_api_have_what_the_call_log_has(played):
    logged = {record["id"]: record for record in played.records.values()}
    calls, cursor = [], ""
    while cursor is not None:
        page = json.loads(played.gauge.scrape(f"/api/v1/calls?limit=1000&since=1h{cursor and '&cursor=' + cursor}"))
        calls += page["calls"]
        cursor = page["next_cursor"]
    assert len(calls) == len(logged)
    for call in calls:
        for field in ("prompt", "retry_of"):
            assert call[field] == logged[call["id"]][field], (call["id"], field)
        for field in ("wait", "cache_break", "repetition"):
            assert (call[field] is None) == (logged[call["id"]][field] is None), (call["id"], field)


def test_sessions_have_their_scores(played):
    for session, success in played.successes.items():
        answer = json.loads(played.gauge.scrape(f"/api/v1/sessions/{session}"))
        scores = {score["name"]: score["value"] for score in answer["scores"]}
        assert bool(scores["success"]) == success, session
