"""docs/core.md and the code say the same: table, drawing, states, notes and bounds."""

from __future__ import annotations

import pathlib
import re

from sidewinder.core import attempts, failing, failover, killing, lifecycle, occupancy, service, stragglers
from sidewinder.core.campaign import LOG_LENGTH
from sidewinder.core.events import CancelRequested
from sidewinder.core.lifecycle import TRANSITIONS, State
from sidewinder.core.occupancy import BUSY_POLL_S
from sidewinder.core.policy import MAX_PREEMPTIONS

DOC = (pathlib.Path(__file__).parents[2] / "docs" / "core.md").read_text(encoding="utf-8")
STATES = {state.__name__ for state in State.__args__}  # type: ignore[attr-defined]


def documented() -> dict[tuple[str, str], set[str]]:
    section = DOC[DOC.index("## The table") : DOC.index("## What costs")]
    rows = re.findall(r"^\| (\w+) \| (\w+) \| ([\w, ]+) \| .+ \|$", section, flags=re.MULTILINE)
    return {(state, event): set(following.split(", ")) for state, event, following in rows if state != "state"}


def test_the_table_is_the_codes() -> None:
    code = {(s.__name__, e.__name__): {n.__name__ for n in following} for (s, e), following in TRANSITIONS.items()}
    assert documented() == code


def test_the_drawing_shows_only_moves_that_exist() -> None:
    section = DOC[DOC.index("## The life") : DOC.index("## The table")]
    drawn = set(re.findall(r"^    (\w+) --> (\w+)", section, flags=re.MULTILINE))
    allowed = {(s.__name__, n.__name__) for (s, _), following in TRANSITIONS.items() for n in following}
    assert drawn <= allowed
    assert {state for move in drawn for state in move} == STATES - {"Occupying"}


def test_every_state_has_its_paragraph() -> None:
    assert all(f"**{state}**" in DOC for state in STATES)


def test_every_state_can_be_left_and_reached() -> None:
    left = {state.__name__ for state, _ in TRANSITIONS}
    reached = {state.__name__ for following in TRANSITIONS.values() for state in following}
    assert left == STATES - {"Done"}
    assert reached == STATES


def test_every_module_has_its_line() -> None:
    section = DOC[: DOC.index("## The life")]
    modules = {path.stem for path in pathlib.Path(attempts.__file__).parent.glob("*.py")} - {"__init__"}
    assert modules == {
        name
        for row in re.findall(r"^\| (`.+`) \|", section, flags=re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }


def test_every_note_is_documented() -> None:
    made = set()
    for module in (attempts, failing, failover, killing, occupancy, service, stragglers):
        source = pathlib.Path(module.__file__ or "").read_text(encoding="utf-8")
        made |= set(re.findall(r'\bnote\(\s*item,\s*"(\w+)"', source)) | set(re.findall(r'do\.Note\("(\w+)"', source))
    section = DOC[DOC.index("## Notes") : DOC.index("## How it is tested")]
    assert made | {"stale_event"} == set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE))


def test_the_bounds_are_the_codes() -> None:
    assert f"own bound: {MAX_PREEMPTIONS} times" in DOC
    assert f"every {BUSY_POLL_S:g} s" in DOC
    assert f"last {LOG_LENGTH:,} moves".replace(",", " ") in DOC


def test_every_event_in_the_table_has_a_handler() -> None:
    inner = {lifecycle.Turn, lifecycle.Drained, lifecycle.Kicked, lifecycle.Followed, CancelRequested}
    assert {event for _, event in TRANSITIONS} - inner == set(attempts.HANDLERS)


def test_the_states_that_hold_things_are_named_by_their_data() -> None:
    for state in State.__args__:  # type: ignore[attr-defined]
        holds = "slot" in state._fields and state is not lifecycle.Publishing
        assert holds == (state in lifecycle.HOLDS_SLOT)
