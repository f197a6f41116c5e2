"""Finding llama.cpp on a device, three-valued (found, absent, could not look), and building its command line."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidewinder.errors import ConfigError, DeviceFault, TransportError
from sidewinder.model import Found
from sidewinder.workloads.llamacpp import WELL_KNOWN, LlamaCpp
from workloads.helpers_llama import View, device, point

BENCH, SERVER = "/opt/l/llama-bench", "/opt/l/llama-server"
VERSION = (0, b"version: 0.7.0 (build 11669, commit Debian)\nbuilt with GNU 16.2.0\n", b"load_backend: x\n")
BLOCK = {"bin_dir": "/opt/l/"}


def discover(view: View, settings: dict[str, Any]) -> Found:
    return asyncio.run(LlamaCpp().discover(view, settings))


def test_both_programs_are_found_in_one_look_each() -> None:
    view = View(existing={BENCH: BENCH, SERVER: SERVER}, answers={BENCH: VERSION, SERVER: VERSION})
    found = discover(view, BLOCK)
    assert (found.binary, found.version) == (BENCH, "0.7.0 (build 11669, commit Debian)")
    assert found.details["programs"]["llama-server"]["binary"] == SERVER
    assert [len(looked) for looked in view.looked] == [2, 2]


def test_without_a_block_the_well_known_folders_are_tried_in_order() -> None:
    late, early = f"{WELL_KNOWN[-1]}/llama-bench", f"{WELL_KNOWN[0]}/llama-bench"
    real = "/home/u/llama.cpp/build/bin/llama-bench"
    view = View(existing={late: late, early: real}, answers={real: VERSION})
    assert discover(view, {}).binary == real
    assert len(view.looked[0]) == 2 * len(WELL_KNOWN)


def test_a_declared_folder_is_never_replaced_by_another_build() -> None:
    elsewhere = f"{WELL_KNOWN[0]}/llama-bench"
    view = View(existing={elsewhere: elsewhere})
    with pytest.raises(DeviceFault, match=r"no llama-bench and no llama-server in llamacpp\.bin_dir /opt/l/"):
        discover(view, BLOCK)


def test_absent_says_where_was_looked_and_what_to_do() -> None:
    with pytest.raises(DeviceFault, match=r"get_llama_bench\.sh") as absent:
        discover(View(), {})
    assert WELL_KNOWN[0] in str(absent.value)


def test_could_not_look_is_not_absent() -> None:
    class Unreachable(View):
        async def first_existing(self, paths: Any) -> str | None:
            raise TransportError("the link is gone")

    with pytest.raises(TransportError):
        discover(Unreachable(), {})


def test_an_old_build_without_a_version_flag_is_found_without_a_version() -> None:
    old = (1, b"usage: llama-bench\n", b"error: invalid parameter for argument: --version\n")
    found = discover(View(existing={BENCH: BENCH}, answers={BENCH: old}), BLOCK)
    assert (found.binary, found.version) == (BENCH, None)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((127, b"", b"llama-bench: error while loading shared libraries: libllama.so.0\n"), "libllama.so.0"),
        ((-4, b"", b""), "status -4"),
        (FileNotFoundError(BENCH), "cannot be started"),
    ],
)
def test_a_program_that_does_not_run_is_a_fault_of_the_device(answer: Any, words: str) -> None:
    with pytest.raises(DeviceFault, match=words):
        discover(View(existing={BENCH: BENCH}, answers={BENCH: answer}), BLOCK)


def test_the_blocks_environment_is_that_of_discovery_too() -> None:
    view = View(existing={BENCH: BENCH}, answers={BENCH: VERSION})
    discover(view, {**BLOCK, "env": {"LD_LIBRARY_PATH": "/opt/l"}})
    assert view.ran == [("env", "LD_LIBRARY_PATH=/opt/l", BENCH, "--version")]


@pytest.mark.parametrize("block", [{"bin_dir": 3}, {"bin_dir": ""}, {"bin_dir": "/x", "env": "A=b"}])
def test_a_block_that_cannot_be_meant_is_refused(block: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"llamacpp\.(bin_dir|env)"):
        discover(View(), block)


def test_a_missing_server_fails_its_points_and_no_others() -> None:
    found = discover(View(existing={BENCH: BENCH}, answers={BENCH: VERSION}), BLOCK)
    assert LlamaCpp().build_task(point(), device(), found).argv[0] == BENCH
    with pytest.raises(ConfigError, match="no llama-server"):
        LlamaCpp().build_task(point(mode="latency"), device(), found)


# -- command lines ----------------------------------------------------------------------------------------------------

FOUND = Found(details={"programs": {"llama-bench": {"binary": BENCH, "version": None}}})


def argv(**settings: Any) -> tuple[str, ...]:
    return LlamaCpp().build_task(point(**settings), device(), FOUND).argv


def test_a_point_asks_for_exactly_what_it_says() -> None:
    plain = f"{BENCH} -m /srv/models/tiny.gguf -o jsonl -r 3 -p 64 -n 16"
    assert " ".join(argv(threads=None)) == plain
    assert argv(prompt_tokens=1, threads=None)[7:11] == ("-p", "1", "-n", "16")  # not raised to 32
    everything = argv(
        context_tokens=32,
        batch_size=128,
        flash_attention=False,
        kv_quantization="f32",
        warmup=0,
        extra={"bench_args": "-ub 64 --numa distribute"},
    )
    tail = "-t 1 -d 32 -b 128 -fa 0 -ctk f32 -ctv f32 --no-warmup -ub 64 --numa distribute"
    assert " ".join(everything) == f"{plain} {tail}"


def test_no_debugger_is_started_unless_somebody_asks_for_it() -> None:
    declared = device(env={"GGML_NO_BACKTRACE": "2"})
    assert LlamaCpp().build_task(point(), declared, FOUND).env["GGML_NO_BACKTRACE"] == "2"
    assert LlamaCpp().build_task(point(), device(), FOUND).env["GGML_NO_BACKTRACE"] == "1"
    asked = point(extra={"env": {"GGML_NO_BACKTRACE": "0"}})
    assert LlamaCpp().build_task(asked, device(), FOUND).env["GGML_NO_BACKTRACE"] == "0"


@pytest.mark.parametrize(
    "args",
    [
        ["-t", "1,2"],
        ["--threads", 4],
        "-p 512",
        "--n-gen 5",
        "-pg 128,32",
        "-r 9",
        "-o json",
        "-m other.gguf",
        "-hf a/b",
        "-ub 64,128",
        "-ub 64-128",
        "-ub 64-1024*2",
        "-ub 64 -ub 128",
        "-ngl 'unclosed",
        {"-ub": 64},
        [["-ub"]],
        [True],
    ],
    ids=str,
)
def test_arguments_that_would_multiply_or_replace_the_point_are_refused(args: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        LlamaCpp().validate(point(extra={"bench_args": args}))
    assert refused.value.key == "extra.bench_args"


@pytest.mark.parametrize("args", [["-ngl", -1], "-ngl 99 -ts 3/1", "-v", ["-ot", "a=CPU;b=CPU"], None])
def test_other_arguments_are_passed_on(args: Any) -> None:
    LlamaCpp().validate(point(extra={"bench_args": args}))


def test_a_flag_is_free_where_the_point_leaves_it_open() -> None:
    LlamaCpp().validate(point(threads=None, extra={"bench_args": "-t 2"}))


def test_more_than_one_warm_up_is_more_than_llama_bench_can() -> None:
    LlamaCpp().validate(point(warmup=1))
    with pytest.raises(ConfigError, match="warmup"):
        LlamaCpp().validate(point(warmup=2))
