"""`tokengauge top` on a real pseudo-terminal, and `tokengauge report` of a running proxy."""

import contextlib
import fcntl
import itertools
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time

import pytest

import traffic
from conftest import ANY_PORT
from gauge import Gauge
from processes import free_port, running

TIMEOUT = 60
# Calls of the demo to wait for before the test.
FINISHED_CALLS = 20


# Parts of the output: a cursor position, another control sequence, a character.
PIECES = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[[0-9;?]*[A-Za-z]|\x1b[^\[]|(.)", re.DOTALL)
ROWS, COLUMNS = 30, 120


class Terminal:
    """A program on a pseudo-terminal, and its screen."""

    def __init__(self, command, rows=ROWS, columns=COLUMNS):
        self.rows, self.columns = rows, columns
        self.child, self.master = pty.fork()
        if self.child == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(command[0], [str(part) for part in command])
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.written = ""

    def screen(self):
        """Returns the current lines, because the program writes only changes."""
        cells = [[" "] * (self.columns + 1) for _ in range(self.rows + 1)]
        row, column = 0, 0
        for place in PIECES.finditer(self.written):
            if place[1]:
                row, column = int(place[1]) - 1, int(place[2]) - 1
            elif place[3] and row < self.rows and column < self.columns:
                cells[row][column] = place[3]
                column += 1
        return "\n".join("".join(line).rstrip() for line in cells)

    def until(self, pattern):
        deadline = time.monotonic() + TIMEOUT
        while not re.search(pattern, self.screen()):
            left = deadline - time.monotonic()
            assert left > 0, f"never {pattern!r} on\n{self.screen()}"
            self.read(left)

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            # The other end may be closed, which the waiting code detects.
            with contextlib.suppress(OSError):
                self.written += os.read(self.master, 65536).decode(errors="replace")

    def press(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        """Returns the exit code, once everything has been read."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            self.read(0.05)
            done, status = os.waitpid(self.child, os.WNOHANG)
            if done:
                self.read(0.2)
                return os.waitstatus_to_exitcode(status)
        raise TimeoutError(self.screen())


@pytest.fixture(scope="module")
def demo(tokengauge, logs):
    command = [tokengauge, "demo", "--listen", ANY_PORT, "--admin", f"127.0.0.1:{free_port()}", "--agents", 6]
    with running(command, logs / "terminal-demo.log", expected_exit=0) as process:
        admin = process.wait_for_line(r"admin on (\S+)")
        seen = Gauge("", f"http://{admin}", None)
        process.wait_for(lambda: seen.metric("tokengauge_requests_total") >= FINISHED_CALLS, "finished calls")
        yield admin


def test_top_shows_streams_as_they_come_and_leaves_the_terminal_as_it_was(tokengauge, demo):
    terminal = Terminal([tokengauge, "top", "--admin", demo, "--every", "200ms"])
    terminal.until(r"\d+ streams  \d+ tokens/s")
    terminal.until(r"MODEL +TPS↓")
    terminal.until(r"\n\S+ +\d+\.\d .*demo-")
    terminal.press("2")
    terminal.until(r"from memory[\s\S]*\$/1M OUT")
    terminal.press("3")
    terminal.until(r"BUDGET LEFT[\s\S]*availability")
    terminal.press("/vail")
    terminal.until(r"/vail▏ enter applies the filter")
    terminal.press("\r")
    terminal.until(r"filter: vail")
    # The table ends with an empty row. Why the objective is missed follows.
    rows = itertools.takewhile(str.strip, terminal.screen().split("\n")[3:])
    assert [row.split()[0] for row in rows] == ["availability"]
    terminal.press("q")
    assert terminal.end() == 0
    before, after = (terminal.written.rfind(f"\x1b[?1049{letter}") for letter in "hl")
    assert 0 <= before < after, "the screen from before is back"


@pytest.mark.parametrize(("rows", "columns"), [(24, 80), (50, 200)])
def test_heads_of_every_view_are_whole_at_any_size(tokengauge, demo, rows, columns):
    terminal = Terminal([tokengauge, "top", "--admin", demo, "--every", "200ms"], rows, columns)
    heads = [
        ("1", r"MODEL +TPS↓ +TOKENS .*TIME +SILENT +AGENT"),
        ("2", r"MODEL +CALLS↓ .*ERRORS +TPS P50 +TPS P10 .*TTFT P50 +TTFT P95 .*\$/1M OUT"),
        ("3", r"SLO +TARGET +PROMISE .*BUDGET LEFT↑ +BURN +SPENT IN"),
        ("4", r"SESSION +AGENTS +CALLS .*TPS .*COST +LAST↑"),
        ("5", r"UPSTREAM +CALLS↓ .*TTFT P50 +TTFT P95 .*\$/1M OUT"),
    ]
    for key, head in heads:
        terminal.press(key)
        terminal.until(head)
    wide = {"REASONING", "WORKLOAD"}
    terminal.press("1")
    terminal.until(r"SILENT")
    assert {head for head in wide if head in terminal.screen()} == (wide if columns == 200 else set())
    terminal.press("5")
    terminal.until(r"\n(openai|anthropic|gemini|ollama) ")
    terminal.press("\r")
    terminal.until(r"OUT TOKENS +\d+[\s\S]*WITHOUT PRICE")
    terminal.press("?")
    terminal.until(r"UPSTREAM +CALLS↓")
    terminal.press("?")
    terminal.until(r"show only rows that contain the text you type")
    terminal.press("qq")
    assert terminal.end() == 0


def test_top_says_why_it_cannot_reach_a_proxy(tokengauge):
    terminal = Terminal([tokengauge, "top", "--admin", f"127.0.0.1:{free_port()}"])
    assert terminal.end() == 1
    assert re.search(r"refused.*is the proxy running there\? Set its address with --admin", terminal.written, re.DOTALL)
    piped = subprocess.run([tokengauge, "top"], capture_output=True, text=True)
    assert piped.returncode == 1 and "`tokengauge top` needs a terminal" in piped.stderr


def test_a_report_of_a_running_proxy_equals_those_of_its_ledger_and_call_log(tokengauge, gauge, simulator, logs):
    config, ledger = logs / "report.toml", logs / "report.sqlite"
    ways = f'[[upstream]]\nname = "sim"\nurl = "{simulator}"\n[[route]]\npath = "/sim"\nupstream = "sim"\n'
    config.write_text(f'[ledger]\npath = "{ledger}"\n{ways}')
    proxy = gauge("report", config=config)
    calls = [traffic.chat("sim", f"model-{number % 2}", behave="tokens=60,gap=8ms") for number in range(12)]
    threads = [threading.Thread(target=call.make, args=(proxy.url,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deadline = time.monotonic() + TIMEOUT
    while len(proxy.logged()) < len(calls):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    def report(*options):
        command = [tokengauge, "report", "--since", "1h", "--by", "model,route", "--with-warm-up", *options]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    asked = ["--admin", proxy.admin.removeprefix("http://")]
    deadline = time.monotonic() + TIMEOUT
    while len(proxy.calls()) < len(calls):
        assert time.monotonic() < deadline, "the ledger has them soon after"
        time.sleep(0.05)
    sources = (asked, ["--call-log", proxy.call_log], ["--ledger", ledger])
    live, logged, kept = (json.loads(report(*source, "--format", "json")) for source in sources)
    assert live["groups"] == kept["groups"]
    for one, other in zip(logged["groups"], kept["groups"], strict=True):
        # A ledger stores microseconds.
        assert one["tps"] == pytest.approx(other["tps"], rel=1e-3)
        assert one["tps_reported"] == pytest.approx(other["tps_reported"], rel=1e-3)
        assert one["requests_per_second"] == pytest.approx(other["requests_per_second"], rel=1e-3)
        assert one["estimates"].keys() == other["estimates"].keys()
        for figure, estimate in one["estimates"].items():
            for key, value in other["estimates"][figure].items():
                assert estimate[key] == (value if value is None else pytest.approx(value, rel=1e-3)), (figure, key)
        timed = {"tps": 0, "tps_reported": 0, "ttft": 0, "requests_per_second": 0, "estimates": 0}
        assert one | timed == other | timed
    assert sorted(group["by"]["model"] for group in live["groups"]) == ["model-0", "model-1"]
    for group in live["groups"]:
        own = [call for call in proxy.logged() if call["model_requested"] == group["by"]["model"]]
        speeds = sorted(call["tps"]["output"] for call in own if call["tps"]["output"])
        median = speeds[(len(speeds) + 1) // 2 - 1]
        assert group["calls"] == len(own) == 6
        assert (group["tps"]["p50"], group["tps"]["p1"]) == pytest.approx((median, speeds[0]), rel=1e-3)
        assert group["tokens"]["output"] == sum(call["tokens"]["reported"]["output"] for call in own)
    assert "TPS P50" in report(*asked) and "| model-0 |" in report(*asked, "--format", "markdown")
    page = logs / "report.html"
    report(*asked, "--format", "html", "--output", page)
    text = page.read_text()
    assert text.count("<svg") >= 4 and "model-1" in text
    assert not re.search(r"(src|href)\s*=|@import|url\(|<script[^>]*\ssrc", text), "nothing is fetched"
