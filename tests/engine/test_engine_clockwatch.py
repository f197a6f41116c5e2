"""A clock watch: what a device's clock was during a run, from the readings around it."""

from __future__ import annotations

import asyncio
import time

import pytest

from sidewinder.engine.clockwatch import PROBES, ClockWatch, Reading
from sidewinder.transports.client import ClockOffset


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
    assert "drift_ppm" not in watch((0.0, 0.0, 0.001), (10.0, 0.1, 0.001)).now()
    assert watch((0.0, 0.0, 0.001), (1000.0, 0.2, 0.001)).now()["drift_ppm"] == pytest.approx(200)


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
