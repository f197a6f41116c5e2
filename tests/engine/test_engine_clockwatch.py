"""A clock watch: what a device's clock was during a run, from the readings around it."""

from __future__ import annotations

import asyncio
import time

import pytest

from sidewinder.engine.clockwatch import PROBES, ClockWatch, Reading
from sidewinder.transports.messages import ClockOffset


class Client:
    def __init__(self):
        self.probes = []

    async def clock(self, probes):
        self.probes.append(probes)
        return ClockOffset(1.0, 0.001, probes)


def watch(*readings):
    one = ClockWatch(is_here=False)
    for reading in readings:
        one.take(Reading(*reading))
    return one


def test_a_clock_that_drifts_is_a_line_between_its_readings():
    told = watch((100.0, 3.0, 0.001), (1100.0, 3.2, 0.002)).over_run(500.0)
    assert told["offset_s"] == pytest.approx(3.15)  # in the middle of the last 500 s
    assert told["bound_s"] == pytest.approx(0.002 + 0.05)  # 0.1 s over the run, half of it to either side


@pytest.mark.parametrize("duration_s", [None, 0.0, 5000.0])
def test_without_a_reading_before_the_run_the_one_after_it_counts(duration_s):
    one = watch((100.0, 3.0, 0.001), (1100.0, 3.2, 0.002))
    assert one.over_run(duration_s) == {"offset_s": 3.2, "bound_s": 0.002}


def test_what_was_never_read_is_not_known():
    assert watch().over_run(1.0) is None
    assert watch().now() is None
    one = watch((1.0, 1.0, 1.0))
    one.forget()
    assert one.now() is None


def test_drift_is_told_where_it_can_be_told():
    assert "drift_ppm" not in watch((0.0, 0.0, 0.001)).now()
    assert "drift_ppm" not in watch((0.0, 0.0, 0.001), (10.0, 0.1, 0.001)).now()  # ± 200 ppm
    told = watch((0.0, 0.0, 0.001), (1000.0, 0.2, 0.001)).now()
    assert told["drift_ppm"] == pytest.approx(200)
    assert told["drift_bound_ppm"] == pytest.approx(2)


@pytest.mark.parametrize("by_s", [3600.0, -3600.0, 0.4])
def test_no_line_goes_through_a_clock_that_was_set(by_s):
    one = watch((0.0, 0.0, 0.001), (1000.0, 0.1, 0.001), (1010.0, 0.1 + by_s, 0.001))
    assert "drift_ppm" not in one.now()
    assert one.over_run(5.0) == {"offset_s": pytest.approx(0.1 + by_s), "bound_s": 0.001}


def test_a_clock_that_is_slewed_was_not_set():
    assert "drift_ppm" in watch((0.0, 0.0, 0.001), (3600.0, 1.8, 0.001)).now()


@pytest.mark.parametrize(
    ("offset_s", "bound_s", "words"),
    [
        (0.99, 0.001, None),
        (400.0, 0.002, "the clock of pi5 is 400.000 s ahead of ours (± 0.002000 s)"),
        (-3.25, 0.0001, "the clock of pi5 is 3.250 s behind ours (± 0.000100 s)"),
        (2.0, 3.0, None),  # M-130: not beyond its own bound
        (3.5, 3.0, "3.500 s ahead"),
    ],
)
def test_a_clock_that_is_far_off_is_told_naming_device_offset_bound_and_ntp(offset_s, bound_s, words):
    told = []
    one = ClockWatch(is_here=False, name="pi5", tell=told.append)
    one.take(Reading(1.0, offset_s, bound_s))
    entry = one.entry()
    assert (entry["status"], entry["offset_s"], entry["round_trip_s"]) == ("ok", offset_s, 2 * bound_s)
    if words is None:
        assert told == []
        assert "warning" not in entry
    else:
        assert words in entry["warning"]
        assert "NTP" in entry["warning"]
        assert told == [entry["warning"]]


def test_a_clock_that_could_not_be_read_says_so():
    one = watch()
    assert one.entry() == {"status": "unknown"}
    one.missed("pi5: no route to host")
    assert one.entry() == {"status": "unreachable", "error": "pi5: no route to host"}
    one.take(Reading(1.0, 0.0, 0.001))
    assert one.entry()["status"] == "ok"
    one.forget()
    assert one.entry() == {"status": "unknown"}  # started anew, and reached


def test_it_is_read_before_and_after_a_run_and_once_between_two():
    client = Client()

    async def body():
        one = ClockWatch(is_here=False)
        for _ in range(3):
            await one.before_run(client)
            await one.after_run(client)

    asyncio.run(body())
    assert client.probes == [PROBES] * 4


def test_a_reading_that_is_old_is_taken_again_before_a_run():
    client = Client()
    one = watch((time.monotonic() - 3600, 0.0, 0.001))
    asyncio.run(one.before_run(client))
    assert len(client.probes) == 1


def test_this_machine_is_not_read_for_every_run():
    client = Client()

    async def body():
        one = ClockWatch(is_here=True)
        await one.before_run(client)
        await one.after_run(client)

    asyncio.run(body())
    assert client.probes == []
