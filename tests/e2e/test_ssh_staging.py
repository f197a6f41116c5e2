"""Models are brought to real SSH devices: once, resumed, and never taken for absent because a link broke."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.helpers_ssh import ProxyThread, Sshd, children_of, needs_sshd, nobody
from e2e.helpers_staging_disk import SCRIPT
from engine.helpers_engine import Told, command, make_plan, only, record, run
from files.helpers_small_disk import run_on_small_disk
from plugin.helpers_plugin import LabFolder, Snakemake
from sidewinder.engine import Engine
from sidewinder.model import Device, Model, Plan, Policy, RetryPolicy
from sidewinder.transports import open as open_transport
from sidewinder.transports import ssh_target
from sidewinder.transports.client import AgentClient

pytestmark = needs_sshd
MIB = 1 << 20
SIZE = 40 * MIB
LOOSE_BYTES = 10 * MIB  # in buffers when a link breaks, and agents that are sent anew
CAPTURE = Path(__file__).parents[1] / "data" / "llama-bench" / "good-one-repetition.stdout"
PATIENT = Policy(retry=RetryPolicy(max_attempts=500, backoff_s=0.05, max_backoff_s=0.2))


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests; a silent link is noticed at once."""
    nobody(tmp_path, monkeypatch)
    monkeypatch.setattr(ssh_target, "KEEPALIVE_S", 0.2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "pi5").start()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def content() -> bytes:
    return random.Random(7).randbytes(SIZE)


