"""ClickHouse's HTTP interface over chdb, the ClickHouse library: `clickhouse_server.py PORT FOLDER`.

Statements arrive in the parameter `query` with their data as the body, or as the body. Other parameters are
settings, as with the real server. Status and error-code header equal the real server's for the errors that happen
here."""

import http.server
import re
import sys
import threading
import urllib.parse

from chdb import session

# src/Server/HTTP/exceptionCodeToHTTPStatus.cpp
STATUS = {60: 404, 81: 404, 516: 403, 497: 403, 27: 400, 376: 400, 62: 400, 117: 400, 26: 400, 41: 400}
LOCK = threading.Lock()


def statement(parameters, body):
    """Returns the statement with its settings as one text."""
    database = parameters.pop("database", "default")
    query = parameters.pop("query", "")
    settings = ", ".join(f"{name} = '{value}'" for name, value in parameters.items())
    if settings:
        query = query.replace(" FORMAT ", f" SETTINGS {settings} FORMAT ", 1)
    return database, f"{query}\n{body}" if query else body


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        url = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        database, text = statement(dict(urllib.parse.parse_qsl(url.query)), body)
        status, headers = 200, {}
        try:
            with LOCK:
                self.server.session.query(f"USE `{database}`")
                shape = re.search(r"FORMAT (\w+)\s*$", text.strip())
                answer = self.server.session.query(text, shape[1] if shape else "TSV")
                data = answer.bytes() if answer is not None else b""
        except RuntimeError as error:
            data = str(error).encode()
            code = int((re.match(r"Code: (\d+)", str(error)) or [0, 0])[1])
            status, headers = STATUS.get(code, 500), {"X-ClickHouse-Exception-Code": str(code)}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "4")
        self.end_headers()
        self.wfile.write(b"Ok.\n")

    def log_message(self, *arguments):
        pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    server.session = session.Session(sys.argv[2])
    server.session.query("CREATE DATABASE IF NOT EXISTS default ENGINE = Atomic")
    print(f"listening on {sys.argv[1]}", flush=True)
    server.serve_forever()
