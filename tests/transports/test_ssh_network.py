"""The rows of the SSH error table that need a network: one without a way, without an answer, without names."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.helpers_ssh import PATIENCE_S, free_port, keygen
from sidewinder.errors import DeviceFault, SidewinderError, TransportError
from sidewinder.model import Device
from sidewinder.transports import ssh_connection
from transports.helpers_table import failure, in_a_network_of_its_own, needs_namespaces

pytestmark = needs_namespaces

# One network card with an address, and a wire that ends in the air.
LAN = "ip link add v0 type veth peer name v1; ip addr add 10.9.0.1/24 dev v0; ip link set v0 up; ip link set v1 up"


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return Device("pi5", "ssh", settings={"host": "10.9.0.9", "identity_file": str(keygen(tmp_path / "key"))})


def at(device: Device, host: str) -> Device:
    return Device(device.id, device.kind, settings={**device.settings, "host": host})


def test_no_way_to_the_network(device: Device) -> None:
    error = in_a_network_of_its_own("", lambda: failure(device))
    assert type(error) is TransportError
    assert "Network is unreachable: this machine has no way there" in str(error)
    assert "10.9.0.9" in str(error)


def test_a_host_that_is_absent_on_its_network(device: Device) -> None:
    """Nobody answers who has that address: the kernel says so after three seconds, sooner than our own limit."""
    error = in_a_network_of_its_own(LAN, lambda: failure(device))
    assert type(error) is TransportError
    assert "No route to host: nobody has that address" in str(error)


def test_a_host_that_swallows_every_packet(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_connection, "CONNECT_S", 0.3)
    setup = f"{LAN}; ip neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 dev v0"
    error = in_a_network_of_its_own(setup, lambda: failure(device))
    assert type(error) is TransportError
    assert "nobody took the connection within 0.3 s" in str(error)


def test_a_firewall_that_says_no(device: Device) -> None:
    error = in_a_network_of_its_own(f"{LAN}; ip route add prohibit 10.9.0.9/32", lambda: failure(device))
    assert type(error) is TransportError
    assert "firewall" in str(error)


# -- names ------------------------------------------------------------------------------------------------------------


class NameServer:
    """Answers every question with ``code`` (2: it failed, 3: there is no such name); None: it says nothing."""

    def __init__(self, code: int | None) -> None:
        self.code = code
        self.asked = threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                question, where = self._socket.recvfrom(4096)
                if where is None:
                    return
                self.asked.set()
                if self.code is not None:
                    flags = 0x8180 | self.code
                    self._socket.sendto(question[:2] + struct.pack("!H", flags) + question[4:], where)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextlib.contextmanager
def name_server(code: int | None) -> Iterator[NameServer]:
    one = NameServer(code)
    try:
        yield one
    finally:
        one.close()


def asks(tmp_path: Path, device: Device, code: int | None) -> SidewinderError:
    """How a call ends whose name server is ours."""
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\noptions attempts:1 timeout:1\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: files dns\n")
    files = "; ".join(
        f"mount --bind {tmp_path / name} /etc/{name}"
        for name in ("resolv.conf", "nsswitch.conf")
        if Path("/etc", name).exists()
    )

    def body() -> SidewinderError:
        with name_server(code) as server:
            error = failure(at(device, "pi5.lan"))
            assert server.asked.wait(PATIENCE_S), "the question came here"
            return error

    return in_a_network_of_its_own(files, body)


def test_a_name_that_nobody_has(tmp_path: Path, device: Device) -> None:
    error = asks(tmp_path, device, 3)
    assert type(error) is DeviceFault
    assert "'pi5.lan' does not resolve" in str(error)
    assert "devices.pi5.host" in str(error)


def test_a_name_server_that_fails(tmp_path: Path, device: Device) -> None:
    error = asks(tmp_path, device, 2)
    assert type(error) is TransportError
    assert "'pi5.lan' does not resolve" in str(error)


def test_a_name_server_that_says_nothing(tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_connection, "CONNECT_S", 0.3)
    error = asks(tmp_path, device, None)
    assert type(error) is TransportError
    assert "the name 'pi5.lan' was not resolved within 0.3 s" in str(error)


def test_no_name_server_at_all(tmp_path: Path, device: Device) -> None:
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\noptions attempts:1 timeout:1\n")
    bind = f"mount --bind {tmp_path / 'resolv.conf'} /etc/resolv.conf"
    error = in_a_network_of_its_own(bind, lambda: failure(at(device, "pi5.lan")))
    assert type(error) is TransportError
    assert "'pi5.lan' does not resolve" in str(error)


def test_this_network_is_untouched() -> None:
    """What the others made ended with their threads."""
    in_a_network_of_its_own(LAN, lambda: None)
    names = {name for _, name in socket.if_nameindex()}
    assert "v0" not in names
    assert free_port()
