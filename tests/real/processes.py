"""Processes on free ports of the loopback address, each ended by its own id."""

import contextlib
import itertools
import os
import pathlib
import random
import re
import socket
import subprocess
import time
import urllib.request

START_SECONDS = 300


# Ports below the system's ephemeral range, a separate range for each worker of `pytest -n`, so that no other process
# takes a port before its program does.
FIRST = 20_000 + 3_000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PORTS = itertools.cycle(random.sample(range(FIRST, FIRST + 3_000), 3_000))


def free_port():
    for port in PORTS:
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Process:
    """A running program with its stderr and stdout."""

    def __init__(self, command, log: pathlib.Path):
        self.log = log
        # The process ends when this one ends, for any reason.
        command = ["setpriv", "--pdeathsig", "TERM", *command]
        with log.open("wb") as output:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def written(self):
        return self.log.read_text(errors="replace")

    def wait_for(self, ready, what, seconds=START_SECONDS):
        """Polls `ready()` until it returns a true value, and returns that value."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                raise RuntimeError(f"ended with {self.child.returncode} before {what}:\n{self.written()[-4000:]}")
            if found := ready():
                return found
            time.sleep(0.02)
        raise TimeoutError(f"no {what} within {seconds} s:\n{self.written()[-4000:]}")

    def wait_for_line(self, pattern):
        """Returns the first group of the first output line that matches."""
        found = self.wait_for(lambda: re.search(pattern, self.written()), f"line {pattern!r}")
        return found.group(1)

    def stop(self):
        """Sends SIGTERM and returns the exit code."""
        self.child.terminate()
        try:
            return self.child.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            raise


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except OSError:
        return False


@contextlib.contextmanager
def running(command, log, expected_exit=None):
    process = Process([str(part) for part in command], log)
    try:
        yield process
    finally:
        code = process.stop()
    assert expected_exit in (None, code), f"ended with {code}:\n{process.written()[-4000:]}"
