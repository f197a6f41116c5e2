"""`sidewinder devices enrol`: a host key is shown, a person decides, and only then it is trusted."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from e2e.helpers_ssh import Sshd, keygen, needs_sshd
from sidewinder import cli

pytestmark = needs_sshd


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "pi5").start()
    yield one
    one.stop()


@pytest.fixture
def say(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    settings = server.settings(known_hosts=None)
    lab: dict[str, Any] = {
        "experiment": "e",
        "devices": {"local": {}, "pi5": settings},
        "matrix": [{"backend": "command", "devices": ["pi5"], "command": ["echo", "n=1"], "metrics": {"n": r"n=(\d)"}}],
    }
    (tmp_path / "config").mkdir()
    (tmp_path / "config/lab.yaml").write_text(yaml.safe_dump(lab))

    def say(*words: str, answer: str | None = None) -> Said:
        stdin = io.StringIO(answer or "")
        stdin.isatty = lambda: answer is not None  # type: ignore[method-assign]
        monkeypatch.setattr("sys.stdin", stdin)
        capsys.readouterr()
        code = cli.main(["devices", *words])
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return say


def own_file(tmp_path: Path) -> Path:
    return tmp_path / "me/.config/sidewinder/known_hosts"


def shown(path: Path) -> str:
    import asyncssh

    return asyncssh.read_public_key(f"{path}.pub").get_fingerprint()


def test_a_person_says_yes(say: Callable[..., Said], server: Sshd, tmp_path: Path) -> None:
    said = say("enrol", "pi5", answer="yes\n")
    assert said.code == 0, said
    assert shown(server.host_key) in said.out
    assert "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in said.out
    assert own_file(tmp_path).read_text() == f"[127.0.0.1]:{server.port} {server.public_host_key()}\n"
    assert stat.S_IMODE(os.stat(own_file(tmp_path).parent).st_mode) == 0o700
    assert "trusted already" in say("enrol", "pi5").out
    assert cli.main(["doctor", "--device", "pi5"]) == 0


@pytest.mark.parametrize("answer", ["no\n", "\n", "y\n", ""])
def test_anything_else_is_a_no(answer: str, say: Callable[..., Said], tmp_path: Path) -> None:
    assert say("enrol", "pi5", answer=answer).code == 1
    assert not own_file(tmp_path).exists()


def test_the_right_fingerprint_needs_no_question(say: Callable[..., Said], server: Sshd, tmp_path: Path) -> None:
    assert say("enrol", "pi5", "--yes", "--fingerprint", shown(server.host_key)).code == 0
    assert own_file(tmp_path).exists()


def test_another_fingerprint_is_refused(say: Callable[..., Said], tmp_path: Path) -> None:
    said = say("enrol", "pi5", "--fingerprint", shown(keygen(tmp_path / "other")))
    assert said.code == 1
    assert "nothing was trusted" in said.err
    assert not own_file(tmp_path).exists()


def test_yes_alone_is_refused(say: Callable[..., Said]) -> None:
    said = say("enrol", "pi5", "--yes")
    assert said.code == 2
    assert "--fingerprint" in said.err


def test_nobody_to_ask(say: Callable[..., Said], tmp_path: Path) -> None:
    said = say("enrol", "pi5")
    assert said.code == 2
    assert "--fingerprint" in said.err
    assert not own_file(tmp_path).exists()


def test_a_changed_key_is_shown_beside_the_old_one_and_replaces_it(
    say: Callable[..., Said], server: Sshd, tmp_path: Path
) -> None:
    old = keygen(tmp_path / "old")
    own_file(tmp_path).parent.mkdir(parents=True)
    others = f"# mine\n[127.0.0.1]:1 {server.public_host_key()}\n"
    own_file(tmp_path).write_text(f"{others}[127.0.0.1]:{server.port} {Path(f'{old}.pub').read_text()}")
    said = say("enrol", "pi5", answer="yes\n")
    assert said.code == 0
    assert shown(old) in said.out
    assert "listen in between" in said.out
    assert own_file(tmp_path).read_text() == f"{others}[127.0.0.1]:{server.port} {server.public_host_key()}\n"


def test_a_revoked_key_cannot_be_enrolled(say: Callable[..., Said], server: Sshd, tmp_path: Path) -> None:
    own_file(tmp_path).parent.mkdir(parents=True)
    own_file(tmp_path).write_text(f"@revoked [127.0.0.1]:{server.port} {server.public_host_key()}\n")
    said = say("enrol", "pi5", answer="yes\n")
    assert said.code == 1
    assert "revoked" in said.err


@pytest.mark.parametrize(("name", "word"), [("pi6", "no such device"), ("local", "not reached by SSH")])
def test_a_device_without_a_host_key(name: str, word: str, say: Callable[..., Said]) -> None:
    said = say("enrol", name)
    assert said.code == 2
    assert word in said.err


def test_a_jump_host_is_enrolled_on_the_way(say: Callable[..., Said], server: Sshd, tmp_path: Path) -> None:
    jump = Sshd(tmp_path / "jump").start()
    try:
        (tmp_path / "me/.ssh").mkdir(parents=True)
        (tmp_path / "me/.ssh/config").write_text(
            f"Host bastion\n  HostName 127.0.0.1\n  Port {jump.port}\n  IdentityFile {jump.identity}\n"
        )
        config = yaml.safe_load((tmp_path / "config/lab.yaml").read_text())
        config["devices"]["pi5"]["ssh_options"] = ["-J", "bastion"]
        (tmp_path / "config/lab.yaml").write_text(yaml.safe_dump(config))
        said = say("enrol", "pi5", answer="yes\nyes\n")
        assert said.code == 0
        assert said.out.index(shown(jump.host_key)) < said.out.index(shown(server.host_key))
        assert len(own_file(tmp_path).read_text().splitlines()) == 2
    finally:
        jump.stop()
