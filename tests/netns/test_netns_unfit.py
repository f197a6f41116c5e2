"""Hosts that are not fit to be measured on, and hosts that are merely odd.

| what is wrong with the host | outcome |
| --- | --- |
| its host key is another one; its account does not let us in any more: during a run | hole, quarantine, the run lives \
on; once a person mended it: adopted, one execution |
| it has no Python; its disk is full: from the start | hole, quarantine; once mended: measured |
| MaxSessions 1; the login prints what is no UTF-8 | measured as on any other |
| it is behind a jump host whose power is cut during the runs | the same executions; results fetched |
| it shares an address with another one, behind a gateway that restarts | each is measured on its own port |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netns.conftest import MakeSweep
from netns.controller import witnessed
from netns.lab_hosts import LabHost, LabHosts, until
from sidewinder.model import Device


def other_key(host: LabHost) -> None:
    host.new_key()
    host.restart_sshd()


def trust_it(host: LabHost) -> None:
    host.lab.trust()


def shut_out(host: LabHost) -> None:
    host.allow(False)
    host.kill_sessions()


def let_in(host: LabHost) -> None:
    host.allow(True)


@pytest.mark.parametrize(
    ("harm", "mend", "said"),
    [(other_key, trust_it, "CHANGED"), (shut_out, let_in, "login refused")],
    ids=["host-key", "authorization"],
)
def test_a_host_that_refuses_us_during_a_run(
    harm: Callable[[LabHost], None],
    mend: Callable[[LabHost], None],
    said: str,
    lab: LabHosts,
    sweep: MakeSweep,
) -> None:
    sick, well = lab["h1"], lab["h2"]
    points = [witnessed("h1", "a"), witnessed("h1", "b"), witnessed("h2", "c"), witnessed("h2", "d")]
    devices = [sick.device(), well.device()]
    one = sweep(points, devices)
    one.until_running(sick, "a")
    harm(sick)
    one.until(lambda: one.outcomes().get("b") == "hole", "the host is taken out")
    well.witness.let_go()
    assert one.finish() == {"a": "hole", "b": "hole", "c": "ok", "d": "ok"}
    for run in "ab":
        failure = one.record(run)["failure"]
        assert failure["class"] == "not_attempted"
        assert said in failure["message"] + str(failure["evidence"])
    assert ("a", "hold") in [argv[4:] for argv in sick.processes()], "what runs there is not known to be dead"

    mend(sick)
    again = sweep(points, devices)
    again.until(lambda: len(sick.fronts()) == 1, "it is reached again")
    sick.witness.let_go()
    again.finish()
    assert again.outcomes()["a"] == again.outcomes()["b"] == "ok"
    assert [(execution.run, execution.complete) for execution in sick.witness.executions] == [("a", True), ("b", True)]
    assert any("taken over" in warning for warning in again.record("a")["warnings"])
    assert again.record("a")["metrics"]["start_ns"] == sick.witness.of("a")[0].start_ns


def no_python(host: LabHost) -> tuple[Device, Device]:
    return host.device(python="/no/python3"), host.device()


def full_disk(host: LabHost) -> tuple[Device, Device]:
    device = host.device(workdir=host.small_disk("256k"))
    return device, device


@pytest.mark.parametrize(
    ("harm", "said"), [(no_python, "/no/python3"), (full_disk, "its disk is full")], ids=["no-python", "full-disk"]
)
def test_a_host_that_is_unfit_from_the_start(
    harm: Callable[[LabHost], tuple[Device, Device]], said: str, lab: LabHosts, sweep: MakeSweep
) -> None:
    sick, well = lab["h1"], lab["h2"]
    points = [witnessed("h1", "a", 0.1), witnessed("h1", "b", 0.1), witnessed("h2", "c", 0.1)]
    unfit, mended = harm(sick)
    one = sweep(points, [unfit, well.device()])
    assert one.finish() == {"a": "hole", "b": "hole", "c": "ok"}
    assert sick.witness.executions == []
    failures = [one.record(run)["failure"] for run in "ab"]
    assert all(said in str(failure) for failure in failures)
    assert {failure["evidence"]["cause"] for failure in failures} == {"device"}
    if harm is full_disk:
        sick.small_disk("100m")
    again = sweep(points, [mended, well.device()])
    again.finish()
    assert again.outcomes()["a"] == again.outcomes()["b"] == "ok"
    assert [len(sick.witness.of(run)) for run in "ab"] == [1, 1]
    assert len(well.witness.executions) == 1


@pytest.fixture
def noisy(lab: LabHosts) -> Iterator[LabHost]:
    host = lab["h1"]
    startup = host.home / ".bashrc"
    startup.write_bytes(b"echo WELCOME; printf '\\377\\376 @@ no newline'; printf 'Gr\\374\\337e\\n' >&2\n")
    startup.chmod(0o644)
    host.configure("MaxSessions 1")
    host.restart_sshd()
    yield host
    startup.unlink()
    host.configure()
    host.restart_sshd()


def test_a_host_with_one_session_and_a_login_that_talks(noisy: LabHost, sweep: MakeSweep) -> None:
    one = sweep([witnessed("h1", "a"), witnessed("h1", "b", 0.1)], [noisy.device()])
    one.until_running(noisy, "a")
    assert noisy.kill_front() == 1
    one.until(lambda: "reconnected" in one.events(), "there was a session left for the next front")
    noisy.witness.let_go()
    assert one.finish() == {"a": "ok", "b": "ok"}
    assert [execution.run for execution in noisy.witness.executions] == ["a", "b"]


@pytest.fixture
def gateway(lab: LabHosts) -> Iterator[LabHost]:
    """h3 forwards its ports 2201 and 2202 to the first two."""
    one = lab["h3"]
    forward(one)
    lines = [f"[{one.address}]:{2200 + host.number} {host.public_key}\n" for host in lab]
    lab.known_hosts.write_text("".join(lines))
    yield one
    one.reboot()


def forward(gateway: LabHost) -> None:
    gateway.inside("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    for host in (gateway.lab["h1"], gateway.lab["h2"]):
        rule = ("-p", "tcp", "--dport", str(2200 + host.number), "-j", "DNAT", "--to-destination", f"{host.address}:22")
        gateway.inside("iptables", "-w", "-t", "nat", "-A", "PREROUTING", *rule)
    gateway.inside("iptables", "-w", "-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE")


def test_two_devices_behind_one_address(gateway: LabHost, lab: LabHosts, sweep: MakeSweep) -> None:
    left, right = lab["h1"], lab["h2"]
    devices = [
        host.device(name, host=gateway.address, port=2200 + host.number)
        for host, name in ((left, "left"), (right, "right"))
    ]
    one = sweep([witnessed("left", "a"), witnessed("right", "b")], devices)
    one.until_running(left, "a")
    one.until_running(right, "b")  # at the same time: they are two machines
    gateway.reboot()
    one.until(lambda: one.events().count("link_lost") == 2, "both links are lost")
    forward(gateway)
    one.until(lambda: one.events().count("reconnected") == 2, "both are back")
    left.witness.let_go()
    right.witness.let_go()
    assert one.finish() == {"a": "ok", "b": "ok"}
    assert [execution.run for execution in left.witness.executions] == ["a"]
    assert [execution.run for execution in right.witness.executions] == ["b"]
    until(lambda: not left.processes() and not right.processes(), "nothing is left")


def test_a_jump_host_loses_its_power(lab: LabHosts, sweep: MakeSweep, tmp_path: Path) -> None:
    left, right, jump = lab
    (tmp_path / "me/.ssh").mkdir()
    mine = f"Host {jump.address}\n  User bench\n  IdentityFile {lab.identity}\n"
    (tmp_path / "me/.ssh/config").write_text(mine)
    devices = [host.device(ssh_options=["-J", jump.address]) for host in (left, right)]
    one = sweep([witnessed("h1", "a"), witnessed("h2", "b")], devices)
    one.until_running(left, "a")
    one.until_running(right, "b")
    assert [f"from {jump.address}" in (host.folder / "sshd.log").read_text() for host in (left, right)] == [True, True]
    jump.power_off()
    one.until(lambda: one.events().count("link_lost") == 2, "both links are lost")
    left.witness.let_go()
    jump.power_on()
    one.until(lambda: one.events().count("reconnected") == 2, "both are back")
    right.witness.let_go()
    assert one.finish() == {"a": "ok", "b": "ok"}
    assert [[execution.complete for execution in host.witness.executions] for host in (left, right)] == [[True], [True]]
    assert one.attempts("a") == one.attempts("b") == [(1, "ok")]
