"""B37, through agent and record: a llama-bench with noisy, cut or absurd output, or that crashes at its exit, costs its
own point and no other.

The program is a script that replays what the real one printed (tests/data/llama-bench).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.helpers_engine import make_plan, record, run
from sidewinder.model import Device
from workloads.helpers_llama import CAPTURES

GOOD = (CAPTURES / "good.stdout").read_bytes()
NOISY = (CAPTURES / "noise-before-jsonl.stdout").read_bytes()
CUT = (CAPTURES / "cut-jsonl.stdout").read_bytes()
ABSURD = b"".join(
    json.dumps({**json.loads(line), "stddev_ts": float("nan")}).encode() + b"\n" for line in GOOD.splitlines()
)
# what each of the points gets to see: stdout, and how the program ends
STORIES: dict[str, tuple[bytes, str]] = {
    "good": (GOOD, "0"),
    "noise": (NOISY, "0"),
    "cut": (CUT, "0"),
    "crash": (GOOD, "SEGV"),
    "absurd": (ABSURD, "0"),
    "refused": (b"", "1"),
    "empty": (b"", "0"),
    "flag": ((CAPTURES / "unknown-flag.stdout").read_bytes(), "1"),
}
STDERR = {
    "refused": b"main: error: failed to load model\n",
    "flag": (CAPTURES / "unknown-flag.stderr").read_bytes(),
}
PROGRAM = """\
#!{python} -SE
import os, signal, sys
if "--help" in sys.argv or "-h" in sys.argv:
    print("usage: llama-bench -m -p -n -d -t -r -o --no-warmup jsonl"); sys.exit(0)
story = os.path.basename(sys.argv[sys.argv.index("-m") + 1])[:-5]
folder = {folder!r}
os.write(1, open(os.path.join(folder, story + ".out"), "rb").read())
how = open(os.path.join(folder, story + ".how")).read()
if how == "SEGV":
    os.kill(os.getpid(), signal.SIGSEGV)
os.write(2, open(os.path.join(folder, story + ".err"), "rb").read())
sys.exit(int(how))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("bench")
    binary = folder / "bin/llama-bench"
    binary.parent.mkdir()
    binary.write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
    binary.chmod(0o755)
    (folder / "models").mkdir()
    points = []
    for name, (stdout, how) in STORIES.items():
        (folder / f"{name}.out").write_bytes(stdout)
        (folder / f"{name}.how").write_text(how)
        (folder / f"{name}.err").write_bytes(STDERR.get(name, b""))
        model = folder / "models" / f"{name}.gguf"
        model.write_bytes(b"GGUF")
        points.append(
            {
                "backend": "llamacpp",
                "mode": "throughput",
                "model": name,
                "model_path": str(model),
                "prompt_tokens": 64,
                "output_tokens": 16,
                "threads": 1,
                "repetitions": 3,
            }
        )
    bench = Device(
        "local",
        "local",
        settings={"state_dir": str(folder / "agent")},
        backends={"llamacpp": {"bin_dir": str(binary.parent)}},
    )
    root = Path(folder / "runs")
    plan = make_plan(root, points, devices=[bench])
    run(root, plan)
    return {point.model: record(root, plan, run_id) for run_id, point in plan.points.items()} | {"root": root}


@pytest.mark.parametrize("name", ["good", "noise", "absurd"])
def test_what_is_clearly_the_measurement_is_one(found: dict[str, Any], name: str) -> None:
    assert found[name]["status"] == "ok", found[name].get("error")
    assert found[name]["metrics"]["prefill_tps"] > 0
    assert found[name]["metrics"]["stdev_pct"] > 0, "of the repeats, whatever the program made of them"


@pytest.mark.parametrize(
    ("name", "failure", "says"),
    [
        ("cut", "parse", "no whole JSON object"),
        ("crash", "measurement", "signal 11 (SIGSEGV)"),
        ("refused", "measurement", "failed to load model"),
        ("empty", "measurement", "0 result rows where 2"),
        ("flag", "measurement", "invalid parameter for argument"),
    ],
)
def test_all_else_fails_alone_with_its_output_kept(found: dict[str, Any], name: str, failure: str, says: str) -> None:
    one = found[name]
    assert one["failure"]["class"] == failure
    assert says in one["error"]
    assert not {"prefill_tps", "decode_tps"} & set(one["metrics"]), "never a figure, not even 0"
    printed = STORIES[name][0]
    assert one["raw"]["stdout_bytes"] == len(printed)
    if printed:
        assert (found["root"] / one["raw"]["dir"] / "1.stdout").read_bytes() == printed
