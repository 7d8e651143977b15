"""Real processes on free ports of the loopback address, each ended by its own id."""

import contextlib
import pathlib
import re
import socket
import subprocess
import time
import urllib.request

START_SECONDS = 60


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Process:
    """A running program and what it wrote to stderr and stdout."""

    def __init__(self, command, log: pathlib.Path):
        self.log = log
        # Ends with us, however we end.
        command = ["setpriv", "--pdeathsig", "TERM", *command]
        with log.open("wb") as output:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def written(self):
        return self.log.read_text(errors="replace")

    def wait_for(self, ready, what, seconds=START_SECONDS):
        """Polls `ready()` until it gives something, and returns that."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                raise RuntimeError(f"ended with {self.child.returncode} before {what}:\n{self.written()[-4000:]}")
            if found := ready():
                return found
            time.sleep(0.02)
        raise TimeoutError(f"no {what} within {seconds} s:\n{self.written()[-4000:]}")

    def wait_for_line(self, pattern):
        """The first group of the first written line that matches."""
        found = self.wait_for(lambda: re.search(pattern, self.written()), f"line {pattern!r}")
        return found.group(1)

    def stop(self):
        """SIGTERM, and the exit code it led to."""
        self.child.terminate()
        try:
            return self.child.wait(timeout=20)
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
