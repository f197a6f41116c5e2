"""Driver: the script that starts a llama-server, measures requests to it one after another, and ends it.

It is sent over stdin to an interpreter of the device (`python -I - SERVER MODEL REQUEST`), standard library only, any
Python from 3.7. REQUEST is JSON. One object a line goes to stdout: the server once it is healthy, then each request;
the last line says how the server ended. The server writes to a file beside us, whose end is copied to stderr.

Guarded against: a stranger who listens on our port already (we would measure *their* server, healthy at once); a
server that dies while it loads; one that outlives us (it is ended by its handle, never by name, whatever happens).
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from typing import Any

HOST = "127.0.0.1"
LOG = "llama-server.log"
PORT_TRIES = 3
LOG_KEPT_BYTES = 65_536
HEALTH_PERIOD_S = 0.05
HEALTH_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 900.0
TERMINATE_S = 15.0
TERMINATE_HURRIED_S = 3.0  # we were told to stop ourselves, and whoever told us does not wait long
KILL_S = 10.0
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
COMPLAINT = re.compile(r"^[\d.]+ E |error|failed|ASSERT|terminate called|cannot|exception", re.IGNORECASE)
SENTENCE = "The quick brown fox jumps over the lazy dog. "


class Refused(Exception):
    """The measurement cannot be made; the text is for people."""


class Stopped(Exception):
    """SIGTERM or SIGINT reached us."""


def main(argv: list[str]) -> int:
    binary, model, request = os.path.expanduser(argv[1]), os.path.expanduser(argv[2]), json.loads(argv[3])
    for stopping in STOPPING:
        signal.signal(stopping, on_signal)
    server: subprocess.Popen[bytes] | None = None
    patience_s = TERMINATE_S
    status, message = 1, ""
    try:
        tries = 0
        while True:
            tries += 1
            port = free_port(request["port"])
            with open(LOG, "wb") as log:
                started_ns = time.perf_counter_ns()
                command = [binary, "-m", model, "--host", HOST, "--port", str(port), *request["args"]]
                server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            try:
                wait_until_healthy(server, port, started_ns, request["startup_timeout_s"])
                break
            except Refused:
                # A port that was free a moment ago may have gone to somebody else: that says nothing of the server.
                died = server.poll() is not None
                if not (tries < PORT_TRIES and died and request["port"] is None and is_taken(port)):
                    raise
        load_ms = (time.perf_counter_ns() - started_ns) / 1e6
        tell(kind="server", port=port, load_ms=load_ms, model=described(port))
        prompt = prompt_of(port, request["prompt_tokens"])
        for number in range(request["warmup"] + request["repetitions"]):
            measured = number >= request["warmup"]
            tell(kind="request" if measured else "warmup", **complete(port, prompt, request["output_tokens"]))
            if server.poll() is not None:
                raise Refused("the server ended while it was measured")
        status = 0
    except Stopped:
        status, message, patience_s = 143, "stopped from outside", TERMINATE_HURRIED_S
    except Refused as error:
        message = str(error)
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        message = f"{type(error).__name__}: {error}"
    finally:
        ended = end(server, patience_s)
    complaint = copy_log()
    if status == 0:
        tell(kind="end", server_status=ended)
        return 0
    if ended is not None:
        message += f" (server status {ended})"
    if complaint:
        message += f"; its log: {complaint}"
    print(f"llama-server: error: {message}", file=sys.stderr, flush=True)
    return status


def on_signal(number: int, frame: Any) -> None:
    raise Stopped


def tell(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def free_port(wanted: int | None) -> int:
    """The wanted port, if nobody listens there; without a wish any free one."""
    if wanted is None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            return int(probe.getsockname()[1])
    if is_taken(wanted):
        raise Refused(f"port {wanted} is taken by another program, which would have been measured instead")
    return wanted


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def wait_until_healthy(server: subprocess.Popen[bytes], port: int, started_ns: int, timeout_s: float) -> None:
    while True:
        if server.poll() is not None:
            raise Refused("the server ended before it was ready")
        try:
            status, _ = ask(port, "GET", "/health", timeout_s=HEALTH_TIMEOUT_S)
        except (OSError, http.client.HTTPException):
            status = 0  # not listening yet
        if status == 200:
            if server.poll() is not None:  # then it was somebody else who answered
                raise Refused(f"the server ended, and another program answers on port {port}")
            return
        if time.perf_counter_ns() - started_ns > timeout_s * 1e9:
            raise Refused(f"the server was not healthy within {timeout_s:g} s")
        time.sleep(HEALTH_PERIOD_S)


def ask(port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    try:
        payload = None if body is None else json.dumps(body).encode()
        connection.request(method, path, payload, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def described(port: int) -> dict[str, Any]:
    """What the server tells of its model, where its version tells it; no reason to fail."""
    try:
        status, body = ask(port, "GET", "/v1/models", timeout_s=HEALTH_TIMEOUT_S)
        return dict(json.loads(body)["data"][0]["meta"]) if status == 200 else {}
    except (OSError, http.client.HTTPException, ValueError, KeyError, IndexError, TypeError):
        return {}


def prompt_of(port: int, length: int) -> list[int]:
    """Exactly ``length`` tokens of the same plain text every time, as ids: then nobody counts differently."""
    text = SENTENCE * (length // len(SENTENCE.split()) + 1)
    body = {"content": text, "add_special": True}
    status, answer = ask(port, "POST", "/tokenize", body, timeout_s=REQUEST_TIMEOUT_S)
    if status != 200:
        raise Refused(f"/tokenize answered {status}: {shown(answer)}")
    tokens = json.loads(answer)["tokens"]
    if len(tokens) < length:
        raise Refused(f"a text for {length} tokens became only {len(tokens)}")
    return list(tokens[:length])


def complete(port: int, prompt: list[int], output_tokens: int) -> dict[str, Any]:
    """One streamed request: when its first token and its end arrived, and what the server counted."""
    body = {
        "prompt": prompt,
        "n_predict": output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "seed": 0,
        "stream": True,
        "cache_prompt": False,
    }
    connection = http.client.HTTPConnection(HOST, port, timeout=REQUEST_TIMEOUT_S)
    try:
        payload = json.dumps(body).encode()
        start_ns = time.perf_counter_ns()
        connection.request("POST", "/completion", payload, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise Refused(f"/completion answered {response.status}: {shown(response.read())}")
        first_ns = None
        for line in response:
            now_ns = time.perf_counter_ns()
            if line.startswith(b"error:"):
                raise Refused(f"the stream held an error: {shown(line)}")
            if not line.startswith(b"data:"):
                continue
            event = json.loads(line[5:])
            if "error" in event:
                raise Refused(f"the stream held an error: {shown(line)}")
            if event.get("stop"):
                return {
                    "ttft_ms": None if first_ns is None else (first_ns - start_ns) / 1e6,
                    "e2e_ms": (now_ns - start_ns) / 1e6,
                    "prompt_tokens": event.get("tokens_evaluated"),
                    "output_tokens": event.get("tokens_predicted"),
                    "truncated": event.get("truncated"),
                    "timings": event.get("timings"),
                }
            if first_ns is None:
                first_ns = now_ns
        raise Refused("the stream ended without its last event")
    finally:
        connection.close()


def end(server: subprocess.Popen[bytes] | None, patience_s: float) -> int | None:
    """End the server by its handle; its status, or None where there is none."""
    if server is None:
        return None
    for stopping in STOPPING:  # told to stop while we wait: no exception may leave the server behind
        signal.signal(stopping, lambda number, frame: server.kill())
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(patience_s)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(KILL_S)
    return server.returncode


def copy_log() -> str:
    """The end of the server's log to stderr; its first complaint, which is mostly the cause of the others."""
    try:
        with open(LOG, "rb") as log:
            log.seek(max(0, os.path.getsize(LOG) - LOG_KEPT_BYTES))
            text = log.read().decode("utf-8", "replace")
        os.unlink(LOG)
    except OSError:
        return ""
    print(text, file=sys.stderr)
    lines = [line.strip() for line in text.splitlines() if line.strip(" .")]
    complaints = [line for line in lines if COMPLAINT.search(line) and "failed to enumerate" not in line]
    return (complaints or lines[-1:] or [""])[0][:300]


def shown(answer: bytes) -> str:
    return answer[:300].decode("utf-8", "replace").strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
