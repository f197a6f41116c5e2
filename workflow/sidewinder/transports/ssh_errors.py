"""The SSH error table: what asyncssh, the resolver and the kernel raise, as one of our errors.

Classes that mean "do not try again" come first, since in asyncssh they are children of those that mean "try again".
Nothing is read out of message text: what decides is the class, its code, and what we saw ourselves (the host key that
was offered, whether this device ever answered).
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import socket
from typing import TYPE_CHECKING

from sidewinder.errors import ConfigError, DeviceFault, SidewinderError, TransportError

from .known_hosts import described

if TYPE_CHECKING:
    from asyncssh import SSHKey

    from .ssh_target import Target

_LOOK_AT = {
    errno.ENETUNREACH: "this machine has no way there. Is its own network (Wi-Fi, VPN) up?",
    errno.EHOSTUNREACH: "nobody has that address there just now. Is it switched on, is the address still right?",
    errno.EACCES: "a rule of this machine's network forbids it. Is there a firewall?",
    errno.EPERM: "a rule of this machine's network forbids it. Is there a firewall?",
    errno.EMFILE: "this machine lets the controller open no more files (ulimit -n)",
}
_NO_SUCH_NAME = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


class Silent(Exception):
    """One of our own waits ended: ``what`` did not happen within ``limit_s``."""

    def __init__(self, what: str, limit_s: float) -> None:
        super().__init__(f"{what} within {limit_s:g} s")


def translate_settings(error: Exception, device_id: str) -> SidewinderError | None:
    """What can be wrong before anything is sent: files and settings on this machine. None: not in the table."""
    from asyncssh import ConfigParseError, IllegalUserName, KeyEncryptionError, KeyImportError

    where, key = f"device {device_id!r}", f"devices.{device_id}.identity_file"
    if isinstance(error, SidewinderError):
        return error
    if isinstance(error, OSError):  # on the controller: class `config` (docs/design.md §3)
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return ConfigError(f"{where}: a file that SSH needs cannot be read: {what}", key=key)
    if isinstance(error, (KeyImportError, KeyEncryptionError)):
        return DeviceFault(
            f"{where}: its private key cannot be used: {error}. If it has a passphrase, give it to an SSH agent "
            f"(ssh-add) and start again; else name another key: {key}"
        )
    if isinstance(error, (ConfigParseError, IllegalUserName)):
        return ConfigError(f"{where}: the SSH config cannot be used: {error}", key=f"devices.{device_id}.ssh_options")
    if isinstance(error, ValueError):
        return ConfigError(f"{where}: its SSH settings cannot be used: {error}", key=f"devices.{device_id}")
    return None


def translate(
    error: BaseException, target: Target, *, offered: SSHKey | None = None, answered_before: bool = False
) -> SidewinderError | None:
    """What can happen until a session runs. None: not in the table, so a bug of ours. ``answered_before``: this address
    has worked for this controller, so a name that is gone is a device that is rebooting, not a typing error."""
    import asyncssh

    device = target.device.id
    if isinstance(error, SidewinderError):
        return error
    # -- a person has to do something
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return _host_key(error, target, offered)
    if isinstance(error, asyncssh.PermissionDenied):
        return DeviceFault(
            f"{target}: login refused for user {target.user!r}. Tried: {_keys_tried(target)}. Put one of the public "
            f"keys into that user's ~/.ssh/authorized_keys, or name others: devices.{device}.user, "
            f"devices.{device}.identity_file. (A user or a login shell that is not there is refused in the same words.)"
        )
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return DeviceFault(
            f"{target}: no algorithm in common: {error.reason}. Update the server, or allow one here: "
            f"devices.{device}.ssh_options: [-o, KexAlgorithms=...]"
        )
    if isinstance(error, (asyncssh.ProtocolError, asyncssh.ProtocolNotSupported)):
        return DeviceFault(
            f"{target}: it ends the login: {error.reason}. If an SSH agent offers too many keys, name the right one: "
            f"devices.{device}.identity_file; else, is that the SSH port?"
        )
    if isinstance(error, (asyncssh.ServiceNotAvailable, asyncssh.IllegalUserName)):
        return DeviceFault(f"{target}: the server refuses: {error.reason}")
    if isinstance(error, (asyncssh.PasswordChangeRequired, asyncssh.KeyImportError, asyncssh.KeyEncryptionError)):
        return DeviceFault(f"{target}: login is not possible: {error}")
    if isinstance(error, asyncssh.ChannelOpenError):
        return _channel(error, target)
    if isinstance(error, socket.gaierror):
        text = f"{target}: the name {target.host!r} does not resolve: {error.strerror}"
        if error.errno in _NO_SUCH_NAME and not answered_before:
            return DeviceFault(f"{text}. Correct devices.{device}.host, or say where it is in ~/.ssh/config")
        return TransportError(text)
    if isinstance(error, (FileNotFoundError, PermissionError)) and target.has_proxy_command:
        return ConfigError(f"{target}: its ProxyCommand cannot be run: {error}", key=f"devices.{device}.ssh_options")
    # -- the way there: it may pass
    if isinstance(error, Silent):
        return TransportError(f"{target}: no answer: {error}")
    if isinstance(error, TimeoutError) and not getattr(error, "errno", None):
        return TransportError(f"{target}: no answer in time")
    if isinstance(error, ConnectionRefusedError):
        return TransportError(f"{target}: connection refused: nothing listens there. Is it booting, is sshd running?")
    if isinstance(error, ConnectionResetError):
        return TransportError(
            f"{target}: the connection was cut. Too many logins at once, or no SSH server on this port?"
        )
    if isinstance(error, OSError):
        return TransportError(f"{target}: {_reason(error)}")
    if isinstance(error, asyncssh.ConnectionLost):
        return TransportError(
            f"{target}: {error.reason or 'connection lost'} before the login was over. Too many logins at once, a "
            "machine that is frozen or overloaded, or no SSH server on this port?"
        )
    if isinstance(error, asyncssh.DisconnectError):
        return TransportError(f"{target}: {error.reason or type(error).__name__}")
    if isinstance(error, (asyncssh.Error, EOFError)):
        return TransportError(f"{target}: {error or type(error).__name__}")
    return None


def _reason(error: OSError) -> str:
    """The kernel's own words, where asyncio has put "Connect call failed" in their place, and what to look at."""
    said = os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
    hint = _LOOK_AT.get(error.errno or 0)
    return f"{said}: {hint}" if hint else said


