"""`sidewinder devices stage` and what `doctor` says of staged models, with a device behind a real SSH server."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.helpers_ssh import Sshd, needs_sshd
from sidewinder import cli
from sidewinder.files.lock import ControllerLock

pytestmark = needs_sshd
MIB = 1 << 20
CONTENT = random.Random(5).randbytes(3 * MIB)
DIGEST = hashlib.sha256(CONTENT).hexdigest()

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "pi5").start()
    yield one
    one.stop()


@pytest.fixture
def say(server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """The lab's folder is the working directory; models `smol` (staged) and `there` (has a path)."""
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / "me").mkdir()
    folder = tmp_path / "lab"
    (folder / "config").mkdir(parents=True)
    (folder / "models").mkdir()
    (folder / "models" / "smol.gguf").write_bytes(CONTENT)
    monkeypatch.chdir(folder)
    configure(server)

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(list(words))
        return code, *capsys.readouterr()

    return call


def configure(server: Sshd, **smol: Any) -> None:
    lab = {
        "experiment": "stage",
        "output_dir": "runs/stage",
        "devices": {"pi5": server.settings(), "local": {}},
        "models": {"smol": {"stage": "models/smol.gguf", **smol}, "there": "/srv/there.gguf"},
        "matrix": [
            {"backend": "command", "devices": ["pi5", "local"], "models": ["smol", "there"], "command": ["true"]}
        ],
    }
    Path("config/lab.yaml").write_text(yaml.safe_dump(lab, sort_keys=False))


def test_one_line_a_file_and_a_second_time_nothing_is_sent(say: Say, server: Sshd) -> None:
    code, out, _ = say("devices", "stage")
    assert (code, out.startswith("pi5: models/smol.gguf: sent 3.0 MiB in ")) == (0, True)
    assert out.count("\n") == 1, "what has a path, and what is measured here, is not brought"
    assert (server.state / "store" / DIGEST).read_bytes() == CONTENT
    assert say("devices", "stage", "pi5")[:2] == (0, "pi5: models/smol.gguf: there already, 3.0 MiB\n")


def test_json_and_what_lay_there_of_an_earlier_try(say: Say, server: Sshd) -> None:
    (server.state / "store").mkdir(parents=True, mode=0o700)
    (server.state / "store" / f"{DIGEST}.part").write_bytes(CONTENT[:MIB])
    code, out, _ = say("devices", "stage", "--json")
    (one,) = json.loads(out)["files"]
    assert (code, one.pop("took_s") >= 0) == (0, True)
    assert one == {
        "device": "pi5",
        "file": "models/smol.gguf",
        "path": str(server.state / "store" / DIGEST),
        "outcome": "resumed",
        "sha256": DIGEST,
        "bytes": 3 * MIB,
        "sent_bytes": 2 * MIB,
    }


def test_what_cannot_be_brought_is_said_and_ends_with_1(say: Say, server: Sshd) -> None:
    configure(server, sha256="0" * 64)
    code, out, _ = say("devices", "stage")
    assert code == 1
    for word in ("pi5: models/smol.gguf: FAILED (config)", "0" * 64, DIGEST):
        assert word in out
    configure(server)
    server.stop()
    code, out, _ = say("devices", "stage")
    assert (code, "FAILED (transport)" in out) == (1, True)


def test_unknown_devices_and_nothing_to_do(say: Say) -> None:
    code, _, err = say("devices", "stage", "pi6")
    assert (code, "known: pi5, local" in err) == (2, True)
    code, out, _ = say("devices", "stage", "local")
    assert (code, "nothing to bring" in out) == (0, True)


def test_a_sweep_that_runs_meanwhile_is_told_of(say: Say) -> None:
    lock = ControllerLock("runs/stage").acquire()
    try:
        code, _, err = say("devices", "stage")
    finally:
        lock.release()
    assert (code, "a sweep is running" in err) == (0, True)


def test_doctor_looks_for_a_commands_own_files(say: Say, server: Sshd) -> None:
    lab = yaml.safe_load(Path("config/lab.yaml").read_text())
    lab["matrix"][0].update(command=["./bench.sh", "data"], stage=["./bench.sh", "data"])
    Path("config/lab.yaml").write_text(yaml.safe_dump(lab, sort_keys=False))
    Path("data").write_text("17")
    _, out, _ = say("doctor", "--json", "--device", "pi5")
    verdicts = {one["what"]: one["verdict"] for one in json.loads(out)["findings"]}
    assert (verdicts["file data"], verdicts["file ./bench.sh"]) == ("ok", "fail")
    assert say("devices", "stage", "pi5")[0] == 1
    Path("bench.sh").write_text("#!/bin/sh")
    code, out, _ = say("devices", "stage", "pi5")
    assert (code, "pi5: ./bench.sh: sent" in out) == (0, True)


def test_doctor_looks_for_a_staged_model_on_this_machine(say: Say, server: Sshd) -> None:
    def finding(*words: str) -> dict[str, str]:
        _, out, _ = say("doctor", "--json", "--device", "pi5", *words)
        (one,) = (one for one in json.loads(out)["findings"] if one["what"] == "model smol")
        return dict(one)

    assert finding()["verdict"] == "ok"
    assert "is brought there" in finding()["text"]
    assert "before its points run" in finding("--digest")["text"]
    say("devices", "stage")
    assert "lies there already" in finding("--digest")["text"]
    configure(server, sha256="0" * 64)
    assert finding("--digest")["verdict"] == "fail"
    Path("models/smol.gguf").unlink()
    assert finding()["verdict"] == "fail"
