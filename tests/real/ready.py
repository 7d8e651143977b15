"""Polls an address: `ready.py PORT PATH` prints the time of the first 200, by time.time()."""

import socket
import sys
import time

PORT, PATH = int(sys.argv[1]), sys.argv[2]
print("asking", flush=True)
while True:
    with socket.socket() as asked:
        try:
            asked.connect(("127.0.0.1", PORT))
            asked.sendall(f"GET {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
            if asked.recv(12) == b"HTTP/1.1 200":
                print(f"at {time.time():.6f}", flush=True)
                # Wait until the process is ended.
                time.sleep(600)
        except ConnectionError:
            pass
    time.sleep(0.0005)
