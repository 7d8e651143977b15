"""Agents that hold connections and streams, busy agents, and request trailers, compared with nginx in front of the
same upstream."""

import concurrent.futures
import contextlib
import os
import pathlib
import socket
import threading
import time

from late_bytes import ask, listening
from processes import free_port

SECONDS = 10
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
# Connection limit of each proxy. nginx needs two connections for each call.
CONNECTIONS = 40
IDLE = 60


class Upstream:
    """Answers every request, and keeps its bytes."""

    def __init__(self):
        self.connections = 0
        self.received = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connections += 1
                threading.Thread(target=self.converse, args=(connection,), daemon=True).start()

    def converse(self, connection):
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as reader:
            while request := read_request(reader):
                self.received.append(request)
                connection.sendall(ANSWER)


def read_request(reader):
    """Reads a request with its body and trailers; returns nothing at the end of the connection."""
    lines = [reader.readline()]
    while lines[-1] not in (b"\r\n", b""):
        lines.append(reader.readline())
    head = b"".join(lines).lower()
    if lines[-1] == b"":
        return b""
    if b"transfer-encoding: chunked" in head:
        body = []
        # An empty line after the last chunk ends the body. Lines between them are trailers.
        while not (body and body[-1] == b"\r\n" and b"0\r\n" in body):
            body.append(reader.readline())
            if body[-1] == b"":
                return b""
        return head + b"".join(body)
    length = [line for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
    return head + reader.read(int(length[0].split(b":")[1]) if length else 0)


def nginx_config(folder, port, upstream, connections, http2=False):
    user = "user root;" if os.geteuid() == 0 else ""
    temporary = "".join(f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off; {user} worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{ worker_connections {connections}; }}\nhttp {{ access_log off; {temporary}\n"
        f'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_request_buffering off; keepalive_requests 1000000;\n'
        f"upstream u {{ server 127.0.0.1:{upstream.port}; keepalive 16; keepalive_requests 1000000; }}\n"
        f"server {{ listen 127.0.0.1:{port}{' http2' if http2 else ''}; location / {{ proxy_pass http://u; }} }} }}\n"
    )
    return ["nginx", "-c", file, "-p", folder]


def tokengauge_config(tokengauge, folder, port, upstream, connections):
    file = folder / "proxy.toml"
    file.write_text(
        f'listen = "127.0.0.1:{port}"\nadmin.listen = "127.0.0.1:0"\nlimits.connections = {connections}\n'
        f'[[upstream]]\nname = "u"\nurl = "http://127.0.0.1:{upstream.port}"\n[[route]]\nupstream = "u"\n'
    )
    return [tokengauge, "run", "--config", file]


@contextlib.contextmanager
def both(tokengauge, folder, connections=4096, http2=False):
    """Returns each proxy's name, port and upstream. Debian's nginx supports only one version of HTTP on a port
    without TLS."""
    with contextlib.ExitStack() as stack:
        found = {}
        for name in ("tokengauge", "nginx"):
            upstream, port = Upstream(), free_port()
            (folder / name).mkdir()
            command = (
                tokengauge_config(tokengauge, folder / name, port, upstream, connections)
                if name == "tokengauge"
                else nginx_config(folder / name, port, upstream, connections, http2)
            )
            stack.enter_context(listening(command, port, folder / f"{name}.log"))
            found[name] = (port, upstream)
        yield found


def test_idle_agents_keep_no_new_agent_out(tokengauge, tmp_path):
    with both(tokengauge, tmp_path, CONNECTIONS) as proxies:
        for name, (port, _) in proxies.items():
            with contextlib.ExitStack() as idle:
                for _ in range(IDLE):
                    agent = idle.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS))
                    agent.settimeout(SECONDS)
                    agent.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                    assert agent.recv(4096).startswith(b"HTTP/1.1 200 "), name
                began = time.monotonic()
                assert ask(port, "GET", "/").endswith(b"ok"), name
                assert time.monotonic() - began < 2, f"{name} lets a new agent wait"


def test_busy_agents_share_few_connections_to_the_upstream(tokengauge, tmp_path):
    def agent(port):
        request = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"
        with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
            connection.settimeout(SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(400):
                connection.sendall(request)
                received = b""
                while not received.endswith(b"ok"):
                    received += connection.recv(4096)

    with both(tokengauge, tmp_path) as proxies:
        opened = {}
        for name, (port, upstream) in proxies.items():
            with concurrent.futures.ThreadPoolExecutor(8) as agents:
                list(agents.map(agent, [port] * 8))
            assert len(upstream.received) == 3200, name
            opened[name] = upstream.connections
    print(f"connections to the upstream for 3,200 calls of 8 agents: {opened}")
    assert opened["tokengauge"] <= 20, opened


def test_request_trailers_reach_no_upstream_unless_they_are_safe(tokengauge, tmp_path):
    names = ("connection", "upgrade", "cookie", "x-api-key", "authorization", "x-forwarded-for", "content-length", "host")
    trailers = "".join(f"{name}: planted\r\n" for name in names)
    request = f"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n{trailers}\r\n"
    with both(tokengauge, tmp_path) as proxies:
        for name, (port, upstream) in proxies.items():
            with socket.create_connection(("127.0.0.1", port), SECONDS) as agent:
                agent.settimeout(SECONDS)
                agent.sendall(request.encode())
                assert agent.recv(4096).startswith(b"HTTP/1.1 200 "), name
            assert b"planted" not in upstream.received[-1], f"{name}: {upstream.received[-1]}"


def resident(pid):
    pids = [pid]
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            pids += [int(child) for child in task.read_text().split()]
    status = [pathlib.Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return sum(1024 * int(text.split("VmRSS:")[1].split()[0]) for text in status)


def listener_of(port):
    wanted = f"0100007F:{port:04X}"
    inodes = {
        line.split()[9]
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1] == wanted and line.split()[3] == "0A"
    }
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(os.readlink(file) in {f"socket:[{inode}]" for inode in inodes} for file in folder.glob("fd/*")):
                return int(folder.name)
    raise LookupError(f"nobody listens on {port}")


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def test_open_streams_without_a_body_cost_about_what_they_cost_with_nginx(tokengauge, tmp_path):
    # POST http / with the authority x, by HPACK's static table. END_HEADERS is set, END_STREAM is not.
    head = b"\x83\x86\x84\x41\x01x"
    per_stream = {}
    agents, streams = 20, 100
    with both(tokengauge, tmp_path, http2=True) as proxies:
        for name, (port, _) in proxies.items():
            pid = listener_of(port)
            with contextlib.ExitStack() as stack:
                connections = [stack.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS)) for _ in range(agents)]
                for connection in connections:
                    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
                time.sleep(0.5)
                before = resident(pid)
                for connection in connections:
                    connection.sendall(b"".join(frame(1, 4, 2 * stream + 1, head) for stream in range(streams)))
                time.sleep(2)
                per_stream[name] = (resident(pid) - before) / (agents * streams)
    print(f"bytes for an open stream without a body: {per_stream}")
    assert per_stream["tokengauge"] < 1.5 * per_stream["nginx"], per_stream
