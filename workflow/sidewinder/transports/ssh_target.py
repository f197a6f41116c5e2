"""An SSH target: one server to log in to (a device or a jump host), as its settings and ``~/.ssh/config`` say.

Everything that could change what runs on the device is set here and not left to the user's file: no terminal, no
remote command, no environment, no forwarding, and host keys are always verified.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sidewinder.errors import ConfigError
from sidewinder.model import Device

from .known_hosts import KnownHosts, own_file

if TYPE_CHECKING:
    from asyncssh import SSHClientConnectionOptions

CONNECT_S = 10.0
LOGIN_S = 20.0
KEEPALIVE_S = 4.0  # a silent link is given up after KEEPALIVE_S x (KEEPALIVES + 1) = 12 s
KEEPALIVES = 2
USER_CONFIG = "~/.ssh/config"
USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts")

# Options of the `ssh` command that have a name in its config file; None: harmless and without meaning here.
_FLAGS = {"4": "AddressFamily inet", "6": "AddressFamily inet6", "C": "Compression yes"}
_WITHOUT_MEANING = frozenset("aknqTtvx")
_WITH_VALUE = {"J": "ProxyJump", "i": "IdentityFile", "l": "User", "p": "Port"}


@dataclass(frozen=True, slots=True)
class SshOptions:
    """``devices.NAME.ssh_options`` as lines of an OpenSSH config, and the config file that it names instead of ours."""

    lines: tuple[str, ...] = ()
    config_file: str | None = None


def read_ssh_options(device: Device) -> SshOptions:
    """Raises ``ConfigError`` for what is not understood: an option that is silently dropped is a surprise later."""
    words = [str(word) for word in device.settings.get("ssh_options") or ()]
    lines: list[str] = []
    config_file = None
    while words:
        word = words.pop(0).strip()
        letter, value = (word[1:2], word[2:].strip()) if word.startswith("-") else ("o", word)
        if letter in _FLAGS and not value:
            lines.append(_FLAGS[letter])
            continue
        if letter and letter in _WITHOUT_MEANING and not value.strip(letter):
            continue
        if letter not in ("o", "F", *_WITH_VALUE):
            raise _bad_option(device, word)
        if not value:
            value = words.pop(0).strip() if words else ""
        if not value or "\n" in value:
            raise _bad_option(device, word)
        if letter == "o":
            name, _, setting = value.replace("=", " ", 1).strip().partition(" ")
            if not setting.strip():
                raise _bad_option(device, value)
            lines.append(f"{name} {setting.strip()}")
        elif letter == "F":
            config_file = os.path.expanduser(value)
        else:
            lines.append(f"{_WITH_VALUE[letter]} {value}")
    return SshOptions(tuple(lines), config_file)


def _bad_option(device: Device, word: str) -> ConfigError:
    return ConfigError(
        "this option is not understood",
        key=f"devices.{device.id}.ssh_options",
        value=word,
        hint="known are -o NAME=VALUE (as in ~/.ssh/config), -J, -i, -l, -p, -F, -4, -6, -C",
    )


@dataclass(slots=True)
class Target:
    """``name`` is what was asked for, ``host`` what the user's config makes of it, ``key_name`` is in known hosts."""

    device: Device
    name: str
    is_jump: bool
    arguments: dict[str, Any]
    options: SSHClientConnectionOptions
    known: KnownHosts
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)

    @property
    def host(self) -> str:
        return self.options.host

    @property
    def port(self) -> int:
        return self.options.port

    @property
    def user(self) -> str:
        return self.options.username

    @property
    def key_name(self) -> str:
        return self.options.host_key_alias or self.host

    @property
    def jumps(self) -> tuple[str, ...]:
        """The hosts on the way, nearest first."""
        tunnel = self.options.tunnel
        return tuple(hop.strip() for hop in tunnel.split(",") if hop.strip()) if isinstance(tunnel, str) else ()

    @property
    def has_proxy_command(self) -> bool:
        return bool(self.options.proxy_command)

    @property
    def address(self) -> tuple[str, str, int]:
        return self.user, self.host, self.port

    def __str__(self) -> str:
        where = f"{self.user}@{self.host}:{self.port}"
        return (
            f"device {self.device.id!r}: jump host {where}" if self.is_jump else f"device {self.device.id!r} ({where})"
        )


