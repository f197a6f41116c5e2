"""The lab hosts themselves: each fault does what its name says, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from netns import lab_hosts
from netns.lab_hosts import UID, LabHost, LabHosts, until, workload

TESTS = Path(__file__).resolve().parents[1]
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabHosts]:
    with LabHosts(tmp_path_factory.mktemp("lab"), n=2) as lab:
        yield lab


def connect(host: LabHost, timeout_s: float = 30.0) -> socket.socket:
    connection = socket.create_connection((host.address, 22), timeout_s)
    assert connection.recv(4) == b"SSH-"
    connection.recv(4096)
    return connection


def sees(host: LabHost) -> bool:
    try:
        connect(host, 1.0).close()
    except OSError:
        return False
    return True


def start(host: LabHost, *argv: str) -> subprocess.Popen[bytes]:
    """As the account of the host, out of its sshd."""
    enter = ("nsenter", "-t", str(host._init), "-m", "-u", "-i", "-n", "-p", "setpriv", "--reuid", str(UID))
    return subprocess.Popen([*enter, "--regid", str(UID), "--clear-groups", *argv], start_new_session=True)


def test_hosts_are_machines_of_their_own(lab: LabHosts) -> None:
    one, other = lab["h1"], lab["h2"]
    assert one.inside("hostname").strip() == "h1"
    assert one.inside("cat", BOOT_ID) != other.inside("cat", BOOT_ID) != Path(BOOT_ID).read_text()
    assert one.public_key != other.public_key
    one.inside("touch", "/tmp/mine")
    assert other.inside("ls", "/tmp") == ""
    assert sees(one)
    assert sees(other)
    assert {process.name for process in one.all_processes()} == {"sshd"}


@pytest.mark.parametrize("fault", ["cut", "drop"])
def test_a_dead_link_is_silent_in_both_directions_until_it_is_healed(lab: LabHosts, fault: str) -> None:
    host = lab["h1"]
    with connect(host) as connection:
        getattr(host, fault)()
        connection.sendall(b"SSH-2.0-test\r\n")
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        assert not sees(host)
        assert sees(lab["h2"])
        host.heal()
        connection.settimeout(30)
        assert connection.recv(1), "the same connection goes on"
    until(lambda: sees(host), "it can be reached again")


def test_a_reset_ends_what_stands_and_lets_new_ones_in(lab: LabHosts) -> None:
    host = lab["h1"]
    with connect(host) as connection:
        assert host.reset() >= 1
        connection.sendall(b"SSH-2.0-test\r\n")
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert sees(host)
    host.heal()


def test_a_reboot_says_farewell_and_a_power_cut_does_not(lab: LabHosts) -> None:
    host = lab["h1"]
    boot = host.inside("cat", BOOT_ID)
    with connect(host) as connection:
        host.reboot()
        assert connection.recv(1) == b"", "its end was told"
    assert host.inside("cat", BOOT_ID) != boot
    boot = host.inside("cat", BOOT_ID)
    with connect(host) as connection:
        host.power_off()
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        assert host.all_processes() == []
        host.power_on()
        connection.settimeout(30)
        connection.sendall(b"SSH-2.0-test\r\n")
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert host.inside("cat", BOOT_ID) != boot
    assert sees(host)


def test_a_witness_tells_how_long_it_lived(lab: LabHosts) -> None:
    host = lab["h2"]
    held = start(host, *workload("held", "hold"))
    until(lambda: host.witness.of("held"), "it began")
    short = start(host, *workload("short", 0.1))
    assert short.wait(60) == 0
    assert [argv[3:] for argv in host.processes()] == [(f"{lab_hosts.HOME}/witness", "held", "hold")]
    assert [(one.run, other.run) for one, other in host.witness.overlaps()] == [("held", "short")]
    assert [one.complete for one in host.witness.executions] == [False, True]
    host.power_off()
    held.wait(60)
    host.power_on()
    (cut,) = host.witness.of("held")
    assert not cut.complete
    host.witness.let_go()
    assert start(host, *workload("held", "hold")).wait(60) == 0
    assert [one.complete for one in host.witness.of("held")] == [False, True]


def test_sshd_can_be_frozen_and_restarted(lab: LabHosts) -> None:
    host = lab["h1"]
    host.freeze_sshd()
    with socket.create_connection((host.address, 22), 30) as connection:  # by the kernel
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        host.thaw_sshd()
        connection.settimeout(30)
        assert connection.recv(1)
    (before,) = host.sshd()[:1]
    host.restart_sshd()
    assert sees(host)
    assert before.pid not in {process.pid for process in host.sshd()}


def test_two_labs_do_not_know_of_each_other(lab: LabHosts, tmp_path: Path) -> None:
    with LabHosts(tmp_path / "other", n=1) as other:
        assert not other.subnet.overlaps(lab.subnet)
        assert sees(other["h1"])
        assert "h2" not in other.hosts
        other["h1"].power_off()
        assert sees(lab["h1"])
    assert sees(lab["h1"])


def test_a_lab_whose_process_was_killed_leaves_nothing(tmp_path: Path) -> None:
    code = (
        f"import sys, time\nsys.path.insert(0, {str(TESTS)!r})\n"
        "from pathlib import Path\nfrom netns.lab_hosts import LabHosts\n"
        "with LabHosts(Path(sys.argv[1]), n=1) as lab:\n"
        "    print(lab.bridge, lab['h1'].card, lab['h1']._init, flush=True)\n    time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    bridge, card, init = owner.stdout.readline().split()
    assert Path("/sys/class/net", card).exists()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    until(lambda: not os.path.exists(f"/proc/{init}"), "its hosts end")
    until(lambda: not Path("/sys/class/net", card).exists(), "its cables go")
    lab_hosts.sweep()  # another test's lab may have done it before us
    assert not Path("/sys/class/net", bridge).exists()
