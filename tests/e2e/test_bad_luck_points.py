"""Everything that can go wrong with a point, in one lab: each failure has its class and says what happened; the good
points beside are measured."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from e2e.helpers_badluck import QUICK_RETRY, by_tag, python, running
from plugin.helpers_plugin import LabFolder, Run, Snakemake
from workloads.helpers_gguf import write_tiny_model

LEFT_BEHIND = "8640123"  # seconds of sleep: a name by which the left-over processes are found


class Case(NamedTuple):
    block: dict[str, Any]
    failure: str | None  # the class; None: it is measured
    says: str = ""


CASES = {
    "good": Case(python("print('value=1')"), None),
    "exit": Case(
        python("import sys; print('value=1'); sys.exit('cannot open the sensor')"),
        "measurement",
        r"^exit status 1: cannot open the sensor$",
    ),
    "half": Case(
        python("import sys; print('value=1'); sys.stdout.flush(); sys.exit(3)"),
        "measurement",
        r"^exit status 3, nothing on stderr$",
    ),
    "crash": Case(
        python("import os, signal; print('value=1', flush=True); os.kill(os.getpid(), signal.SIGSEGV)"),
        "measurement",
        r"signal 11 \(SIGSEGV\)",
    ),
    "killed": Case(
        python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
        "measurement",
        r"signal 9 \(SIGKILL\)",
    ),
    "time-out": Case(
        python(
            "import subprocess, time; print('value=1', flush=True);"
            f"subprocess.Popen(['sleep', '{LEFT_BEHIND}']);"
            f"subprocess.Popen(['sleep', '{LEFT_BEHIND}'], start_new_session=True); time.sleep(600)",
            extra={"timeout_s": 0.5},
        ),
        "measurement",
        r"did not end within its time limit of 0\.5 s.*extra\.timeout_s",
    ),
    "evicted": Case(
        python("import os, signal; os.kill(os.getpid(), signal.SIGTERM)"),
        "not_attempted",
        r"^not attempted: preempted 6 times on here \(last: .*SIGTERM.*\)\. Run the same command again",
    ),
    "no-metric": Case(python("print('nothing to see')"), "measurement", r"printed no value$"),
    "nothing": Case(python("pass"), "measurement", r"printed no value$"),
    "no-rows": Case(python("pass", metrics="json"), "parse", r"no line of stdout starts a JSON object \(0 bytes"),
    "cut-json": Case(
        python("print('{\"value\": 1, \"oth', end='')", metrics="json"),
        "parse",
        r"JSON object on stdout cannot be read: .*ending '\{\"value\": 1, \"oth'",
    ),
    "not-a-number": Case(python("print('value=twelve')"), "parse", r"metric value: 'twelve' is not a number"),
    "nan": Case(python("print('value=nan')"), "measurement", r"not a finite number: value = nan"),
    "nan-json": Case(
        python("print('{\"value\": NaN}')", metrics="json"), "measurement", r"not a finite number: value = nan"
    ),
    "huge": Case(
        python("import sys\nfor i in range(200000): sys.stdout.write('line %07d of noise\\n' % i)\nprint('value=8')"),
        None,
    ),
    "latin": Case(python("import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\x00 caf\\xe9\\nvalue=9\\n')"), None),
    "no-binary": Case(
        {"backend": "command", "command": ["/no/such/program"]}, "measurement", r"^/no/such/program: no such program"
    ),
    "no-folder": Case(
        python("print('value=1')", extra={"cwd": "/no/such/folder"}),
        "measurement",
        r"cannot enter the folder /no/such/folder",
    ),
}


def llama(model: str) -> dict[str, Any]:
    return {
        "backend": "llama",
        "mode": "throughput",
        "models": [model],
        "prompt_tokens": 8,
        "output_tokens": 4,
        "threads": 1,
        "repetitions": 1,
    }


LLAMA_CASES = {
    "good-model": Case(llama("whole"), None),
    "no-model": Case(llama("absent"), "config", r"^model absent: \S+/models/absent\.gguf is not on this device"),
    "corrupt-model": Case(llama("magic"), "measurement", r"failed to load model .*models/magic\.gguf.*GGUF"),
    "cut-model": Case(llama("cut"), "measurement", r"failed to load model .*models/cut\.gguf.*file bounds.*sha256"),
    "noise-model": Case(llama("noise"), "config", r"^model noise: \S+/models/noise\.gguf has SHA-256 .* declared is"),
}


@pytest.fixture(scope="module")
def swept(snakemake: Snakemake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LabFolder, Run]]:
    lab = LabFolder(snakemake, tmp_path_factory.mktemp("bad") / "lab")
    models = lab.folder / "models"
    models.mkdir()
    whole = write_tiny_model(models / "whole.gguf").read_bytes()
    (models / "magic.gguf").write_bytes(b"NOPE" + whole[4:])
    (models / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    (models / "noise.gguf").write_bytes(whole[:-65536] + bytes(65536))
    declared = hashlib.sha256(whole).hexdigest()
    paths: dict[str, dict[str, str]] = {
        name: {"path": f"models/{name}.gguf"} for name in ("whole", "absent", "magic", "cut", "noise")
    }
    paths["whole"]["sha256"] = paths["noise"]["sha256"] = declared
    matrix = [{**case.block, "tags": [name]} for name, case in {**CASES, **LLAMA_CASES}.items()]
    lab.configure(
        {
            "experiment": "demo",
            "devices": {"here": {"kind": "local"}},
            "policy": QUICK_RETRY,
            "models": paths,
            "defaults": {"devices": ["here"]},
            "matrix": matrix,
        }
    )
    yield lab, lab.run("--logger", "sidewinder")
    for path in models.iterdir():  # 60 MB that pytest would keep
        path.unlink()


@pytest.fixture(scope="module")
def found(swept: tuple[LabFolder, Run]) -> dict[str, dict[str, Any]]:
    return by_tag(swept[0].folder / "runs/demo")


@pytest.mark.parametrize("name", [*CASES, *LLAMA_CASES])
def test_each_has_its_class_and_says_what_happened(found: dict[str, dict[str, Any]], name: str) -> None:
    case, record = {**CASES, **LLAMA_CASES}[name], found[name]
    if case.failure is None:
        assert record["status"] == "ok", record["error"]
        assert "failure" not in record
        return
    assert record["status"] == "failed"
    assert record["failure"]["class"] == case.failure, record["error"]
    assert re.search(case.says, record["failure"]["message"], re.S), record["failure"]["message"]
    assert record["error"] == record["failure"]["message"]
    assert "value" not in record.get("metrics", {}), "what a failed run printed is no measurement"
    assert len(record["attempts"]) == (6 if name == "evicted" else 1), "a result is never tried again"


def test_an_attempt_that_was_lost_says_why(found: dict[str, dict[str, Any]]) -> None:
    assert [one["outcome"] for one in found["evicted"]["attempts"]] == ["lost"] * 6
    assert {one["class"] for one in found["evicted"]["attempts"]} == {"preempted"}
    assert sum("was repeated" in warning for warning in found["evicted"]["warnings"]) == 5


def test_a_run_over_time_leaves_no_process(found: dict[str, dict[str, Any]]) -> None:
    assert found["time-out"]["status"] == "failed"
    assert running(LEFT_BEHIND) == []


def test_of_a_huge_output_head_and_tail_are_kept_and_the_rest_is_counted(
    swept: tuple[LabFolder, Run], found: dict[str, dict[str, Any]]
) -> None:
    record = found["huge"]
    assert record["raw"]["stdout_bytes"] == 200_000 * len("line 0000000 of noise\n") + len("value=8\n")
    assert any("were not kept and not searched" in warning for warning in record["warnings"])
    folder = swept[0].folder / "runs/demo" / record["raw"]["dir"]
    head, tail = ((folder / f"1.stdout.{part}").read_bytes() for part in ("head", "tail"))
    assert head.startswith(b"line 0000000 of noise\n")
    assert tail.endswith(b"value=8\n")
    assert len(head) == len(tail) == 131_072


def test_bytes_that_are_no_text_are_kept_as_they_are(
    swept: tuple[LabFolder, Run], found: dict[str, dict[str, Any]]
) -> None:
    record = found["latin"]
    assert record["metrics"]["value"] == 9
    (kept,) = (swept[0].folder / "runs/demo" / record["raw"]["dir"]).glob("*stdout*")
    assert kept.read_bytes() == b"\xff\xfe\x00 caf\xe9\nvalue=9\n"


def test_the_run_ends_honestly_and_each_line_says_which_point(
    swept: tuple[LabFolder, Run], found: dict[str, dict[str, Any]]
) -> None:
    _, run = swept
    cases = {**CASES, **LLAMA_CASES}
    bad = [name for name, case in cases.items() if case.failure is not None]
    assert run.rc == 1
    assert f"{len(bad)} of {len(cases)} points are open" in run.text
    assert f"{len(cases) - len(bad)} of {len(cases)} points are measured" in run.text
    assert "Traceback" not in run.text
    lines = re.findall(r"^\[ *\d+/\d+\] (?:HOLE )?here (.*?): ", run.text, re.M)
    assert len(lines) == len(set(lines)) == len(cases), "two lines about different points look the same"
    for name in ("exit", "crash", "nan"):
        assert f"{found[name]['run_id'][-12:]}: FAILED ({found[name]['failure']['class']})" in run.text


def test_the_report_names_every_open_point(swept: tuple[LabFolder, Run], found: dict[str, dict[str, Any]]) -> None:
    summary = swept[0].folder / "runs/demo/summary"
    told = json.loads((summary / "holes.json").read_text())
    assert (told["planned"], told["done"]) == (len(found), 4)
    holes = told["open"]
    bad = {record["run_id"]: record for record in found.values() if record["status"] != "ok"}
    assert {hole["run_id"] for hole in holes} == set(bad)
    for hole in holes:
        assert hole["device"] == "here"
        assert hole["reason"] == bad[hole["run_id"]]["failure"]["message"]
        assert hole["command"].startswith("sidewinder measure ")
        assert os.path.basename(hole["command"].strip("'\"")) == f"{hole['run_id']}.json"
    (exit_one,) = (hole for hole in holes if hole["run_id"] == found["exit"]["run_id"])
    assert exit_one["log"] == ["cannot open the sensor"]
    page = (summary / "report.html").read_text(encoding="utf-8")
    assert all(run_id in page for run_id in bad)


def test_the_same_command_is_about_exactly_the_open_points(
    swept: tuple[LabFolder, Run], found: dict[str, dict[str, Any]]
) -> None:
    listed = swept[0].run("-n").text
    bad = {record["run_id"] for record in found.values() if record["status"] != "ok"}
    assert set(re.findall(r"^    output: \S*records/here/(\S+)\.json", listed, re.M)) == bad


def test_kept_files_are_whole(swept: tuple[LabFolder, Run]) -> None:
    root = swept[0].folder / "runs/demo"
    assert not list(root.rglob("*.partial"))
    for line in (root / "journal.jsonl").read_bytes().splitlines():
        json.loads(line)