def translate_lost(error: BaseException, target: Target) -> TransportError | None:
    """A session that ran and broke off: whatever it was, it says nothing about the device. None: a bug of ours."""
    import asyncssh

    if isinstance(error, TransportError):
        return error
    if isinstance(error, asyncssh.DisconnectError):
        return TransportError(f"{target}: link lost: {error.reason or type(error).__name__}")
    if isinstance(error, (asyncssh.Error, OSError, EOFError)):
        return TransportError(f"{target}: link lost: {error or type(error).__name__}")
    return None


def _host_key(error: Exception, target: Target, offered: SSHKey | None) -> DeviceFault:
    trusted, revoked = target.known.keys_of(target.key_name, target.port)
    enrol = f"sidewinder devices enrol {target.device.id}"
    if offered is None:
        if revoked:
            keys = ", ".join(described(key) for key in revoked)
            return DeviceFault(f"{target}: its host key is revoked ({keys}). Nothing was sent to it. Give it a new key")
        return DeviceFault(f"{target}: its host key or certificate is not valid: {error}")
    if trusted:
        known = ", ".join(described(key) for key in trusted)
        return DeviceFault(
            f"{target}: THE HOST KEY HAS CHANGED: it shows {described(offered)}, known is {known}. The device was set "
            "up anew, its address went to another machine, or somebody listens in between. Nothing was sent to it. "
            f"Find out which; if the new key is right: {enrol}"
        )
    return DeviceFault(
        f"{target}: its host key is unknown: {described(offered)}; looked in {', '.join(target.known.files)}. Compare "
        f"it on the device ({how_to_compare(offered)}), then: {enrol}"
    )


def how_to_compare(key: SSHKey) -> str:
    """The command that shows the fingerprint on the server itself."""
    kind = key.get_algorithm().removeprefix("ssh-").split("-")[0]  # ssh-ed25519, ecdsa-sha2-nistp256
    return f"ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub"


def _channel(error: Exception, target: Target) -> SidewinderError:
    from asyncssh import ChannelOpenError
    from asyncssh.constants import (
        OPEN_ADMINISTRATIVELY_PROHIBITED,
        OPEN_REQUEST_SESSION_FAILED,
        OPEN_UNKNOWN_CHANNEL_TYPE,
    )

    assert isinstance(error, ChannelOpenError)
    if error.code == OPEN_ADMINISTRATIVELY_PROHIBITED:
        return DeviceFault(
            f"{target}: it forbids this: {error.reason}. A jump host must allow TCP forwarding, a device sessions"
        )
    if error.code in (OPEN_REQUEST_SESSION_FAILED, OPEN_UNKNOWN_CHANNEL_TYPE):
        return DeviceFault(f"{target}: it does not let us run commands: {error.reason}")
    return TransportError(f"{target}: no session or channel was opened: {error.reason}")


def _keys_tried(target: Target) -> str:
    keys = [
        f"{pair.get_comment() or 'key'} (SHA256:{_sha256(pair.public_data)})"
        for pair in target.options.client_keys or ()
    ]
    if target.options.agent_path:
        keys.append(f"the keys of the SSH agent at {target.options.agent_path}")
    return ", ".join(keys) or "no key at all (none found in ~/.ssh without a passphrase, no SSH agent)"


def _sha256(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
