"""What a person can get wrong about the devices of a lab.

It is refused before anything runs, by file, line, key, value and rule; or, where only the device can tell, its points
are holes that say what to do, and the other devices are measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from e2e.helpers_badluck import QUICK_RETRY, Holed, assert_holes_say, assert_said, of_device
from e2e.helpers_ssh import Sshd, free_port, needs_sshd
from plugin.helpers_plugin import LabFolder, Run, Snakemake
from sidewinder import cli

# -- refused ----------------------------------------------------------------------------------------------------------


class Refused(NamedTuple):
    lab: str
    line: int
    key: str
    value: str
    rule: str


BLOCK = "matrix:\n  - {backend: command, devices: [%s], command: [touch, ran]}\n"
MODEL = "models:\n  smol: {paths: {pi5: /srv/smol.gguf}}\n"

REFUSED = {
    "unknown device": Refused(
        "devices:\n  local: {}\n" + BLOCK % "local, pi6", 5, "matrix[0].devices[1]", "'pi6'", "no such device"
    ),
    "group limit 0": Refused(
        "devices:\n  local:\n    resource_group: here\n    group_max_concurrency: 0\n" + BLOCK % "local",
        5,
        "devices.local.group_max_concurrency",
        "0",
        "must be 1 or more",
    ),
    "a pod's limit smaller than its request": Refused(
        "devices:\n  pod:\n    {image: i, cpu: 500m, cpu_request: 2}\n" + BLOCK % "pod",
        4,
        "devices.pod.cpu_request",
        "2",
        "more than the limit (500m)",
    ),
    "two devices with one pod": Refused(
        "devices:\n  one: {image: i, pod: bench}\n  two: {image: j, pod: bench}\n" + BLOCK % "one, two",
        4,
        "devices.two.pod",
        "(bench)",
        "has the same pod as 'one'",
    ),
    "failover to itself": Refused(
        "devices:\n  local: {failover_to: local}\n" + BLOCK % "local",
        3,
        "devices.local.failover_to",
        "'local'",
        "cannot stand in for itself",
    ),
    "failover in a circle": Refused(
        "devices:\n  local: {failover_to: b}\n  b: {kind: local, failover_to: local}\n" + BLOCK % "local",
        3,
        "devices.local.failover_to",
        "'b'",
        "local -> b -> local",
    ),
    "failover to a device without the model": Refused(
        "devices:\n  pi5: {kind: local, failover_to: spare}\n  spare: {kind: local}\n"
        + MODEL
        + "matrix:\n  - {backend: command, devices: [pi5], models: [smol], command: [touch, ran]}\n",
        3,
        "devices.pi5.failover_to",
        "'spare'",
        "model 'smol' has no path there",
    ),
}


def check(case: Refused, text: str) -> None:
    told = re.search(rf"config/lab\.yaml:{case.line}: {re.escape(case.key)}: (.*)", text)
    assert told, text
    assert case.rule in told[1], text
    assert case.value in told[1], text
    assert "Traceback" not in text


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/lab.yaml").write_text("experiment: demo\n" + REFUSED[name].lab)
    assert cli.main(["plan"]) == 2
    check(REFUSED[name], capsys.readouterr().err)


@pytest.mark.parametrize("name", ["failover in a circle"])
def test_it_is_refused_before_anything_runs(name: str, tmp_path: Path, snakemake: Snakemake) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    (lab.folder / "config/lab.yaml").write_text("experiment: demo\n" + REFUSED[name].lab)
    run = lab.run("--configfile", "config/lab.yaml")
    assert run.rc == 1
    check(REFUSED[name], run.text)
    assert not (lab.folder / "runs").exists()
    assert not list(lab.folder.rglob("ran"))


# -- holed ------------------------------------------------------------------------------------------------------------


HOLED = {
    "unreachable": Holed("transport", ("connection refused", "Is it booting, is sshd running?")),
    "unknown-key": Holed("device", ("its host key is unknown", "sidewinder devices enrol unknown-key")),
    "no-key-file": Holed("config", ("/no/such/key", "devices.no-key-file.identity_file")),
    "wrong-user": Holed("device", ("'nobody-of-that-name'", "authorized_keys", "devices.wrong-user.user")),
    "no-workdir": Holed("device", ("/sys/sidewinder", "devices.no-workdir.workdir")),
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, snakemake: Snakemake) -> Iterator[tuple[LabFolder, Run]]:
    """One sweep over all of them, a good SSH device and this machine."""
    folder = tmp_path_factory.mktemp("bad_input")
    server = Sshd(folder / "server").start()
    gone = {"max_transport_failures": 1, "recovery_after_s": 0.1, "give_up_after_s": 0}
    devices: dict[str, Any] = {
        "unreachable": {**server.settings(), "port": free_port(), **gone},
        "unknown-key": {**server.settings(), "known_hosts": str(folder / "nothing")},
        "no-key-file": {**server.settings(), "identity_file": "/no/such/key"},
        "wrong-user": {**server.settings(), "user": "nobody-of-that-name"},
        "no-workdir": {**server.settings(), "workdir": "/sys/sidewinder"},
        "good": server.settings(),
        "local": {},
    }
    block = {"backend": "command", "devices": list(devices), "command": ["sh", "-c", "echo value=7"]}
    matrix = [{**block, "metrics": {"value": r"value=(\S+)"}, "parameters": {"i": [1, 2]}}]
    lab = LabFolder(
        snakemake,
        folder / "lab",
        {"experiment": "demo", "devices": devices, "matrix": matrix, "policy": QUICK_RETRY},
    )
    me = folder / "me"
    me.mkdir()
    run = lab.run("--logger", "sidewinder", env={"HOME": str(me), "SSH_AUTH_SOCK": ""})
    yield lab, run
    server.stop()


def of(swept: tuple[LabFolder, Run], device: str) -> list[dict[str, Any]]:
    return of_device(swept[0].folder / "runs/demo", device)


@needs_sshd
@pytest.mark.parametrize("device", HOLED)
def test_its_points_say_what_to_do(device: str, swept: tuple[LabFolder, Run]) -> None:
    assert_said(of(swept, device), device, HOLED[device])


@needs_sshd
@pytest.mark.parametrize("device", ["good", "local"])
def test_the_others_are_measured(device: str, swept: tuple[LabFolder, Run]) -> None:
    found = of(swept, device)
    assert [record["status"] for record in found] == ["ok", "ok"]
    assert all(record["metrics"]["value"] == 7 for record in found)
    assert all(len(record["attempts"]) == 1 for record in found)


@needs_sshd
def test_the_display_names_each_device_and_the_run_ends_honestly(swept: tuple[LabFolder, Run]) -> None:
    _, run = swept
    assert run.rc == 1
    assert "10 of 14 points are open" in run.text
    assert len(re.findall("SAME MACHINE: .*good.*local", run.text)) == 1, "both answer here"
    assert "Traceback" not in run.text
    for device in HOLED:
        assert re.search(rf"^\[ *\d+/14\] (?:HOLE )?{device} ", run.text, re.M)


@needs_sshd
def test_the_report_has_each_reason(swept: tuple[LabFolder, Run]) -> None:
    assert_holes_say(swept[0].folder / "runs/demo", HOLED)
