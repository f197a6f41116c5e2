"""The SSH error table, row by row: the class of every exception, and which test has seen each row on a real server."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asyncssh import constants

from sidewinder.errors import ConfigError, DeviceFault, TransportError
from sidewinder.model import Device
from sidewinder.transports.ssh_errors import Silent, translate, translate_lost, translate_settings
from sidewinder.transports.ssh_target import Target, target_of


@pytest.fixture
def target(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setenv("HOME", str(tmp_path))
    return target_of(Device("pi5", "ssh", settings={"host": "pi5.lan", "user": "bench", "port": 2222}))


def system(number: int) -> OSError:
    return OSError(number, os.strerror(number))


TABLE = [
    # a person has to do something
    (asyncssh.HostKeyNotVerifiable("Host key is not trusted"), DeviceFault),
    (asyncssh.PermissionDenied("no"), DeviceFault),
    (asyncssh.KeyExchangeFailed("no match"), DeviceFault),
    (asyncssh.ProtocolError("odd"), DeviceFault),
    (asyncssh.ProtocolNotSupported("SSH 1"), DeviceFault),
    (asyncssh.ServiceNotAvailable("no"), DeviceFault),
    (asyncssh.IllegalUserName("no"), DeviceFault),
    (asyncssh.ChannelOpenError(constants.OPEN_ADMINISTRATIVELY_PROHIBITED, "open failed"), DeviceFault),
    (asyncssh.ChannelOpenError(constants.OPEN_REQUEST_SESSION_FAILED, "no exec"), DeviceFault),
    (socket.gaierror(socket.EAI_NONAME, "unknown"), DeviceFault),
    # it may pass
    (socket.gaierror(socket.EAI_AGAIN, "later"), TransportError),
    (system(errno.ENETUNREACH), TransportError),
    (system(errno.EHOSTUNREACH), TransportError),
    (system(errno.ETIMEDOUT), TransportError),
    (system(errno.ECONNREFUSED), TransportError),
    (system(errno.ECONNRESET), TransportError),
    (system(errno.EPIPE), TransportError),
    (system(errno.EMFILE), TransportError),
    (TimeoutError(), TransportError),
    (Silent("the login was not over", 20), TransportError),
    (asyncssh.ConnectionLost("Login timeout expired"), TransportError),
    (asyncssh.MACError("bad"), TransportError),
    (asyncssh.CompressionError("bad"), TransportError),
    (asyncssh.ChannelOpenError(constants.OPEN_CONNECT_FAILED, "open failed"), TransportError),
    (EOFError(), TransportError),
]


@pytest.mark.parametrize(("error", "kind"), TABLE, ids=lambda value: type(value).__name__)
def test_each_row(error: Exception, kind: type, target: Target) -> None:
    ours = translate(error, target)
    assert type(ours) is kind
    assert "'pi5'" in str(ours)
    assert "pi5.lan" in str(ours)


@pytest.mark.parametrize(
    "error",
    [*(error for error, _ in TABLE if isinstance(error, (asyncssh.Error, OSError, EOFError)))],
    ids=lambda value: type(value).__name__,
)
def test_a_link_that_ran_and_broke_is_lost_whatever_broke_it(error: Exception, target: Target) -> None:
    ours = translate_lost(error, target)
    assert type(ours) is TransportError
    assert "link lost" in str(ours)


@pytest.mark.parametrize("error", [KeyError("x"), AssertionError("x"), AttributeError("x"), RuntimeError("x")])
def test_a_bug_is_in_no_table(error: Exception, target: Target) -> None:
    assert translate(error, target) is None
    assert translate_lost(error, target) is None
    assert translate_settings(error, "pi5") is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", "/me/key"), ConfigError),
        (PermissionError(errno.EACCES, "Permission denied", "/me/key"), ConfigError),
        (asyncssh.KeyImportError("Passphrase must be specified"), DeviceFault),
        (asyncssh.KeyEncryptionError("bcrypt is missing"), DeviceFault),
        (asyncssh.ConfigParseError("line 2"), ConfigError),
        (ValueError("odd"), ConfigError),
    ],
    ids=lambda value: type(value).__name__,
)
def test_settings(error: Exception, kind: type) -> None:
    ours = translate_settings(error, "pi5")
    assert type(ours) is kind
    assert "pi5" in str(ours)


# Each thing that can happen, and the test that makes it happen: file, function.
SEEN = {
    "no way to the network": ("test_ssh_network", "test_no_way_to_the_network"),
    "host absent on its network": ("test_ssh_network", "test_a_host_that_is_absent_on_its_network"),
    "packets are swallowed": ("test_ssh_network", "test_a_host_that_swallows_every_packet"),
    "the backlog is full": ("test_ssh_failures", "test_silent_before_the_connection"),
    "taken, then silent": ("test_ssh_failures", "test_silent_after_the_connection"),
    "refused": ("test_ssh_failures", "test_nobody_listens"),
    "no SSH server, or one that hangs up": ("test_ssh_failures", "test_no_ssh_server"),
    "the name is unknown": ("test_ssh_network", "test_a_name_that_nobody_has"),
    "the name server fails": ("test_ssh_network", "test_a_name_server_that_fails"),
    "the name server is not there": ("test_ssh_network", "test_no_name_server_at_all"),
    "the name server is silent": ("test_ssh_network", "test_a_name_server_that_says_nothing"),
    "host key changed": ("test_ssh_failures", "test_a_changed_host_key"),
    "host key unknown": ("test_ssh_failures", "test_an_unknown_host_key"),
    "host key revoked": ("test_ssh_failures", "test_a_revoked_host_key"),
    "key file missing": ("test_ssh_failures", "test_an_identity_file_that_is_missing"),
    "key not authorized": ("test_ssh_failures", "test_a_key_that_is_not_authorized"),
    "no such user": ("test_ssh_failures", "test_a_user_who_does_not_exist"),
    "no key": ("test_ssh_failures", "test_no_key_at_all"),
    "login shell missing": ("test_ssh_far_end", "test_a_login_shell_that_is_not_there"),
    "key with a passphrase": ("test_ssh_failures", "test_a_key_with_a_passphrase"),
    "no common algorithm": ("test_ssh_failures", "test_no_algorithm_in_common"),
    "banner that is no UTF-8": ("test_ssh_failures", "test_a_banner_that_is_not_utf_8_changes_nothing"),
    "MaxStartups": ("test_ssh_far_end", "test_a_storm_of_logins_is_told_and_ridden_out"),
    "MaxSessions": ("test_ssh_failures", "test_sessions_are_forbidden"),
    "exit code, signal, crash": ("test_ssh_far_end", "test_how_a_program_ends"),
    "python missing": ("test_ssh_far_end", "test_no_python_under_every_login_shell"),
    "python not executable": ("test_ssh_failures", "test_a_python_that_may_not_be_executed"),
    "login shell nologin, false": ("test_ssh_far_end", "test_a_login_shell_that_lets_nobody_work"),
    ".bashrc prints, exits": ("test_ssh_failures", "test_a_noisy_login_changes_nothing"),
    ".bashrc hangs": ("test_ssh_far_end", "test_a_start_file_that_hangs"),
    "output that is no UTF-8, and much of it": (
        "test_ssh_far_end",
        "test_a_flood_of_odd_bytes_keeps_head_and_tail_and_counts_the_rest",
    ),
    "the device's disk is full": ("test_ssh_failures", "test_a_disk_without_room"),
    "folder not writable": ("test_ssh_failures", "test_a_workdir_that_cannot_be_written"),
    "silence or RST in mid-command, session killed": (
        "test_ssh_failures",
        "test_a_link_that_breaks_is_lost_and_comes_back",
    ),
    "monitor killed": ("test_ssh_far_end", "test_a_monitor_that_is_killed_says_nothing_until_the_next_session"),
    "service stopped": ("test_ssh_failures", "test_a_service_that_was_stopped_keeps_its_sessions"),
    "reboot, power cut": ("test_ssh_far_end", "test_a_device_that_goes_and_comes_back"),
    "service frozen": ("test_ssh_far_end", "test_a_service_that_is_frozen_takes_connections_and_says_nothing"),
    "session frozen for a while": ("test_ssh_far_end", "test_a_session_that_is_frozen_for_a_while_is_not_lost"),
    "session frozen for good": ("test_ssh_far_end", "test_a_session_that_stays_frozen_is_a_lost_link"),
}


@pytest.mark.parametrize("row", SEEN)
def test_each_row_is_seen_on_a_real_server(row: str) -> None:
    module, function = SEEN[row]
    text = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    assert f"\ndef {function}(" in text
