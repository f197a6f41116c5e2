"""One sweep over three kinds of devices by Snakemake: this machine, one over SSH, pods with and without limits.

As in the lab of docs/kubernetes.md a host and two pods of its node are one group; a desk and a small pod are another.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.helpers_ssh import Sshd, needs_sshd
from e2e.kubernetes.helpers_cluster import PATIENCE_S, Namespace, until
from e2e.kubernetes.helpers_pods import first_node
from e2e.kubernetes.helpers_sweeps import HELD, inside
from report import helpers_chromium
from sidewinder.files import schedule

pytestmark = [needs_sshd, pytest.mark.chromium]

# So much work, whatever it takes: a pod of a quarter core takes four times as long.
WORK = (
    "import json, time\n"
    "begin = time.monotonic()\n"
    "for _ in range(15): sum(range(200_000))\n"
    "print(json.dumps({'rounds_per_s': 15 / (time.monotonic() - begin)}))\n"
)
REPEATS = 3
# Only on the board: it has points left when the pod takes its first turn, however busy this machine is.
SLOW = "import os, time\nif os.path.exists(os.path.expanduser('~/slow')): time.sleep(1)\n"
ON_BOARD = 16


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "board").start()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def page() -> Iterator[helpers_chromium.Page]:
    binary = helpers_chromium.find()
    if binary is None:
        pytest.skip("there is no Chromium here (apt-get install chromium)")
    with helpers_chromium.chromium(binary) as found:
        yield found


@dataclass
class Folder:
    """A lab as `sidewinder init` makes it, with a config of the test's."""

    path: Path

    def configure(self, **config: Any) -> None:
        self.path.mkdir()
        self.sidewinder("init", ".")
        text = yaml.safe_dump({"experiment": "kinds", **config}, sort_keys=False)
        (self.path / "config/lab.yaml").write_text(text)

    def sidewinder(self, *argv: str) -> None:
        code = f"import sys; from sidewinder.cli import main; sys.exit(main({list(argv)!r}))"
        done = subprocess.run([sys.executable, "-c", code], cwd=self.path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> subprocess.Popen[str]:
        argv = ["snakemake", "--profile", "profiles/lab", "--nocolor"]
        return subprocess.Popen(argv, cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    @property
    def root(self) -> Path:
        return self.path / "runs/kinds"

    def records(self, device: str = "*") -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.root.glob(f"records/{device}/*.json"))]

    @property
    def report(self) -> Path:
        return self.root / "summary/report.html"


@pytest.fixture
def lab(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "lab")


def pod(namespace: Namespace, node: str, **settings: Any) -> dict[str, Any]:
    own = {**namespace.device(cpu=None, memory=None).settings, "kind": "kubernetes", "node_name": node}
    return {**own, **settings}


def ran_s(record: dict[str, Any]) -> tuple[float, float]:
    """From when to when, by the controller's clock, as long as it was for certain."""
    stamps, clock = record["conditions"]["stamps"], record["clock"]
    begin_s, end_s = (stamps[at]["wall_ns"] / 1e9 - clock["offset_s"] for at in ("start", "end"))
    return begin_s + clock["bound_s"], end_s - clock["bound_s"]


def facts_of(page: helpers_chromium.Page) -> dict[str, dict[str, str]]:
    """What a person reads of each device under "Environment"."""
    text = page.value(
        "JSON.stringify(Object.fromEntries([...document.querySelectorAll('#environment article')].map(a => ["
        "a.querySelector('h3').firstChild.textContent.trim() + '|' + a.querySelector('h3 .unit').textContent,"
        "Object.fromEntries([...a.querySelectorAll('dt')].map(t => [t.innerText, t.nextElementSibling.innerText]))])))"
    )
    found: dict[str, dict[str, str]] = json.loads(text)
    return found


