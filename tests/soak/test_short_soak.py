"""A soak of a minute: a sweep on three hosts with some bad luck keeps every promise, and each check can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netns.lab_hosts import why_not
from soak.evidence import EVIDENCE, Evidence, Execution, copy_to
from soak.promises import PROMISES, check

REPO = Path(__file__).resolve().parents[2]
PATIENCE_S = 900.0


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another night: ``SEED=7 pytest tests/soak``."""
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("soak")
    environ = {**os.environ, "SHORT": "1", "POINTS": "24", "FOLDER": str(folder)}
    environ["SEED"] = os.environ.get("SEED") or "1"
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak"], cwd=REPO, env=environ, capture_output=True, text=True, timeout=PATIENCE_S
    )
    print(done.stdout)
    logs = "".join(f"{path.name}\n{path.read_text()[-3000:]}" for path in sorted(folder.glob("controller-*.log")))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    return folder


@pytest.fixture
def folder(soaked: Path, tmp_path: Path) -> Path:
    return copy_to(soaked, tmp_path)


def test_a_short_soak_keeps_every_promise(soaked: Path) -> None:
    evidence = Evidence(soaked)
    verdicts = check(evidence)
    assert [verdict.number for verdict in verdicts] == list(range(1, 13))
    assert [str(verdict) for verdict in verdicts if verdict.broken] == []
    assert any(one["code"] == -9 for one in evidence.invocations), "no controller was killed"
    assert len({fault.kind for fault in evidence.faults if fault.hit}) >= 3
    assert len(evidence.executions) >= 24


# -- each check, on evidence that somebody tampered with ---------------------------------------------------------------


def _edit(path: Path, change: Callable[[Any], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def _append(folder: Path, name: str, *lines: dict[str, Any]) -> None:
    with open(folder / "runs/soak" / f"{name}.jsonl", "a") as log:
        log.writelines(json.dumps(line) + "\n" for line in lines)


def _record(folder: Path, kind: str = "ok") -> Path:
    points = Evidence(folder).points
    point = next(point for point in points.values() if point["kind"] == kind)
    return folder / "runs/soak/records" / point["device"] / f"{point['run_id']}.json"


def _an_execution(folder: Path, host: str = "h3") -> Execution:
    """A whole one of an ok point, which nothing deadly was near."""
    evidence = Evidence(folder)
    kinds = {point["run_id"]: point["kind"] for point in evidence.points.values()}
    return next(
        one
        for one in evidence.executions
        if one.host == host
        and one.complete
        and kinds.get(one.run_id) == "ok"
        and not evidence.deadly(one, one.start_s - 1, one.last_s + 3)
    )


def _trace(folder: Path, one: Execution) -> Path:
    (path,) = (folder / EVIDENCE / "witness" / one.host).glob(f"{one.start_ns}-*")
    return path


def _shifted(folder: Path, one: Execution, by_s: float, host: str | None = None) -> None:
    """The same execution once more, at another time."""
    head, last, *rest = _trace(folder, one).read_text().splitlines()
    by_ns = int(by_s * 1e9)
    told = json.loads(head)
    told["start_ns"] += by_ns
    path = folder / EVIDENCE / "witness" / (host or one.host) / f"{told['start_ns']}-1"
    path.write_text("\n".join([json.dumps(told), f"{int(last) + by_ns:20}", *rest]) + "\n")


def _lose_a_record(folder: Path) -> None:
    _record(folder).unlink()


def _run_an_accepted_failure_again(folder: Path) -> None:
    evidence = Evidence(folder)
    point = next(point for point in evidence.points.values() if "accepted_s" in point)
    _shifted(folder, evidence.runs_of(point["run_id"])[-1], 1000.0)


def _adopt_in_silence(folder: Path) -> None:
    path = _record(folder)
    record = json.loads(path.read_text())
    record["warnings"] = []
    path.write_text(json.dumps(record))
    n = record["attempts"][-1]["n"]
    _append(folder, "retries", {"event": "adopted", "run_id": path.stem, "device": path.parent.name, "attempt": n})


def _run_elsewhere(folder: Path) -> None:
    path = _trace(folder, _an_execution(folder))
    path.rename(folder / EVIDENCE / "witness/h1" / path.name)


def _two_of_a_group(folder: Path) -> None:
    _shifted(folder, _an_execution(folder, "h1"), 0.01, "h2")


def _claim_while_it_is_down(folder: Path) -> None:
    down = {"event": "breaker", "device": "h1", "state": "open", "change": "device_down"}
    times = {"utc": "2100-01-01T00:00:00.000+00:00", "next_probe_utc": "2100-01-01T00:00:08.000+00:00"}
    claimed = {"event": "claimed", "run_id": "x", "n": 1, "device": "h1", "utc": "2100-01-01T00:00:01.000+00:00"}
    _append(folder, "journal", {**down, **times}, claimed)


def _measure_twice(folder: Path) -> None:
    _shifted(folder, _an_execution(folder), 1000.0)


def _leave_something(folder: Path) -> None:
    _edit(folder / EVIDENCE / "left.json", lambda left: left.update(h2=["sleep 1000"]))


def _another_value(folder: Path) -> None:
    _edit(_record(folder), lambda record: record["metrics"].update(value=123456))


def _die_of_nothing(folder: Path) -> None:
    path = _trace(folder, _an_execution(folder))
    path.write_text(path.read_text().replace("ended\n", ""))


def _two_at_once(folder: Path) -> None:
    one = _an_execution(folder)
    _shifted(folder, one, (one.last_s - one.start_s) / 2)
    path = max((folder / EVIDENCE / "witness" / one.host).glob("*-1"))
    told, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(told), "n": 9}), *rest]) + "\n")


def _local_time(folder: Path) -> None:
    _edit(_record(folder), lambda record: record.update(timestamp_utc="2026-12-01 12:00:00"))


def _null(folder: Path) -> None:
    _edit(_record(folder), lambda record: record["metrics"].update(value=None))


def _zero(folder: Path) -> None:
    _edit(_record(folder, "exit"), lambda record: record["metrics"].update(value=0))


def _no_report(folder: Path) -> None:
    (folder / "runs/soak/summary/report.html").unlink()


@pytest.mark.parametrize(
    ("number", "spoil"),
    [
        (1, _lose_a_record),
        (2, _run_an_accepted_failure_again),
        (3, _adopt_in_silence),
        (4, _run_elsewhere),
        (5, _two_of_a_group),
        (6, _claim_while_it_is_down),
        (7, _measure_twice),
        (7, _leave_something),
        (7, _another_value),
        (8, _die_of_nothing),
        (9, _two_at_once),
        (10, _local_time),
        (11, _null),
        (11, _zero),
        (12, _no_report),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else str(value),
)
def test_a_check_sees_a_broken_promise(number: int, spoil: Callable[[Path], None], folder: Path) -> None:
    spoil(folder)
    verdict = check(Evidence(folder))[number - 1]
    assert verdict.broken, PROMISES[number - 1].__name__
    assert str(verdict).startswith(f"promise {number}: BROKEN")
