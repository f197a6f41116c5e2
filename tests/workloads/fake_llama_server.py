"""A program that serves llama-server's addresses, well or badly: FAKE says how. The driver starts it like the real one.

It writes its pid and its arguments to the file FAKE_TRACE before it listens.
"""

import http.server
import json
import os
import sys
import time

HOW = os.environ.get("FAKE", "good")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(503 if HOW == "never healthy" else 200, {"status": "ok"})
        elif HOW == "tells no model":
            self.answer(404, {})
        else:
            self.answer(200, {"data": [{"meta": {"size": 1000, "n_params": 2_000_000}}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            words = request["content"].split()
            self.answer(200, {"tokens": list(range(len(words)))} if HOW != "eats tokens" else {"tokens": [1]})
            return
        expected = {"stream": True, "cache_prompt": False, "temperature": 0, "seed": 0, "ignore_eos": True}
        if any(request.get(key) != value for key, value in expected.items()):
            self.answer(400, {"error": "not the request that was promised"})
            return
        if HOW == "refuses":
            self.answer(500, {"error": "no slot"})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        count = request["n_predict"] - (HOW == "stops early")
        for number in range(count):
            self.event({"content": f"t{number}", "stop": False})
            if HOW == "hangs":
                time.sleep(600)
            if HOW == "dies":
                os._exit(9)
            if HOW == "stream error":
                self.event({"error": {"message": "context shift is disabled"}})
        if HOW == "cut":
            self.close_connection = True
            self.chunk(b"")
            return
        self.event(
            {
                "content": "",
                "stop": True,
                "tokens_evaluated": len(request["prompt"]),
                "tokens_predicted": count,
                "truncated": False,
                "timings": {"cache_n": 5 if HOW == "caches" else 0},
            }
        )
        self.chunk(b"")

    def event(self, value: object) -> None:
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def main() -> None:
    with open(os.environ["FAKE_TRACE"], "w") as trace:
        json.dump({"pid": os.getpid(), "argv": sys.argv[1:]}, trace)
    print("loading model", flush=True)
    if HOW == "cannot load":
        sys.exit("E gguf: failed to read magic")
    if HOW == "deaf":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
