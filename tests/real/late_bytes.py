"""An upstream that sends bytes after the end of its responses, and proxies in front of it."""

import contextlib
import dataclasses
import os
import re
import socket
import threading
import time

from processes import free_port, running

VICTIM = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nvictim"
WHOLE = b"HTTP/1.1 200 OK\r\nSet-Cookie: planted=1\r\nContent-Length: 7\r\n\r\nplanted"
PART = b"HTTP/1.1 200 OK\r\nSet-Cookie: planted=1\r\nX-Rest: "
# The request's method, and a complete response.
COMPLETE = {
    "length": ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    "chunked": ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
    "head": ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"),
    "204": ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
    "304": ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"),
}
SECONDS = 5


@dataclasses.dataclass(frozen=True)
class Case:
    """One case: the response, the planted bytes after it, their number of pieces, the delay before each piece, and
    whether they arrive while the victim waits for a slow answer."""

    complete: str
    planted: bytes
    pieces: int
    each_after: float
    while_asked: bool

    @property
    def name(self):
        planted = {WHOLE: "whole", PART: "part", b"": "nothing"}[self.planted]
        when = "while the next is asked" if self.while_asked else "before the next"
        return f"{self.complete} + {planted} in {self.pieces} after {self.each_after * 1000:.0f} ms, {when}"

    def parts(self):
        size = -(-len(self.planted) // self.pieces) or 1
        return [self.planted[at : at + size] for at in range(0, len(self.planted), size)]


CASES = [
    Case(complete, planted, pieces, each_after, while_asked)
    for complete in COMPLETE
    for planted in (WHOLE, PART)
    for pieces, each_after in ((1, 0.0), (1, 0.002), (2, 0.005), (3, 0.015), (1, 0.05))
    for while_asked in (False, True)
    if not (while_asked and each_after == 0)
]
CONTROLS = [Case(complete, b"", 1, 0.0, False) for complete in COMPLETE]


class Upstream:
    """Plays one case on every connection that requests /attack."""

    def __init__(self, case):
        self.case = case
        self.connections = 0
        self.planted = threading.Event()
        self.asked = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def reset(self):
        self.connections = 0
        self.planted.clear()
        self.asked.clear()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections += 1
                threading.Thread(target=self.converse, args=(connection,), daemon=True).start()

    def converse(self, connection):
        with contextlib.suppress(OSError), connection:
            received = b""
            while True:
                while b"\r\n\r\n" not in received:
                    some = connection.recv(4096)
                    if not some:
                        return
                    received += some
                head, received = received.split(b"\r\n\r\n", 1)
                if b"/attack" in head.split(b"\r\n")[0]:
                    self.attack(connection)
                else:
                    self.asked.set()
                    if self.case.while_asked:
                        self.planted.wait(SECONDS)
                        time.sleep(0.02)
                    connection.sendall(VICTIM)

    def attack(self, connection):
        case, parts = self.case, self.case.parts()
        response = COMPLETE[case.complete][1]
        if not case.while_asked and case.each_after == 0:
            connection.sendall(response + b"".join(parts))
            self.planted.set()
            return
        connection.sendall(response)
        threading.Thread(target=self.plant, args=(connection, parts), daemon=True).start()

    def plant(self, connection, parts):
        if self.case.while_asked:
            self.asked.wait(SECONDS)
        with contextlib.suppress(OSError):
            for part in parts:
                time.sleep(self.case.each_after)
                connection.sendall(part)
        self.planted.set()


def ask(port, method, path):
    """Returns everything that an agent gets for one request."""
    request = f"{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), SECONDS) as agent:
        agent.settimeout(SECONDS)
        agent.sendall(request)
        received = b""
        with contextlib.suppress(OSError):
            while some := agent.recv(4096):
                received += some
        return received


def play(port, at, upstream):
    """One agent gets the attack, and then another agent sends a request. Returns what the second agent gets: `its
    own` answer, `planted` bytes, or an error of the proxy (`refused`)."""
    case = upstream.case
    upstream.reset()
    assert ask(port, COMPLETE[case.complete][0], f"/{at}/attack").startswith(b"HTTP/1.")
    if not case.while_asked:
        assert upstream.planted.wait(SECONDS), case.name
        time.sleep(0.01)
    answer = ask(port, "GET", f"/{at}/victim")
    if b"planted" in answer:
        return "planted"
    return "its own" if answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"victim") else "refused"


