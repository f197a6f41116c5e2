"""The SSH error table, row by row: also what loopback cannot do to us."""

from __future__ import annotations

import errno
import os
import socket
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
