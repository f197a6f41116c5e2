"""What goes wrong beside the measurement: a front that dies, a plug-in with bugs, a device that cannot be asked."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest

from engine.helpers_engine import Told, command, make_plan, only, record, run
from sidewinder.engine import Engine
from sidewinder.errors import ConfigError, DeviceFault, TransportError
from sidewinder.files import schedule
from sidewinder.model import Device, Found, Measurement, Task
from sidewinder.workloads import registry


@pytest.fixture
def local(tmp_path):
    return Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


def children():
    """The processes that this one has started: among them the agent's front."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


def test_a_front_that_dies_during_a_run_loses_nothing(root, local, tmp_path):
    log, go = tmp_path / "ran", tmp_path / "go"
    code = (
        "import os, time\n"
        f"fd = os.open({str(log)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT); os.write(fd, b'ran\\n')\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\nprint('n=1')\n"
    )
    plan = make_plan(root, [command(sys.executable, "-c", code, metrics={"n": r"n=(\d)"})], devices=[local])
    others = children()
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit([(str(root), only(plan))])
    told.until(lambda _: log.exists() and told.started, "the point runs")
    for pid in children() - others:
        os.kill(pid, signal.SIGKILL)
    go.touch()
    told.wait(1)
    assert engine.shutdown(20)
    assert log.read_text() == "ran\n"
    written = record(root, plan, only(plan))
    assert (written["status"], written["metrics"]["n"]) == ("ok", 1)
    assert any("the link was lost" in warning for warning in written["warnings"])
    assert [a["n"] for a in written["attempts"]] == [1]
    retries = [json.loads(line) for line in (root / "retries.jsonl").read_text().splitlines()]
    assert [line["event"] for line in retries] == ["link_lost", "reconnected"]
    shown = [event["kind"] for event in told.events if event["kind"] in ("retry", "warning", "link_lost", "link_back")]
    assert shown == ["link_lost", "link_back"]
    assert schedule.read(str(root))["links_healed"] == {"local": 1}


class Plugin:
    """A workload that does what the test says."""

    backend: ClassVar[str] = "plugin"
    modes: ClassVar[frozenset[str]] = frozenset({"run"})

    def __init__(self, *, discover=None, build=None, parse=None):
        self._discover, self._build, self._parse = discover, build, parse
        self.discoveries = 0

    def validate(self, point):
        pass

    async def discover(self, view, settings):
        self.discoveries += 1
        if self._discover is not None:
            return await self._discover(view, settings)
        return Found()

    def build_task(self, point, device, found):
        return self._build(found) if self._build else Task(argv=("echo", "hello"))

    def parse(self, point, task, raw):
        return self._parse(raw) if self._parse else Measurement(ok=True)

    def headline(self, metrics):
        return ""


def run_plugin(root, local, plugin, count=1, **device):
    points = [{"backend": "plugin", "parameters": {"i": i}} for i in range(count)]
    plan = make_plan(root, points, devices=[local])
    with registry.register_for_tests(plugin):
        told = run(root, plan)
    return [record(root, plan, run_id) for run_id in plan.points], told


def fail(error):
    def raising(*_):
        raise error

    return raising


@pytest.mark.parametrize(
    ("plugin", "failure_class", "says"),
    [
        ({"build": fail(KeyError("threads"))}, "config", "could not build the task: KeyError: 'threads'"),
        ({"build": fail(ConfigError("no such flag"))}, "config", "no such flag"),
        ({"parse": fail(ZeroDivisionError("oops"))}, "parse", "the parser of backend plugin broke: ZeroDivisionError"),
        ({"parse": lambda raw: Measurement(ok=False, message="too few rows")}, "measurement", "too few rows"),
    ],
)
def test_a_plugin_with_a_bug_fails_its_own_point_and_keeps_the_raw_output(root, local, plugin, failure_class, says):
    (written,), told = run_plugin(root, local, Plugin(**plugin))
    assert list(told.done.values()) == ["failed"]
    assert written["failure"]["class"] == failure_class
    assert says in written["error"]
    if failure_class != "config":
        assert written["raw"]["stdout"] == "hello\n"


def test_a_parse_failure_of_a_big_output_is_the_same(root, local):
    plugin = Plugin(build=lambda _: Task(argv=("head", "-c", "100000", "/dev/zero")), parse=fail(ValueError("bad")))
    (written,), _ = run_plugin(root, local, plugin)
    assert written["failure"]["class"] == "parse"


def test_discovery_is_asked_once_per_device(root, local):
    async def discover(view, settings):
        code, out, _ = await view.run(["sh", "-c", "echo $((6*7))"])
        path = await view.first_existing(["/nowhere/x", "/bin/sh"])
        assert view.facts["logical_cores"] >= 1
        return Found(binary=path, version=f"{code} {out.decode().strip()}")

    plugin = Plugin(discover=discover)
    records, _ = run_plugin(root, local, plugin, count=3)
    assert plugin.discoveries == 1
    assert {(one["backend"]["binary"], one["backend"]["version"]) for one in records} == {("/bin/sh", "0 42")}


def test_an_engine_that_is_absent_quarantines_and_one_that_could_not_be_looked_for_is_tried_again(root, local):
    async def absent(view, settings):
        raise DeviceFault("local: no engine here, install it with: pip install engine")

    records, told = run_plugin(root, local, Plugin(discover=absent), count=2)
    assert set(told.done.values()) == {"hole"}
    assert all("pip install engine" in one["error"] for one in records)
    assert any(event["kind"] == "down" for event in told.events)

    answers = iter([TransportError("could not look"), None])

    async def twice(view, settings):
        error = next(answers)
        if error is not None:
            raise error
        return Found()

    records, told = run_plugin(root.with_name("second"), local, Plugin(discover=twice))
    assert list(told.done.values()) == ["ok"]
    assert any("could not look" in warning for warning in records[0]["warnings"])
