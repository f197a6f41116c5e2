"""Bench rows against what a real llama-bench printed: each of five rules broken in turn, every way a run can fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sidewinder.errors import ParseError
from sidewinder.model import Output, RawResult
from sidewinder.workloads.llamacpp import LlamaCpp
from workloads.helpers_llama import CAPTURES, INDEX, as_result, captured, parse, point, result, rows_of

# -- what counts ------------------------------------------------------------------------------------------------------


def test_a_good_run_gives_the_figures_of_its_rows() -> None:
    prefill, decode = rows_of("good")
    got = parse(captured("good"))
    assert got.ok
    assert got.metrics["prefill_tps"] == prefill["avg_ts"]
    assert got.metrics["decode_tps"] == decode["avg_ts"]
    assert got.samples["prefill_tps"] == pytest.approx(prefill["samples_ts"], rel=1e-4)
    assert got.samples["decode_tps"] == pytest.approx(decode["samples_ts"], rel=1e-4)
    by_tool = max(100 * row["stddev_ts"] / row["avg_ts"] for row in (prefill, decode))
    assert got.metrics["stdev_pct"] == pytest.approx(by_tool, rel=1e-3)
    assert got.metrics["decode_bw_GBs"] == pytest.approx(decode["avg_ts"] * decode["model_size"] / 1e9)
    assert "bw_utilization_pct" not in got.metrics  # no peak was declared
    assert got.backend["build"] == "11669 Debian"
    assert got.backend["version"] == "0.7.0"
    assert got.backend["execution_provider"] == "CPU"
    assert got.workload["weight_bytes"] == 16_152_192
    assert got.workload["params"] == pytest.approx(0.015191712)
    assert not got.warnings


def test_every_setting_of_a_request_is_found_again_in_its_rows() -> None:
    asked = point(context_tokens=32, batch_size=128, flash_attention=True, kv_quantization="q8_0")
    got = parse(captured("good-depth-cache-batch"), asked)
    assert got.ok, got.message
    assert (got.workload["kv_quantization"], got.workload["batch_size"]) == ("q8_0", 128)


def test_one_kind_of_token_gives_one_row() -> None:
    got = parse(captured("decode-only"), point(prompt_tokens=0))
    assert got.ok, got.message
    assert "prefill_tps" not in got.metrics


def test_one_repetition_has_no_spread_instead_of_a_spread_of_zero() -> None:
    assert rows_of("good-one-repetition")[0]["stddev_ts"] == 0  # so says the tool
    got = parse(captured("good-one-repetition"), point(repetitions=1))
    assert got.ok
    assert "stdev_pct" not in got.metrics


def test_bandwidth_is_compared_with_the_declared_peak_and_never_clamped() -> None:
    got = parse(captured("good"), dram_peak_GBs=1000.0)
    assert got.metrics["bw_utilization_pct"] == pytest.approx(got.metrics["decode_bw_GBs"] / 10)
    assert not got.warnings
    got = parse(captured("good"), dram_peak_GBs=0.5)
    assert got.metrics["bw_utilization_pct"] > 100
    assert "dram_peak_GBs" in got.warnings[0]


def test_headlines_name_units() -> None:
    assert LlamaCpp().headline({"prefill_tps": 56.84, "decode_tps": 15.6}) == "prefill 56.8 t/s, decode 15.6 t/s"
    assert LlamaCpp().headline({"ttft_ms": 120.4, "decode_tps": 15.6}) == "first token 120 ms, decode 15.6 t/s"
    assert LlamaCpp().headline({}) == ""


# -- the five rules ---------------------------------------------------------------------------------------------------

Change = Callable[[list[dict[str, Any]]], None]


def change(index: int, **fields: Any) -> Change:
    return lambda rows: rows[index].update(fields)


def drop(index: int, field: str) -> Change:
    def apply(rows: list[dict[str, Any]]) -> None:
        del rows[index][field]

    return apply


@pytest.mark.parametrize(
    ("breaking", "message"),
    [
        (lambda rows: rows.pop(), "1 result rows where 2"),
        (lambda rows: rows.append(dict(rows[0])), "3 result rows where 2"),
        (lambda rows: rows.__setitem__(1, dict(rows[0])), "asked for was one prefill row"),
        (change(0, samples_ns=[1, 2]), "2 samples where 3"),
        (change(1, samples_ns=[1, 2, 3, 4]), "4 samples where 3"),
        (drop(0, "samples_ns"), "0 samples where 3"),
        (change(0, samples_ns="x"), "0 samples where 3"),
        (change(0, samples_ns=[1, 0, 1]), "no number of nanoseconds above 0"),
        (change(0, samples_ns=[1, None, 1]), "no number of nanoseconds above 0"),
        (change(0, avg_ts=0.0), "0.0 as its average"),
        (change(1, avg_ts=-1.0), "-1.0 as its average"),
        (change(1, avg_ts=math.nan), "NaN as its average"),
        (change(1, avg_ts=math.inf), "Infinity as its average"),
        (change(1, avg_ts=None), "null as its average"),
        (drop(1, "avg_ts"), "null as its average"),
        (change(0, n_prompt=32), "asked for was one prefill row"),
        (change(1, n_gen=128), "asked for was one decode row"),
        (change(1, n_threads=2), "n_threads = 2, asked for was 1"),
        (change(1, n_depth=512), "n_depth = 512, asked for was 0"),
    ],
)
def test_a_broken_rule_is_a_failed_result_that_names_it(breaking: Change, message: str) -> None:
    rows = rows_of("good")
    breaking(rows)
    got = parse(as_result(rows))
    assert not got.ok
    assert message in (got.message or "")
    assert not got.metrics


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"kv_quantization": "q8_0"}, "type_k"),
        ({"batch_size": 512}, "n_batch"),
        ({"flash_attention": True}, "flash_attn"),
        ({"context_tokens": 16}, "n_depth"),
    ],
)
def test_rows_for_another_request_are_no_result(settings: dict[str, Any], field: str) -> None:
    got = parse(captured("good"), point(**settings))
    assert not got.ok
    assert field in (got.message or "")


def test_rows_of_builds_before_a_flag_existed_are_read() -> None:
    rows = rows_of("good")
    for row in rows:
        del row["n_depth"]
        row["flash_attn"] = True
    assert parse(as_result(rows), point(flash_attention=True)).ok
    assert not parse(as_result(rows), point(context_tokens=8)).ok
    assert not parse(as_result(rows), point(flash_attention=False)).ok


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("stdout-full", ["0 result rows where 2", "stdout is empty"]),
        ("repeated-flag", ["6 result rows where 2"]),
        ("repetitions-0", ["0 samples where 3"]),
        ("unknown-flag", ["exit status 1", "--bogus", "flags come and go"]),
        ("missing-model", ["exit status 1", "failed to load model"]),
        ("truncated-model", ["failed to load model", "sha256", "bench_args: [-v]"]),
        ("html-as-model", ["failed to load model"]),
        ("empty-model", ["failed to load model"]),
        ("cache-does-not-fit", ["failed to create context", "did not fit in memory"]),
        ("quantised-v-without-flash-attention", ["failed to create context", "flash attention"]),
        ("abort", ["signal 6 (SIGABRT)", "GGML_ASSERT"]),
        ("killed-sigterm", ["signal 15 (SIGTERM)", "nothing on stderr"]),
        ("killed-sigkill", ["signal 9 (SIGKILL)", "nothing on stderr"]),
        ("killed-sigsegv", ["signal 11 (SIGSEGV)", "nothing on stderr"]),
    ],
)
def test_a_failed_run_says_how_it_failed(name: str, messages: list[str]) -> None:
    got = parse(captured(name))
    assert not got.ok
    assert not got.metrics
    for message in messages:
        assert message in (got.message or "")


def test_every_capture_is_used_by_a_test() -> None:
    here = "".join(path.read_text() for path in (*CAPTURES.parent.parent.glob("**/test_*.py"),))
    assert not [name for name in INDEX if f'"{name}"' not in here]


def test_a_flood_that_pushed_rows_out_of_the_kept_output_is_no_result() -> None:
    good = captured("good").stdout.head
    cut = Output(good[:100], good[-100:], total_bytes=10_000_000)
    raw = RawResult("done", 0, 1.0, cut, Output(b"", b"", 0))
    with pytest.raises(ParseError):  # the first row is torn
        parse(raw)
    noise = Output(b"x" * 100, b"y" * 100, total_bytes=10_000_000)
    got = parse(RawResult("done", 0, 1.0, noise, Output(b"", b"", 0)))
    assert "9999800 of them not kept" in (got.message or "")


def test_a_line_that_is_no_text_is_a_parse_error() -> None:
    with pytest.raises(ParseError, match="line 1"):
        parse(result(b'{"n_prompt": \xff\xfe}\n'))