def test_a_sweep_over_three_kinds(
    lab: Folder, server: Sshd, namespace: Namespace, page: helpers_chromium.Page, tmp_path: Path
) -> None:
    node = first_node(namespace)
    groups = {"desk": ("desk", "k8s-small"), "silicon": ("host", "k8s-unlimited", "k8s-cpu250m")}
    devices = {
        "desk": {"kind": "local", "resource_group": "desk"},
        "k8s-small": pod(namespace, node, cpu="100m", memory="64Mi", resource_group="desk"),
        "host": {"kind": "ssh", **server.settings(), "resource_group": "silicon"},
        "k8s-unlimited": pod(namespace, node, resource_group="silicon"),
        "k8s-cpu250m": pod(namespace, node, cpu="250m", memory="64Mi", resource_group="silicon"),
    }
    work = {"backend": "command", "command": ["python3", "-c", WORK], "metrics": "json"}
    block = {**work, "devices": list(devices), "parameters": {"repeat": list(range(REPEATS))}}
    lab.configure(devices=devices, policy={"order": {"by": "interleaved", "seed": 7}}, matrix=[block])
    lab.sidewinder("devices", "up")
    sweep = lab.start()
    said, _ = sweep.communicate(timeout=2 * PATIENCE_S)
    (tmp_path / "said.txt").write_text(said)
    assert sweep.returncode == 0, said

    records = lab.records()
    assert [record["status"] for record in records] == ["ok"] * REPEATS * len(devices), said
    assert not (lab.root / "retries.jsonl").exists() or not (lab.root / "retries.jsonl").read_text()
    for members in groups.values():
        spans = [(ran_s(record), record["run_id"]) for record in records if record["device"]["device_id"] in members]
        for ((begin, end), one), ((other_begin, other_end), other) in combinations(spans, 2):
            assert end <= other_begin or other_end <= begin, f"{one} and {other} ran at once in {members}"
    by_position = sorted((r["order"]["position"], r["device"]["device_id"]) for r in records)
    assert {device for position, device in by_position if position == 0} == set(devices), "every device has its order"
    for record in records:
        device, placement = record["device"], record["device"]["placement"]
        quota = {"k8s-small": 0.1, "k8s-cpu250m": 0.25}.get(device["device_id"])
        if device["kind"] == "kubernetes":
            assert (device["pod"]["node"], placement.get("cpu_quota_cores")) == (node, quota)
            assert ("cpu" in placement["cgroup"].get("unlimited", ())) is (quota is None)

    for device in devices:
        assert f"{device}: {REPEATS} points planned, {REPEATS} to measure" in said
    assert f"{len(records)} of {len(records)} points are measured" in said
    shares_a_machine = len({record["device"]["boot_id"] for record in records}) == 1
    same = [line for line in said.splitlines() if "SAME MACHINE" in line]
    assert bool(same) is shares_a_machine, said
    assert not same or all(name in same[-1] for name in devices), "two groups, one machine"

    page.open(lab.report, width=1400)
    page.picture(tmp_path / "report.png", full=True)
    assert page.problems == []
    assert page.value("document.querySelector('h1').innerText") == f"{len(records)} of {len(records)} measured"
    assert (page.value("document.querySelector('header').innerText.includes('SAME MACHINE')")) is shares_a_machine
    rows = page.value("[...document.querySelectorAll('#devices tbody tr')].map(r => r.innerText).join('|')")
    assert f"host\tssh\t{REPEATS}" in rows
    assert f"k8s-unlimited\tpod on {node}: no limits\t{REPEATS}" in rows
    assert f"k8s-cpu250m\tpod on {node}: 0.25 cores, 64.0 MiB\t{REPEATS}" in rows
    facts = facts_of(page)
    kinds = {"desk": "local", "host": "ssh"}
    assert set(facts) == {f"{device}|{kinds.get(device, 'kubernetes')}" for device in devices}
    for device, limits in {
        "k8s-small": ("0.1 cores", "64.0 MiB", "Guaranteed"),
        "k8s-cpu250m": ("0.25 cores", "64.0 MiB", "Guaranteed"),
        "k8s-unlimited": ("none", "none", "BestEffort"),
    }.items():
        shown = facts[f"{device}|kubernetes"]
        assert (shown["node"], shown["pod"], shown["namespace"]) == (node, f"sidewinder-{device}", namespace.name)
        assert (shown["CPU limit"], shown["memory limit"], shown["QoS class"]) == limits
    for members in groups.values():
        for device in members:
            with_whom, limit = facts[f"{device}|{kinds.get(device, 'kubernetes')}"]["takes turns"].split(":")
            assert set(with_whom.removeprefix("with ").split(", ")) == {*members} - {device}
            assert limit == " 1 at a time"
    lanes = page.value("[...document.querySelectorAll('#order .lane .name')].map(n => n.innerText).join('|')")
    assert all(f"{device} {REPEATS} attempts" in lanes.replace("\n", " ") for device in devices), lanes


