"""A name server and an HTTPS server on loopback: `backend.py NAME CERTIFICATE KEY`. Both print a line when they
listen."""

import http.server
import socket
import ssl
import struct
import sys
import threading

NAME, CERTIFICATE, KEY = sys.argv[1:]
ANSWER = b'{"object":"chat.completion","model":"far-away","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0}}'


def resolve(query):
    """Returns the answer to a query: 127.0.0.1 for the only name, no records for other types, NXDOMAIN for other
    names."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += 1 + query[at]
    question, (kind,) = query[12 : at + 5], struct.unpack("!H", query[at + 1 : at + 3])
    known = ".".join(labels).lower() == NAME
    answer = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + bytes([127, 0, 0, 1]) if known and kind == 1 else b""
    flags = 0x8180 if known else 0x8183
    return query[:2] + struct.pack("!HHHHH", flags, 1, 1 if answer else 0, 0, 0) + question + answer


def serve_names():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 53))
        print("names", flush=True)
        while True:
            query, sender = listener.recvfrom(4096)
            listener.sendto(resolve(query), sender)


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_):
        pass


threading.Thread(target=serve_names, daemon=True).start()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 443), Answer)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE, KEY)
server.socket = context.wrap_socket(server.socket, server_side=True)
print("answers", flush=True)
server.serve_forever()
