"""Latency: the driver against a scripted server, good and bad, and the timing itself against a scripted clock."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sidewinder.errors import ParseError
from sidewinder.model import Found, Measurement, Point, RawResult, Task
from sidewinder.workloads import server_driver
from sidewinder.workloads.llamacpp import LlamaCpp
from workloads import fake_llama_server
from workloads.helpers_llama import FOUND, device, point, result, run_task


@dataclass
class Bench:
    """A fake llama-server as an executable file, the task that starts it, and what it left of itself."""

    program: Path
    trace: Path
    how: str = "good"

    def task(self, asked: Point, **of_device: Any) -> Task:
        there = {"llama-server": {"binary": str(self.program), "version": "fake 1"}}
        details = {"programs": there, "python": sys.executable}
        task = LlamaCpp().build_task(asked, device(**of_device), Found(details=details))
        return replace(task, env={**task.env, "FAKE": self.how, "FAKE_TRACE": str(self.trace)})

    def measure(self, how: str = "good", **settings: Any) -> Measurement:
        self.how = how
        asked = latency_point(**settings)
        task = self.task(asked)
        got = LlamaCpp().parse(asked, task, run_task(task))
        self.assert_gone()
        return got

    def server(self) -> dict[str, Any]:
        return dict(json.loads(self.trace.read_text()))

    def assert_gone(self) -> None:
        if self.trace.exists():
            with pytest.raises(ProcessLookupError):
                os.kill(self.server()["pid"], 0)


def latency_point(**settings: Any) -> Point:
    return point(**{"mode": "latency", "prompt_tokens": 64, "output_tokens": 4, "repetitions": 2, **settings})


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    program = tmp_path / "llama-server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{fake_llama_server.__file__}" "$@"\n')
    program.chmod(0o755)
    return Bench(program, tmp_path / "trace.json")


def test_a_good_server_is_measured_and_ended(bench: Bench) -> None:
    got = bench.measure()
    assert got.ok, got.message
    assert set(got.metrics) == {
        "ttft_ms",
        "e2e_latency_ms",
        "decode_tps",
        "prefill_tps",
        "load_ms",
        "ttft_spread_pct",
        "decode_bw_GBs",
    }
    for name in ("ttft_ms", "e2e_latency_ms", "decode_tps", "prefill_tps"):
        low, high = sorted(got.samples[name])
        assert got.metrics[name] == pytest.approx((low + high) / 2)
    assert got.workload["weight_bytes"] == 1000
    assert got.workload["params"] == pytest.approx(0.002)
    assert got.backend == {"name": "llamacpp", "version": "fake 1", "binary": str(bench.program)}
    argv = bench.server()["argv"]
    assert argv[:4] == ["-m", "/srv/models/tiny.gguf", "--host", "127.0.0.1"]
    assert argv[argv.index("-np") + 1] == "1"
    assert argv[argv.index("-c") + 1] == "512"


def test_settings_reach_the_server(bench: Bench) -> None:
    got = bench.measure(
        prompt_tokens=600,
        flash_attention=True,
        kv_quantization="q8_0",
        batch_size=32,
        warmup=0,
        extra={"server_args": "-ngl 0"},
    )
    assert got.ok, got.message
    told = " ".join(bench.server()["argv"])
    assert told.endswith("-c 668 -np 1 -t 1 -b 32 -fa on -ctk q8_0 -ctv q8_0 --no-warmup -ngl 0")


def test_unmeasured_requests_come_first_and_do_not_count(bench: Bench) -> None:
    asked = latency_point(warmup=2, repetitions=1)
    raw = run_task(bench.task(asked))
    kinds = [json.loads(line)["kind"] for line in raw.stdout.head.splitlines()]
    assert kinds == ["server", "warmup", "warmup", "request", "end"]
    got = LlamaCpp().parse(asked, bench.task(asked), raw)
    assert got.ok
    assert len(got.samples["ttft_ms"]) == 1
    assert "ttft_spread_pct" not in got.metrics  # one request has no spread


def test_what_cannot_be_known_is_missing(bench: Bench) -> None:
    got = bench.measure("tells no model", prompt_tokens=63, output_tokens=1)
    assert got.ok, got.message
    assert set(got.metrics) == {"ttft_ms", "e2e_latency_ms", "load_ms", "ttft_spread_pct"}
    assert "weight_bytes" not in got.workload


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("cannot load", "ended before it was ready (server status 1); its log: E gguf: failed to read magic"),
        ("refuses", "/completion answered 500"),
        ("stream error", "context shift is disabled"),
        ("cut", "the stream ended without its last event"),
        ("dies", "server status 9"),
        ("stops early", "the server counted 3 output_tokens, asked for were 4"),
        ("caches", "5 of its prompt tokens came from the server's cache"),
        ("eats tokens", "a text for 64 tokens became only 1"),
    ],
)
def test_a_bad_server_is_a_failed_result_and_is_ended(bench: Bench, how: str, words: str) -> None:
    got = bench.measure(how)
    assert not got.ok
    assert not got.metrics
    assert words in (got.message or "")


def test_a_server_that_never_gets_healthy_is_given_up(bench: Bench) -> None:
    got = bench.measure("never healthy", extra={"startup_timeout_s": 0.01})
    assert "was not healthy within 0.01 s" in (got.message or "")


def test_a_server_that_is_not_there_is_a_failed_result(bench: Bench) -> None:
    bench.program.unlink()
    assert "No such file" in (bench.measure().message or "")


def test_a_stranger_on_the_port_is_not_measured(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        got = bench.measure(extra={"port": port})
    assert f"port {port} is taken by another program" in (got.message or "")
    assert not bench.trace.exists()  # nothing was started


def test_a_wanted_port_is_used(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert bench.measure(extra={"port": port}).ok
    argv = bench.server()["argv"]
    assert argv[argv.index("--port") + 1] == str(port)


@pytest.mark.parametrize("how", ["hangs", "deaf"])
def test_a_driver_that_is_stopped_ends_its_server(bench: Bench, tmp_path: Path, how: str) -> None:
    bench.how = how
    task = bench.task(latency_point(repetitions=1_000_000))
    source = task.stdin.replace(b"TERMINATE_HURRIED_S = 3.0", b"TERMINATE_HURRIED_S = 0.1")
    assert source != task.stdin
    with subprocess.Popen(
        task.argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **task.env},
        cwd=tmp_path,
    ) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        assert driver.stderr is not None
        driver.stdin.write(source)
        driver.stdin.close()
        assert b'"server"' in driver.stdout.readline()  # it is healthy: requests follow
        driver.send_signal(signal.SIGTERM)
        driver.stdout.read()
        last = driver.stderr.read().splitlines()[-1]
    assert driver.returncode == 143
    assert b"stopped from outside" in last
    bench.assert_gone()
    assert not (tmp_path / server_driver.LOG).exists()


# -- reading what the driver said --------------------------------------------------------------------------------------

GOOD = [
    {"kind": "server", "load_ms": 250.0, "port": 1, "model": {}},
    {"kind": "request", "ttft_ms": 100.0, "e2e_ms": 400.0, "prompt_tokens": 64, "output_tokens": 4},
    {"kind": "request", "ttft_ms": 140.0, "e2e_ms": 340.0, "prompt_tokens": 64, "output_tokens": 4},
    {"kind": "end", "server_status": -15},
]


def parse(raw: RawResult) -> Measurement:
    asked = latency_point()
    return LlamaCpp().parse(asked, LlamaCpp().build_task(asked, device(), FOUND), raw)


def lines(*changes: tuple[int, dict[str, Any]], without: int | None = None) -> RawResult:
    told = [dict(line) for line in GOOD]
    for index, fields in changes:
        told[index].update(fields)
    if without is not None:
        del told[without]
    return result("".join(json.dumps(line) + "\n" for line in told).encode())


def test_the_figures_are_medians_of_the_requests() -> None:
    got = parse(lines())
    assert got.ok, got.message
    assert got.metrics == pytest.approx(
        {
            "ttft_ms": 120.0,
            "e2e_latency_ms": 370.0,
            "decode_tps": (10.0 + 15.0) / 2,
            "prefill_tps": (640.0 + 64 / 0.14) / 2,
            "load_ms": 250.0,
            "ttft_spread_pct": 100 * 40 / 120,
        }
    )
    assert got.samples["decode_tps"] == pytest.approx([10.0, 15.0])


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (lines(without=0), "no whole story"),
        (lines(without=3), "no whole story"),
        (lines(without=1), "1 requests were measured where 2"),
        (lines((1, {"ttft_ms": None})), "request 1: first token after None ms"),
        (lines((2, {"ttft_ms": 500.0})), "request 2: first token after 500.0 ms, end after 340.0 ms"),
        (lines((2, {"ttft_ms": 0})), "request 2"),
        (lines((2, {"ttft_ms": 340.0})), "came all at once"),
        (lines((1, {"prompt_tokens": 60})), "60 prompt_tokens, asked for were 64"),
        (lines((1, {"output_tokens": None})), "None output_tokens"),
        (lines((1, {"timings": {"cache_n": 3}})), "3 of its prompt tokens"),
        (result(b"", b""), "stdout is empty"),
    ],
)
def test_each_broken_rule_is_a_failed_result(raw: RawResult, words: str) -> None:
    got = parse(raw)
    assert not got.ok
    assert words in (got.message or "")


def test_a_cut_line_is_a_parse_error_only_where_the_driver_ended_well() -> None:
    whole = lines().stdout.head
    with pytest.raises(ParseError):
        parse(result(whole[:-10]))
    got = parse(result(whole[:-10], b"llama-server: error: it died\n", 1))
    assert "it died" in (got.message or "")
    assert "after 2 of 2 requests" in (got.message or "")


# -- the clock ---------------------------------------------------------------------------------------------------------


def test_time_to_first_token_and_to_the_end_are_those_of_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"ns": 5_000_000_000}

    def after(ms: int, line: bytes) -> tuple[int, bytes]:
        return ms * 1_000_000, line

    stream = [
        after(30, b": a comment is no token\n"),
        after(70, b'data: {"content":"a","stop":false}\n'),
        after(0, b"\n"),
        after(20, b'data: {"content":"b","stop":false}\n'),
        after(25, b'data: {"content":"","stop":true,"tokens_evaluated":8,"tokens_predicted":2}\n'),
        after(999, b"data: never read\n"),
    ]

    class Response:
        status = 200

        def __iter__(self) -> Iterator[bytes]:
            for waited_ns, line in stream:
                clock["ns"] += waited_ns
                yield line

    class Connection:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            pass

        def request(self, *args: Any) -> None:
            clock["ns"] += 5_000_000

        def getresponse(self) -> Response:
            return Response()

        def close(self) -> None:
            pass

    monkeypatch.setattr(http.client, "HTTPConnection", Connection)
    monkeypatch.setattr(server_driver.time, "perf_counter_ns", lambda: clock["ns"])
    got = server_driver.complete(1, [0] * 8, 2)
    assert got["ttft_ms"] == pytest.approx(105.0)
    assert got["e2e_ms"] == pytest.approx(150.0)
    assert (got["prompt_tokens"], got["output_tokens"]) == (8, 2)


def test_a_port_that_was_lost_to_somebody_else_is_tried_anew(bench: Bench) -> None:
    """Between asking for a free port and listening on it, another program may take it: no fault of the server's."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = stranger.getsockname()[1]
        lost_once = f"""
real_free_port, asked = free_port, []
def free_port(wanted):
    asked.append(1)
    return {taken} if len(asked) == 1 else real_free_port(wanted)
"""
        asked = latency_point()
        task = bench.task(asked)
        source = task.stdin.replace(b'if __name__ == "__main__":', lost_once.encode() + b'\nif __name__ == "__main__":')
        source = source.replace(b"HEALTH_TIMEOUT_S = 5.0", b"HEALTH_TIMEOUT_S = 0.2")  # the stranger never answers
        got = LlamaCpp().parse(asked, task, run_task(replace(task, stdin=source)))
    assert got.ok, got.message
    assert bench.server()["argv"][5] != str(taken)