def test_an_ssh_device_that_dies_for_good_has_its_points_measured_by_a_pod(
    lab: Folder, server: Sshd, namespace: Namespace, page: helpers_chromium.Page, tmp_path: Path
) -> None:
    node = first_node(namespace)
    devices = {
        "board": {
            "kind": "ssh",
            **server.settings(),
            "failover_to": "k8s-spare",
            "max_transport_failures": 1,
            "recovery_after_s": 1,
            "give_up_after_s": 1,
            "resource_group": "bench",
        },
        "k8s-spare": pod(namespace, node, cpu="250m", memory="64Mi", resource_group="bench"),
    }
    (server.home / "slow").touch()
    work = {"backend": "command", "command": ["python3", "-c", SLOW + WORK], "metrics": "json"}
    held = {"backend": "command", "command": ["python3", "-c", HELD], "metrics": {"n": r"n=(\d)"}}
    matrix = [
        {**work, "devices": "board", "parameters": {"repeat": list(range(ON_BOARD))}},
        {**held, "devices": "k8s-spare"},
    ]
    lab.configure(devices=devices, matrix=matrix, policy={"retry": {"backoff_s": 0.5, "max_backoff_s": 1}})
    lab.sidewinder("devices", "up")
    sweep = lab.start()
    name = "sidewinder-k8s-spare"
    began = "import os; print(os.path.exists('/sidewinder/began'))"
    try:
        until(lambda: "True" in inside(namespace, began, name), "the pod has the turn: nothing runs on the board")
        server.die()
        before = {record["run_id"] for record in lab.records("board")}
        until(lambda: inside(namespace, "open('/sidewinder/go', 'w'); print('gone')", name), "it is let go")
        said, _ = sweep.communicate(timeout=2 * PATIENCE_S)
    finally:
        sweep.kill()
        sweep.wait()
    (tmp_path / "said.txt").write_text(said)
    assert sweep.returncode == 1, "what was planned is open still"

    board = {record["run_id"]: record for record in lab.records("board")}
    assert len(board) == ON_BOARD
    assert all(board[run_id]["status"] == "ok" for run_id in before)
    moved = {record["moved_to"] for record in board.values() if record["status"] == "failed"}
    assert len(moved) == ON_BOARD - len(before) > 0
    copies = {r["run_id"]: r for r in lab.records("k8s-spare") if "failover-from:board" in r["tags"]}
    assert set(copies) == moved
    for copy in copies.values():
        assert copy["status"] == "ok"
        assert copy["identity"]["failover_from"] == "board"
        assert copy["device"]["pod"]["name"] == name
        assert copy["device"]["placement"]["cpu_quota_cores"] == 0.25
        assert any("instead of board" in warning for warning in copy["warnings"])
    told = schedule.read(str(lab.root))
    assert told is not None
    assert told["moved"] == len(moved)
    spans = sorted(ran_s(record) for record in lab.records() if record["status"] == "ok")
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans)), "one group, one at a time"

    assert said.count("MOVED board") == len(moved)
    assert f"{len(moved)} moved to another device ({len(moved)} measured there)" in said
    assert "DOWN board" in said
    page.open(lab.report, width=1400)
    page.picture(tmp_path / "report.png", full=True)
    assert page.problems == []
    assert (
        page.value("document.querySelector('h1').innerText")
        == f"{ON_BOARD + 1 - len(moved)} of {ON_BOARD + 1} measured"
    )
    text = page.value("document.body.innerText")
    assert "moved to another device" in text
    assert all(run_id in page.value("document.body.textContent") for run_id in moved)