@pytest.fixture
def model(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "smol.gguf"
    path.write_bytes(content)
    return path


def make_lab(root: Path, device: Device, model: Model, points: int = 1) -> Plan:
    """Points that read the model where the device has it."""
    device = replace(device, max_transport_failures=1000)
    argv = (sys.executable, "-c", "import os, sys; print('n=%d' % os.path.getsize(sys.argv[1]))", "{model_path}")
    asked = [
        command(
            *argv,
            metrics={"n": r"n=(\d+)"},
            device=device.id,
            model=model.id,
            model_path=model.path_on(device.id),
            parameters={"i": i},
        )
        for i in range(points)
    ]
    plan = make_plan(root, asked, devices=[device], policy=PATIENT)
    return replace(plan, lab=replace(plan.lab, models={model.id: model}))


def until(condition: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s, f"never: {what}"
        time.sleep(0.01)


def cut_for_a_second(proxy: ProxyThread, told: Told) -> None:
    """Reset, and refuse until somebody has tried in vain."""
    proxy.do(lambda one: (setattr(one, "refuses", True), one.reset(), one.heal()))
    told.until(lambda told: "retry" in told.kinds(), "a retry")
    time.sleep(1.0)  # how long the cut lasts, not a wait for anything
    proxy.do(lambda one: setattr(one, "refuses", False))


class Sweep:
    """One engine that measures a plan."""

    def __init__(self, plan: Plan) -> None:
        self.told, self.root = Told(), Path(plan.lab.output_dir)
        self.engine = Engine(self.told)
        self.engine.add_lab(str(self.root), plan)
        self.engine.submit([(str(self.root), run_id) for run_id in plan.points])
        self.count = len(plan.points)

    def finish(self) -> Told:
        self.told.wait(self.count)
        assert self.engine.shutdown(60)
        return self.told


@pytest.fixture
def begin() -> Iterator[Callable[[Plan], Sweep]]:
    sweeps: list[Sweep] = []

    def begin(plan: Plan) -> Sweep:
        sweeps.append(Sweep(plan))
        return sweeps[-1]

    yield begin
    for sweep in sweeps:
        sweep.engine.shutdown(20)


def lies_there(server: Sshd, content: bytes) -> bool:
    stored = server.state / "store" / hashlib.sha256(content).hexdigest()
    return stored.read_bytes() == content


def partial_bytes(server: Sshd) -> int:
    return sum(path.stat().st_size for path in server.state.glob("store/*.part"))


def test_a_model_is_brought_once_for_many_points_and_for_a_second_run(
    server: Sshd, tmp_path: Path, model: Path, content: bytes
) -> None:
    with ProxyThread(server.port) as proxy:
        smol = Model("smol", stage=str(model))
        plan = make_lab(tmp_path / "runs", server.device(port=proxy.port), smol, points=5)
        told = run(tmp_path / "runs", plan)
        assert set(told.done.values()) == {"ok"}
        first = proxy.proxy.passed_bytes
        assert SIZE < first < SIZE + LOOSE_BYTES
        assert lies_there(server, content)
        for run_id in plan.points:
            written = record(tmp_path / "runs", plan, run_id)
            assert written["metrics"]["n"] == SIZE
            assert written["workload"]["model_path"] == str(model), "as it was written"
            (staged,) = written["workload"]["staged"]
            stored = server.state / "store" / hashlib.sha256(content).hexdigest()
            assert staged == {"file": str(model), "sha256": stored.name, "path": str(stored)}
        shown = [event for event in told.events if event["kind"] == "staging"]
        assert shown[-1]["bytes"] == shown[-1]["total_bytes"] == SIZE
        assert {(event["device"], event["file"]) for event in shown} == {("pi5", str(model))}

        again = make_lab(tmp_path / "again", server.device(port=proxy.port), smol, points=5)
        told = run(tmp_path / "again", again)
        assert set(told.done.values()) == {"ok"}
        assert proxy.proxy.passed_bytes - first < LOOSE_BYTES / 2
        assert "staging" not in told.kinds()


@pytest.mark.parametrize("how", ["cut", "front-killed"])
def test_a_transfer_that_breaks_off_is_tried_again_and_sends_the_rest(
    how: str, server: Sshd, tmp_path: Path, model: Path, content: bytes, begin: Callable[[Plan], Sweep]
) -> None:
    with ProxyThread(server.port) as proxy:
        proxy.do(lambda one: setattr(one, "swallow_after_bytes", SIZE // 2))
        plan = make_lab(tmp_path / "runs", server.device(port=proxy.port), Model("smol", stage=str(model)))
        sweep = begin(plan)
        until(lambda: proxy.proxy.passed_bytes >= SIZE // 2, "half of it is on its way")
        if how == "cut":
            cut_for_a_second(proxy, sweep.told)
        else:
            for pid in children_of(server.pid):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/comm").read_text().startswith("python"):
                        os.kill(pid, signal.SIGKILL)
            proxy.do(lambda one: one.heal())
        told = sweep.finish()
        assert set(told.done.values()) == {"ok"}
        assert proxy.proxy.passed_bytes < SIZE + LOOSE_BYTES
    assert lies_there(server, content)
    assert "retry" in told.kinds(), "class transport, not 'not there'"
    written = record(tmp_path / "runs", plan, only(plan))
    assert "failure" not in written
    ledger = [json.loads(line) for line in (tmp_path / "runs" / "retries.jsonl").read_text().splitlines()]
    assert "transport_failure" in {line["event"] for line in ledger}


def test_damaged_leftovers_are_found_out(server: Sshd, tmp_path: Path, model: Path, content: bytes) -> None:
    store = server.state / "store"
    store.mkdir(parents=True, mode=0o700)
    (store / f"{hashlib.sha256(content).hexdigest()}.part").write_bytes(content[: SIZE // 2 - 1] + b"?")
    with ProxyThread(server.port) as proxy:
        plan = make_lab(tmp_path / "runs", server.device(port=proxy.port), Model("smol", stage=str(model)))
        assert set(run(tmp_path / "runs", plan).done.values()) == {"ok"}
        assert 1.5 * SIZE < proxy.proxy.passed_bytes < 1.5 * SIZE + LOOSE_BYTES
    assert lies_there(server, content)


def test_a_cut_during_discovery_is_not_taken_for_absence(
    server: Sshd, tmp_path: Path, begin: Callable[[Plan], Sweep]
) -> None:
    model = tmp_path / "smol.gguf"
    model.write_bytes(b"GGUF" * 1000)
    asked, go, bin_dir = tmp_path / "asked", tmp_path / "go", tmp_path / "bin"
    bin_dir.mkdir()
    program = bin_dir / "llama-bench"
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] || {{ cat {CAPTURE}; exit; }}\n'
        f"echo > {asked}; while [ ! -e {go} ]; do sleep 0.02; done; echo version: 1 >&2\n"
    )
    program.chmod(0o755)
    with ProxyThread(server.port) as proxy:
        device = replace(
            server.device(port=proxy.port),
            backends={"llamacpp": {"bin_dir": str(bin_dir)}},
            max_transport_failures=1000,
        )
        point = {
            "device": "pi5",
            "backend": "llamacpp",
            "mode": "throughput",
            "model": "smol",
            "model_path": str(model),
            "prompt_tokens": 64,
            "output_tokens": 16,
            "repetitions": 1,
        }
        plan = make_plan(tmp_path / "runs", [point], devices=[device], policy=PATIENT)
        plan = replace(plan, lab=replace(plan.lab, models={"smol": Model("smol", stage=str(model))}))
        sweep = begin(plan)
        until(asked.exists, "the device is asked")
        cut_for_a_second(proxy, sweep.told)
        go.touch()
        told = sweep.finish()
    assert set(told.done.values()) == {"ok"}, told.failures
    assert "retry" in told.kinds()


def test_stopping_does_not_wait_for_a_transfer(
    server: Sshd, tmp_path: Path, model: Path, begin: Callable[[Plan], Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_target, "KEEPALIVE_S", 600.0)  # else the black hole itself would end the transfer
    with ProxyThread(server.port) as proxy:
        proxy.do(lambda one: setattr(one, "swallow_after_bytes", SIZE // 2))
        sweep = begin(make_lab(tmp_path / "runs", server.device(port=proxy.port), Model("smol", stage=str(model))))
        until(lambda: proxy.proxy.passed_bytes >= SIZE // 2, "half of it is on its way")
        sweep.engine.cancel(False)
        told = sweep.finish()
    assert set(told.done.values()) == {"cancelled"}
    assert not list((tmp_path / "runs").glob("records/*/*.json")), "it was never begun"
    assert not list(server.state.glob("runs/*/*.1"))


def test_two_controllers_bring_it_at_the_same_time(server: Sshd, model: Path, content: bytes) -> None:
    async def one(name: str) -> str:
        client = AgentClient(open_transport(server.device()), campaign="c", client_id=name)
        try:
            await client.connect()
            return await client.stage(model, hashlib.sha256(content).hexdigest())
        finally:
            await client.close()
            await client.transport.close()

    async def both() -> list[str]:
        return await asyncio.gather(one("first"), one("second"))

    assert len(set(asyncio.run(both()))) == 1
    assert lies_there(server, content)
    assert len(os.listdir(server.state / "store")) == 1


def test_a_device_without_room_is_told_before_the_first_byte(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    said = json.loads(run_on_small_disk(SCRIPT, disk, size="48m"))
    for word in ("device 'pi5'", "no room", f"{20 * MIB} bytes", "free", "store", "devices.pi5.workdir"):
        assert word in said["big"]
    assert said["left by big"] == []
    assert said["small"] == "staged"


def test_a_full_disk_makes_holes_that_say_so(
    server: Sshd, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidewinder.transports.staging.RESERVE_BYTES", 1 << 60)
    plan = make_lab(tmp_path / "runs", server.device(), Model("smol", stage=str(model)))
    assert set(run(tmp_path / "runs", plan).done.values()) == {"hole"}
    failure = record(tmp_path / "runs", plan, only(plan))["failure"]
    assert failure["evidence"]["cause"] == "device"
    assert "devices.pi5.workdir" in failure["message"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stage": "nowhere.gguf"}, ["models.smol.stage", "No such file", "nowhere.gguf"]),
        ({"stage": "smol.gguf", "sha256": "ab" * 32}, ["models.smol.stage", "ab" * 32, "{digest}"]),
    ],
    ids=["missing-here", "not-the-declared-one"],
)
def test_what_cannot_be_brought_is_config_and_nothing_is_sent(
    fields: dict[str, Any],
    words: list[str],
    server: Sshd,
    tmp_path: Path,
    model: Path,
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_lab(tmp_path / "runs", server.device(), Model("smol", **fields))
    assert set(run(tmp_path / "runs", plan).done.values()) == {"failed"}
    failure = record(tmp_path / "runs", plan, only(plan))["failure"]
    assert failure["class"] == "config"
    for word in words:
        assert word.format(digest=hashlib.sha256(content).hexdigest()) in failure["message"]
    assert not list(server.state.glob("store/*"))


def test_what_is_said_to_lie_there_is_never_brought(server: Sshd, tmp_path: Path, model: Path) -> None:
    smol = Model("smol", stage=str(model), paths={"pi5": "/nowhere/smol.gguf"})
    plan = make_lab(tmp_path / "runs", server.device(), smol)
    assert set(run(tmp_path / "runs", plan).done.values()) == {"failed"}
    written = record(tmp_path / "runs", plan, only(plan))
    assert written["workload"]["command"][-1] == "/nowhere/smol.gguf"
    assert "staged" not in written["workload"]
    assert not list(server.state.glob("store/*"))


def test_a_program_and_its_input_are_brought_along(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.sh").write_text('#!/bin/sh\necho "n=$(cat "$1")"\n')
    (tmp_path / "bench.sh").chmod(0o755)
    (tmp_path / "data.txt").write_text("17")
    devices = [server.device(), Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})]
    asked = [
        command("./bench.sh", "data.txt", metrics={"n": r"n=(\d+)"}, device=device.id, stage=("./bench.sh", "data.txt"))
        for device in devices
    ]
    plan = make_plan(tmp_path / "runs", asked, devices=devices)
    told = run(tmp_path / "runs", plan)
    assert set(told.done.values()) == {"ok"}, told.failures
    for run_id, point in plan.points.items():
        written = record(tmp_path / "runs", plan, run_id)
        assert written["metrics"]["n"] == 17
        staged = written["workload"].get("staged", [])
        here = [str(tmp_path / name) for name in ("bench.sh", "data.txt")]
        assert written["workload"]["command"] == ([one["path"] for one in staged] or here)
        assert [one["file"] for one in staged] == ([] if point.device == "local" else ["./bench.sh", "data.txt"])
        assert written["identity"]["stage"] == ["./bench.sh", "data.txt"]
    digest = hashlib.sha256((tmp_path / "bench.sh").read_bytes()).hexdigest()
    assert (server.state / "store" / digest).stat().st_mode & 0o777 == 0o555


def test_a_snakemake_sweep_brings_its_model(snakemake: Snakemake, server: Sshd, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    (lab.folder / "models").mkdir()
    content = random.Random(3).randbytes(3 * MIB)
    (lab.folder / "models" / "smol.gguf").write_bytes(content)
    lab.configure(
        {
            "experiment": "demo",
            "devices": {"pi5": server.settings(), "local": {}},
            "models": {"smol": {"stage": "models/smol.gguf", "sha256": hashlib.sha256(content).hexdigest()}},
            "matrix": [
                {
                    "backend": "command",
                    "devices": ["pi5", "local"],
                    "models": ["smol"],
                    "command": ["sh", "-c", 'wc -c < "$1"; echo "$1" >&2', "sh", "{model_path}"],
                    "threads": [1, 2],
                    "metrics": {"size": r"(\d+)"},
                }
            ],
        }
    )
    done = lab.run(env={"HOME": str(tmp_path / "me")})
    assert done.rc == 0, done.text
    stored = server.state / "store" / hashlib.sha256(content).hexdigest()
    where = {"pi5": str(stored), "local": str(lab.folder / "models" / "smol.gguf")}
    for device, path in where.items():
        for threads in (1, 2):
            written = json.loads(lab.record(f"{device}-{threads}").read_text())
            assert written["metrics"]["size"] == 3 * MIB
            assert written["workload"]["model_path"] == "models/smol.gguf"
            assert written["workload"]["command"][-1] == path
            assert ("staged" in written["workload"]) == (device == "pi5")
    assert os.listdir(stored.parent) == [stored.name]
