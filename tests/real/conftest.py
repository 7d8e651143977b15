"""The parts every test talks to: a real engine, the simulated backend, and the proxy in front of each."""

import os
import pathlib

import pytest

from processes import answers, free_port, running

HERE = pathlib.Path(__file__).parent
PROJECT = HERE.parent.parent
MODEL = PROJECT / ".cache/real/model/tiny.gguf"


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="session")
def engine(logs):
    """The address of a llama.cpp server with the tiny model."""
    port = free_port()
    command = [HERE / "llama-server", "--model", MODEL, "--alias", "tiny", "--host", "127.0.0.1", "--port", port]
    # Without its prompt cache equal requests are equal work, so equal answers.
    command += ["--ctx-size", 32768, "--parallel", 2, "--threads", 1, "--seed", 1, "--no-cache-prompt", "--no-ui"]
    with running(command, logs / "llama-server.log") as process:
        url = f"http://127.0.0.1:{port}"
        process.wait_for(lambda: answers(f"{url}/health"), "health")
        yield url


@pytest.fixture(scope="session")
def tokengauge():
    """The binary under test."""
    path = pathlib.Path(os.environ.get("TOKENGAUGE_BIN", PROJECT / "target/debug/tokengauge"))
    assert path.exists(), f"{path} is not there: cargo build"
    return path
