"""A receiver of OTLP over HTTP that writes down what it gets, one JSON line per message, decoded with the official
definitions.

usage: otlp_receiver.py FILE [--status N] [--slow SECONDS]
"""

import argparse
import gzip
import http.server
import json
import time

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MESSAGES = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--status", type=int, default=200)
    parser.add_argument("--slow", type=float, default=0)
    args = parser.parse_args()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            time.sleep(args.slow)
            if args.status == 200:
                message = MESSAGES[self.path]()
                message.ParseFromString(body)
                line = {"path": self.path, "headers": dict(self.headers), "message": MessageToDict(message)}
                with open(args.file, "a") as file:
                    file.write(json.dumps(line) + "\n")
            self.send_response(args.status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    # Pods that end together connect at the same time.
    http.server.ThreadingHTTPServer.request_queue_size = 64
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"listening on {server.server_address[1]}", flush=True)
    server.serve_forever()


main()