def nginx_config(folder, port, upstreams):
    pools = "".join(
        f"upstream u{at} {{ server 127.0.0.1:{upstream.port}; keepalive 8; }}\n" for at, upstream in enumerate(upstreams)
    )
    places = "".join(f"location /{at}/ {{ proxy_pass http://u{at}; }}\n" for at in range(len(upstreams)))
    user = "user root;" if os.geteuid() == 0 else ""
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off; {user} worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{ worker_connections 4096; }}\nhttp {{ access_log off;\n"
        f"client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;\n"
        f"uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;\n"
        f'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; proxy_next_upstream off;\n'
        f"{pools}server {{ listen 127.0.0.1:{port};\n{places}}} }}\n"
    )
    return ["nginx", "-c", file, "-p", folder]


def haproxy_config(folder, port, upstreams):
    uses = "".join(f"  use_backend b{at} if {{ path_beg /{at}/ }}\n" for at in range(len(upstreams)))
    pools = "".join(
        f"backend b{at}\n  server one 127.0.0.1:{upstream.port} pool-max-conn -1\n"
        for at, upstream in enumerate(upstreams)
    )
    file = folder / "haproxy.cfg"
    file.write_text(
        "global\n  nbthread 1\ndefaults\n  mode http\n  http-reuse always\n  retries 0\n  timeout connect 5s\n"
        f"  timeout client 10s\n  timeout server 10s\nfrontend agents\n  bind 127.0.0.1:{port}\n{uses}{pools}"
    )
    return ["haproxy", "-db", "-q", "-f", file]


def tokengauge_config(tokengauge, folder, port, upstreams):
    file = folder / "proxy.toml"
    file.write_text(
        f'listen = "127.0.0.1:{port}"\nadmin.listen = "127.0.0.1:0"\n'
        + "".join(
            f'[[upstream]]\nname = "u{at}"\nurl = "http://127.0.0.1:{upstream.port}"\n'
            for at, upstream in enumerate(upstreams)
        )
        + "".join(
            f'[[route]]\nname = "r{at}"\npath = "/{at}"\nstrip = false\nupstream = "u{at}"\n'
            for at in range(len(upstreams))
        )
    )
    return [tokengauge, "run", "--config", file]


@contextlib.contextmanager
def listening(command, port, log):
    """Starts a proxy and waits until it accepts connections. Debian installs both peers in root's PATH."""
    program = str(command[0])
    command = ["env", f"PATH={os.environ['PATH']}:/usr/sbin", program, *command[1:]]

    def connects():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True

    with running(command, log) as process:
        process.wait_for(connects, "connection")
        yield port


@contextlib.contextmanager
def proxies(tokengauge, folder, upstreams):
    """Returns name → port of tokengauge, nginx and haproxy in front of the same upstreams."""
    ports = {name: free_port() for name in ("tokengauge", "nginx", "haproxy")}
    (folder / "nginx").mkdir()
    commands = {
        "tokengauge": tokengauge_config(tokengauge, folder, ports["tokengauge"], upstreams),
        "nginx": nginx_config(folder / "nginx", ports["nginx"], upstreams),
        "haproxy": haproxy_config(folder, ports["haproxy"], upstreams),
    }
    with contextlib.ExitStack() as stack:
        for name, command in commands.items():
            stack.enter_context(listening(command, ports[name], folder / f"{re.sub('[^a-z]', '', name)}.log"))
        yield ports