def target_of(device: Device) -> Target:
    """Raises what ``ssh_errors.translate_settings`` knows (missing or encrypted keys, a config that cannot be read)."""
    settings = device.settings
    wanted: dict[str, Any] = {}
    for key, name in (("user", "username"), ("port", "port")):
        if settings.get(key) is not None:
            wanted[name] = settings[key]
    if settings.get("identity_file"):
        wanted["client_keys"] = [os.path.expanduser(str(settings["identity_file"]))]
    return _target(device, str(settings["host"]), wanted, read_ssh_options(device), is_jump=False)


def jump_target(device: Device, hop: str) -> Target:
    """A hop of a ProxyJump, ``[user@]host[:port]``: its own part of the user's config counts, not the device's."""
    rest, wanted = hop.removeprefix("ssh://"), {}
    user, at, host = rest.rpartition("@")
    if at:
        wanted["username"] = user
    if host.startswith("["):
        host, _, port = host[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = host.partition(":") if host.count(":") == 1 else (host, "", "")
    if port:
        if not port.isdigit():
            raise ConfigError("not a port", key=f"devices.{device.id}: jump host {hop}", value=port)
        wanted["port"] = port
    options = read_ssh_options(device)
    return _target(device, host, dict(wanted), SshOptions((), options.config_file), is_jump=True)


def _target(device: Device, name: str, wanted: dict[str, Any], extra: SshOptions, *, is_jump: bool) -> Target:
    from asyncssh import SSHClientConnectionOptions

    folder = None
    config: list[str] = []
    if extra.lines:
        # kept as long as the target: a `Match final` makes asyncssh read its files again
        folder = tempfile.TemporaryDirectory(prefix="sidewinder-ssh-")
        config.append(os.path.join(folder.name, "config"))
        with open(config[0], "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in extra.lines))
    user_config = extra.config_file or os.path.expanduser(USER_CONFIG)
    if extra.config_file or os.access(user_config, os.R_OK):
        config.append(user_config)
    if "port" in wanted:
        wanted["port"] = int(wanted["port"])
    arguments: dict[str, Any] = {
        **wanted,
        "config": config,
        "request_pty": False,
        "command": None,
        "env": {},
        "send_env": [],
        "agent_forwarding": False,
        "x11_forwarding": False,
        "encoding": None,
        "utf8_decode_errors": "replace",  # one odd byte in a banner must not end the login (B35)
        "login_timeout": LOGIN_S,
        "connect_timeout": None,  # ours are around it
        "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": KEEPALIVES,
    }
    options = _options(SSHClientConnectionOptions, name, arguments)
    listed: Any = options.config.get("UserKnownHostsFile") or ()
    others = [os.path.expanduser(str(path)) for path in (*listed, *USER_KNOWN_HOSTS)]
    known = KnownHosts(own_file(device.settings.get("known_hosts")), others)
    return Target(device, name, is_jump, arguments, options, known, folder)


def _options(make: Any, name: str, arguments: dict[str, Any]) -> SSHClientConnectionOptions:
    """A key file that was named is tried alone: a server counts every key, and hangs up after six of an agent's."""
    from asyncssh import KeyEncryptionError, KeyImportError

    named = arguments.get("client_keys")
    if named:
        arguments["agent_path"] = None
    try:
        options: SSHClientConnectionOptions = make(host=name, **arguments)
    except (KeyImportError, KeyEncryptionError):
        if not named or not os.environ.get("SSH_AUTH_SOCK"):
            raise
        # It needs a passphrase, and there is an agent that may hold it open: then the file says which key is meant.
        arguments["ignore_encrypted"] = True
        del arguments["agent_path"]
        public = f"{named[0]}.pub"
        if os.path.exists(public):
            arguments["agent_identities"] = [public]
        options = make(host=name, **arguments)
    return options
