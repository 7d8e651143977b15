"""`tokengauge top` on a real pseudo-terminal, and `tokengauge report` beside a running proxy."""

import fcntl
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
from processes import free_port, running

PATIENCE = 20


class Terminal:
    """A program on a pseudo-terminal of 120 × 30."""

    def __init__(self, command):
        self.child, self.master = pty.fork()
        if self.child == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(command[0], [str(part) for part in command])
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        self.written = ""

    def until(self, pattern):
        """Reads until what was written has `pattern`; forgets it up to there."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.written)):
            left = deadline - time.monotonic()
            assert left > 0, f"never {pattern!r} in {self.written[-3000:]!r}"
            if select.select([self.master], [], [], left)[0]:
                self.written += os.read(self.master, 65536).decode(errors="replace")
        self.written = self.written[found.end() :]

    def press(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        """The exit code, once everything has been read."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            done, status = os.waitpid(self.child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    self.written += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    pass
        raise TimeoutError(self.written[-3000:])


@pytest.fixture(scope="module")
def demo(tokengauge, logs):
    """The admin address of a demo."""
    command = [tokengauge, "demo", "--listen", ANY_PORT, "--admin", f"127.0.0.1:{free_port()}", "--agents", 6]
    with running(command, logs / "terminal-demo.log", expected_exit=0) as process:
        admin = process.wait_for_line(r"admin on (\S+)")
        time.sleep(4)
        yield admin


def test_top_shows_streams_as_they_come_and_leaves_the_terminal_as_it_was(tokengauge, demo):
    terminal = Terminal([tokengauge, "top", "--admin", demo, "--every", "200ms"])
    terminal.until(r"\x1b\[\?1049h")  # the other screen
    terminal.until(r"tokens/s")
    terminal.until(r"TPS↓")
    terminal.press("2")
    terminal.until(r"\$/1M OUT")
    terminal.press("3")
    terminal.until(r"BUDGET LEFT")
    terminal.until(r"availability")
    terminal.press("/vail")
    terminal.until(r"enter keeps it")
    terminal.press("\r")
    terminal.press("q")
    assert terminal.end() == 0
    assert "\x1b[?1049l" in terminal.written, "the screen from before is back"


def test_top_says_why_it_cannot_reach_a_proxy(tokengauge):
    terminal = Terminal([tokengauge, "top", "--admin", f"127.0.0.1:{free_port()}"])
    assert terminal.end() == 1
    assert re.search(r"refused.*is the proxy running there\? --admin names its address", terminal.written, re.DOTALL)
    piped = subprocess.run([tokengauge, "top"], capture_output=True, text=True)
    assert piped.returncode == 1 and "top needs a terminal" in piped.stderr


def test_a_report_of_a_running_proxy_is_that_of_its_call_log(tokengauge, gauge, simulator, logs):
    proxy = gauge("report", upstream=simulator)
    calls = [traffic.chat("", f"model-{number % 2}", behave="tokens=60,gap=3ms") for number in range(12)]
    threads = [threading.Thread(target=call.make, args=(proxy.url,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deadline = time.monotonic() + PATIENCE
    while len(proxy.logged()) < len(calls):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    def report(*options):
        command = [tokengauge, "report", "--since", "1h", "--by", "model,route", "--with-warm-up", *options]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    asked = ["--admin", proxy.admin.removeprefix("http://")]
    live, logged = (json.loads(report(*of, "--format", "json")) for of in (asked, ["--call-log", proxy.call_log]))
    assert live["groups"] == logged["groups"]
    assert sorted(group["by"]["model"] for group in live["groups"]) == ["model-0", "model-1"]
    for group in live["groups"]:
        own = [call for call in proxy.logged() if call["model_requested"] == group["by"]["model"]]
        speeds = sorted(call["tps"]["output"] for call in own)
        assert group["calls"] == len(own) == 6
        assert group["tps"]["p50"] == speeds[2] and group["tps"]["p1"] == speeds[0]
        assert group["tokens"]["output"] == sum(call["tokens"]["reported"]["output"] for call in own)
    assert "TPS P50" in report(*asked) and "| model-0 |" in report(*asked, "--format", "markdown")
    page = logs / "report.html"
    report(*asked, "--format", "html", "--output", page)
    text = page.read_text()
    assert text.count("<svg") >= 4 and "model-1" in text
    assert not re.search(r"(src|href)\s*=|@import|url\(|<script", text), "nothing is fetched"
