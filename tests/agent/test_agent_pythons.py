"""The agent on every Python that can be had here, and its refusal on one that is too old."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from agent.helpers_agent import Bench, drive, ended, eventually, run, sh, written
from sidewinder.errors import DeviceFault
from sidewinder.model import FileCheck


def interpreters() -> dict[str, str]:
    """Pythons by ``3.x``: the running one, those of pyenv, those on PATH."""
    found = {}
    for python in sorted(Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob("versions/*/bin/python")):
        if match := re.match(r"3\.\d+", python.parent.parent.name):
            found[match.group()] = str(python)
    for minor in range(6, 15):
        name = f"3.{minor}"
        if name not in found and (there := shutil.which(f"python{name}")) and "shims" not in there:
            found[name] = there
    found[f"3.{sys.version_info.minor}"] = sys.executable
    return found


FOUND = interpreters()
FIT = [name for name in FOUND if int(name.split(".")[1]) >= 7]


@pytest.mark.parametrize("version", FIT)
def test_a_run_with_everything(version: str, tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client(python=FOUND[version])
        assert client.hello is not None
        assert client.hello.python.startswith(version)
        assert (await client.look(["~"]))[0].kind == "folder"
        task = sh(
            "cat; (setsid sleep 1000 &) ; echo e >&2; touch o; exit 4",
            stdin=b"x" * 200_000,
            logs=("o",),
            checks=(FileCheck("/bin/sh", await client.digest("/bin/sh")),),
            prepare={"settle_s": 0.01},
            sample_hz=5.0,
        )
        await client.start("r", 1, task)
        assert (await ended(client, "r")).state == "finished"
        raw = await client.fetch("r", 1)
        assert (raw.state, raw.returncode, raw.stdout.total_bytes, raw.stderr.head) == ("done", 4, 200_000, b"e\n")
        assert [entry["path"] for entry in raw.files] == ["o"]
        assert raw.tree_dead
        assert raw.evidence["usage"]["max_rss_bytes"] > 0
        await client.ack("r", 1)
        await client.start("r", 2, sh("exec sleep 1000"))
        await eventually(lambda: written(bench.record("r", 2) / "proc.json"))
        assert await client.stop("r", 2)
        assert (await run(client, "s", sh("exit 0"))).returncode == 0

    drive(tmp_path, body)


@pytest.mark.parametrize("version", [name for name in FOUND if name == "3.6"])
def test_a_python_too_old_says_so_by_a_frame(version: str, tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        with pytest.raises(DeviceFault, match=r"'here': its Python is 3\.6\.\d+, the agent needs 3\.7"):
            await bench.client(python=FOUND[version])

    drive(tmp_path, body)


def test_without_ctypes_the_cookie_is_the_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python built without libffi, or macOS: no sub-reaper, no death with the parent."""
    from sidewinder.agent import source

    real = source.shipment

    def crippled(nonce: str, **options: object) -> bytes:
        shipped = real(nonce, **options).split(b"\n", 1)[1]
        text = b"import sys\nsys.modules['ctypes'] = None\n" + shipped
        return b"%d\n" % len(text) + text

    monkeypatch.setattr(source, "shipment", crippled)

    async def body(bench: Bench) -> None:
        client = await bench.client()
        assert client.hello is not None
        assert client.hello.facts["capabilities"]["dies_with_runner"] is False
        raw = await run(client, "r", sh("setsid sleep 1000 & sleep 1000 & exit 3"))
        assert (raw.returncode, raw.tree_dead, raw.evidence["proof"]) == (3, True, "cookie")
        assert raw.evidence["leftover_killed"] == 2
        assert bench.processes() == []

    drive(tmp_path, body)
