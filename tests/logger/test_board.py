"""The progress board: stories of events, and what a person reads."""

from __future__ import annotations

import pytest

from snakemake_logger_plugin_sidewinder.board import Board, duration


def story(*events: dict, start_s: float = 100.0, step_s: float = 10.0) -> tuple[Board, list[str]]:
    """Play events ``step_s`` apart; the board and every printed line."""
    board, lines = Board(), []
    for i, event in enumerate(events):
        lines += [line.text for line in board.handle(event, start_s + i * step_s)]
    return board, lines


PLAN = {"kind": "plan", "devices": {"local": {"planned": 3, "done": 1, "open": 2}}}


def started(run_id: str, device: str = "local") -> dict:
    return {"kind": "started", "device": device, "run_id": run_id, "label": f"q4 {run_id}"}


def finished(run_id: str, outcome: str, device: str = "local", **more: object) -> dict:
    return {"kind": "finished", "device": device, "run_id": run_id, "label": f"q4 {run_id}", "outcome": outcome, **more}


def test_a_finished_point_is_one_line_with_its_headline():
    _, lines = story(PLAN, started("a"), finished("a", "ok", headline="prefill 56.8 t/s, decode 15.6 t/s"))
    assert lines == ["local: 3 points planned, 2 to measure", "[2/3] local q4 a: prefill 56.8 t/s, decode 15.6 t/s"]


def test_one_point_is_not_called_points():
    _, lines = story({"kind": "plan", "devices": {"local": {"planned": 1, "done": 0, "open": 1}}})
    assert lines == ["local: 1 point planned, 1 to measure"]


def test_a_failed_point_names_class_and_reason():
    failure = {"class": "measurement", "message": "exit code 1:\n  model is corrupt"}
    _, lines = story(PLAN, started("a"), finished("a", "failed", failure=failure))
    assert lines[-1] == "[2/3] local q4 a: FAILED (measurement) exit code 1: model is corrupt"


def test_a_hole_is_loud():
    failure = {"class": "not_attempted", "message": "device taken out of service"}
    _, lines = story(PLAN, finished("a", "hole", failure=failure))
    assert lines[-1] == "[2/3] HOLE local q4 a: device taken out of service"


def test_points_done_before_print_nothing_and_count_once():
    board, lines = story(PLAN, finished("z", "ok", already=True))
    assert len(lines) == 1
    assert board.over == 1


def test_a_file_on_its_way_stands_beside_its_device():
    def staging(have: int) -> dict:
        return {"kind": "staging", "device": "local", "file": "smol.gguf", "bytes": have, "total_bytes": 200}

    board, lines = story(PLAN, staging(0), staging(70))
    assert len(lines) == 1, "no line of its own for each piece"
    assert "bringing smol.gguf 35 %" in board.device_lines(0.0)[0]
    assert board.rows["local"].bringing == "bringing smol.gguf 35 %"
    board.handle(staging(200), 0.0)
    assert "bringing" not in board.device_lines(0.0)[0]
    board.handle(staging(70), 0.0)
    board.handle({"kind": "retry", "device": "local", "run_id": "a", "error": "cut"}, 0.0)
    assert "bringing" not in board.device_lines(0.0)[0]


def test_the_estimate_rests_on_recent_points_and_shrinks_while_one_runs():
    plan = {"kind": "plan", "devices": {"local": {"planned": 4, "done": 0, "open": 4}}}
    board, _ = story(plan, started("a"), finished("a", "ok"), started("b"))  # a took 10 s
    assert board.eta_s(130.0) == pytest.approx(30.0)
    assert board.eta_s(134.0) == pytest.approx(26.0)
    assert board.eta_s(500.0) == pytest.approx(20.0)  # a late point does not make the rest negative


def test_no_estimate_while_a_device_with_work_has_finished_nothing():
    plan = {"kind": "plan", "devices": {"a": {"planned": 2, "done": 0}, "b": {"planned": 2, "done": 0}}}
    board, _ = story(plan, started("x", "a"), finished("x", "ok", "a"))
    assert board.eta_s(120.0) is None


def test_a_device_that_runs_two_at_once_is_estimated_so():
    plan = {"kind": "plan", "devices": {"local": {"planned": 6, "done": 0}}}
    board, _ = story(plan, started("a"), started("b"), finished("a", "ok"), finished("b", "ok"))
    assert board.eta_s(140.0) == pytest.approx(4 * 20.0 / 2)


def test_device_lines_name_what_is_wrong_only_when_it_is():
    board, _ = story(PLAN, started("a"))
    assert board.device_lines(120.0) == ["local: 1 running, 1 queued, 1 done"]
    board, lines = story(PLAN, finished("a", "failed"), {"kind": "down", "device": "local", "reason": "no answer"})
    assert board.device_lines(120.0) == ["local: 0 running, 1 queued, 1 done, 1 failed, DOWN"]
    assert lines[-1] == "DOWN local: no answer"


