"""`sidewinder devices` and `devices release`: the board of a lab, from the journal alone."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from sidewinder import cli
from sidewinder.files import journal, schedule
from sidewinder.files.lock import ControllerLock

ROOT = "runs/board"
LAB = """\
experiment: board
output_dir: runs/board
devices: {local: {}, pi5: {host: pi5.lan}, pi4: {host: pi4.lan}, new: {host: new.lan}}
matrix: [{backend: command, devices: [local, pi5, pi4, new], command: ["true"]}]
"""
DOWN = {
    "change": "probe_failed",
    "reason": "connection reset",
    "evidence": "no route to host",
    "down_since_utc": "2026-01-01T00:00:00+00:00",
    "next_probe_utc": "2026-01-01T00:10:00+00:00",
}


@pytest.fixture
def say(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/lab.yaml").write_text(LAB)

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(["devices", *words])
        return code, *capsys.readouterr()

    return call


def wrote(*lines: dict[str, object]) -> None:
    log = journal.Journal(ROOT)
    for line in lines:
        log.append(line)
    log.close()


def quarantined() -> dict[str, object]:
    return journal.breaker("pi4", "quarantined", "2026-01-01T00:00:01+00:00", change="quarantined", reason="disk full")


def test_the_board_names_state_reason_evidence_and_next_probe(say: Callable[..., tuple[int, str, str]]) -> None:
    wrote(journal.breaker("pi5", "open", "2026-01-01T00:07:00+00:00", **DOWN), quarantined())
    schedule.publish(ROOT, {"by_device": {"local": {"ok": 1, "failed": 0}}, "device_transport_failures": {"pi5": 7}})
    code, out, _ = say()
    assert code == 1
    blocks = out.split("\n")
    assert blocks[0] == "local  up"
    assert "pi5    down since 2026-01-01T00:00:00+00:00" in out
    for words in ("reason: connection reset", "last seen: no route to host", "7 failures on the way"):
        assert words in out
    assert out.count("next probe: at the start of the next run") == 2
    assert "sidewinder devices release pi4" in out
    assert "new    unknown" in out, "nobody has told: unknown is its own answer"
    assert "last seen: quarantined" not in out, "the change that brought it is no evidence"
    assert out.endswith("unknown: no run has told of it yet; to look now: sidewinder doctor\n")


def test_beside_a_running_sweep_the_next_probe_has_its_time(say: Callable[..., tuple[int, str, str]]) -> None:
    wrote(journal.breaker("pi5", "open", "2026-01-01T00:07:00+00:00", **DOWN))
    lock = ControllerLock(ROOT).acquire()
    try:
        assert "next probe: 2026-01-01T00:10:00+00:00" in say("list")[1]
    finally:
        lock.release()


def test_a_board_without_a_run_and_one_that_is_well_end_with_0(say: Callable[..., tuple[int, str, str]]) -> None:
    assert say("list")[0] == 0
    wrote(journal.breaker("pi5", "open", "t", **DOWN), journal.breaker("pi5", "closed", "t", change="device_up"))
    code, out, _ = say("--json")
    assert code == 0
    assert '"state": "up"' in out


def test_a_person_ends_a_quarantine_and_the_next_run_starts_with_that(say: Callable[..., tuple[int, str, str]]) -> None:
    wrote(quarantined())
    code, out, _ = say("release", "pi4")
    assert code == 0
    assert "disk full" in out
    entry = journal.replay(ROOT).breakers["pi4"]
    assert (entry["state"], entry["change"]) == ("closed", "released by a person")
    assert "neither quarantined nor down" in say("release", "pi4")[1]
    assert say()[0] == 0


def test_an_unknown_device_and_a_running_sweep_are_refused(say: Callable[..., tuple[int, str, str]]) -> None:
    code, _, said = say("release", "pi7")
    assert code == 2
    assert "known: local, pi5" in said
    wrote(quarantined())
    lock = ControllerLock(ROOT).acquire()
    try:
        code, _, said = say("release", "pi4")
    finally:
        lock.release()
    assert code == 1
    assert "pid" in said
    assert journal.replay(ROOT).breakers["pi4"]["state"] == "quarantined"


def test_a_device_that_a_run_waits_for_says_why_while_that_run_goes_on(
    say: Callable[..., tuple[int, str, str]],
) -> None:
    wrote(quarantined())
    waits = {"reason": "Unschedulable: 0/2 nodes", "since_utc": "2026-01-01T00:00:00+00:00"}
    schedule.publish(ROOT, {"waiting": {"pi5": waits, "pi4": waits}})
    with ControllerLock(ROOT).acquire():
        _, out, _ = say()
        assert "pi5    waits since 2026-01-01T00:00:00+00:00" in out
        assert "reason: Unschedulable: 0/2 nodes" in out
        assert "pi4    quarantined" in out, "what is worse is told"
    assert "waits" not in say()[1], "what a run that was killed left there says nothing of now"