def test_a_retry_names_attempt_reason_and_wait():
    retry = {
        "kind": "retry",
        "device": "pi5",
        "run_id": "a",
        "label": "q4 a",
        "attempt": 1,
        "error": "link",
        "delay_s": 5,
    }
    _, lines = story(PLAN, started("a", "pi5"), retry)
    assert lines[-1] == "RETRY pi5 q4 a: attempt 1 lost (link), again in 5 s"


def test_closing_tells_how_many_how_long_how_many_failed():
    board, _ = story(PLAN, started("a"), finished("a", "ok"), started("b"), finished("b", "failed"))
    assert [line.text for line in board.closing(165.0)] == [
        "2 of 3 points are measured: 1 measured in 1 min 05 s, 1 failed, 1 were done before"
    ]


def test_closing_says_nothing_when_nothing_ran():
    board, _ = story(PLAN)
    assert board.closing(1.0) == []


def test_an_unknown_kind_breaks_nothing():
    _, lines = story({"kind": "from-the-future", "v": 2})
    assert lines == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"), (7500, "2 h 05 min")],
)
def test_durations_for_a_person(seconds: float, text: str):
    assert duration(seconds) == text


def test_a_lost_link_stands_beside_its_device_until_it_is_back():
    lost = {"kind": "link_lost", "device": "local", "run_id": "a", "label": "q4 a", "lease_s": 60.0, "reason": "gone"}
    back = {"kind": "link_back", "device": "local", "run_id": "a", "label": "q4 a", "away_s": 21.4, "state": "finished"}
    board, lines = story(PLAN, started("a"), lost)
    assert lines[-1] == "LINK LOST local q4 a, which goes on there and is asked for up to 60 s: gone"
    assert board.device_lines(130.0) == ["local: 1 running, 1 queued, 1 done, LINK LOST"]
    (line,) = board.handle(back, 140.0)
    assert line.text == "LINK BACK local q4 a: after 21.4 s, the run is finished"
    assert board.device_lines(140.0) == ["local: 1 running, 1 queued, 1 done"]


@pytest.mark.parametrize("end", [finished("a", "hole"), {"kind": "retry", "device": "local", "run_id": "a"}])
def test_a_lost_link_is_forgotten_with_its_run(end):
    board, _ = story(PLAN, started("a"), {"kind": "link_lost", "device": "local", "run_id": "a", "reason": "gone"}, end)
    assert board.rows["local"].ails == ""


def test_why_a_device_is_waited_for_is_one_line_a_reason_and_stands_on_the_board():
    def waits(reason: str) -> dict:
        return {"kind": "waiting", "device": "local", "reason": reason, "since_utc": "2026-01-01T00:00:00+00:00"}

    full = "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available"
    fuller = full.replace("2", "3")
    there = {"kind": "waited", "device": "local", "waited_s": 71.4, "ready": True}
    board, lines = story(PLAN, waits("its pod was created"), waits(full))
    assert lines[1:] == ["WAITS local: its pod was created", f"WAITS local: {full}"]
    assert board.device_lines(130.0) == [
        "local: 0 running, 2 queued, 1 done, waits: Unschedulable: 0/2 nodes are available: 2 Insufficient cpu"
    ]
    assert board.handle(waits(fuller), 140.0) == [], "other pods come and go: its figures change every few seconds"
    assert "3 Insufficient cpu" in board.device_lines(140.0)[0], "but the board has the last ones"
    assert [line.text for line in board.handle(there, 150.0)] == ["READY local: after 1 min 11 s"]
    assert board.device_lines(150.0) == ["local: 0 running, 2 queued, 1 done"]
    assert len(board.handle(waits(full), 160.0)) == 1, "another wait is told again"


def test_a_device_that_was_waited_for_in_vain_says_why_until_it_is_tried_again():
    waits = {"kind": "waiting", "device": "local", "reason": "no node has taken it yet"}
    vain = {"kind": "waited", "device": "local", "waited_s": 600.0, "ready": False}
    board, lines = story(PLAN, waits, vain)
    assert lines[1:] == ["WAITS local: no node has taken it yet", "NOT READY local: after 10 min 00 s"]
    again = "not ready in time, tried again later: no node has taken it yet"
    assert board.rows["local"].waits_for == again, "a device of a group is called again after a while: nothing is blank"
    assert board.handle(waits, 0.0) == [], "the same reason at the next try is no news"
    assert board.rows["local"].waits_for == "waits: no node has taken it yet"
    board.handle(vain, 0.0)
    board.handle(vain, 0.0)
    assert board.rows["local"].waits_for == again
    board.handle({"kind": "down", "device": "local", "reason": "gone"}, 0.0)
    assert (board.rows["local"].waits_for, board.rows["local"].ails) == ("", "DOWN")


def test_a_single_point_that_moves_says_why():
    """Its device goes on: there was no line that told."""
    moved = {"kind": "moved", "device": "local", "run_id": "a", "label": "q4 a", "to": "spare", "moved_to": "spare-a"}
    _, lines = story(PLAN, {**moved, "reason": "to spare as spare-a: attempt 3 of 3 was lost: connection reset"})
    assert lines[-1] == "MOVED local q4 a: to spare as spare-a: attempt 3 of 3 was lost: connection reset"
