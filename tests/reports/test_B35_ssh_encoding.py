"""B35: bytes that are no text, in a workload's output and in a server's banner, come through as they are over SSH."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.helpers_ssh import Sshd, needs_sshd
from engine.helpers_engine import command, make_plan, record, run
from sidewinder import report

pytestmark = needs_sshd
ODD = b"\xc2\x20 \xff\xfe \x00 caf\xc3 \xa9 \x92 \xed\xa0\x80 n=1\n"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / "banner").write_bytes(b"Willkommen auf dem Ger\xe4t \x92\n")
    one = Sshd(tmp_path / "pi5", options=[f"Banner {tmp_path / 'banner'}"])
    settings = (one.folder / "sshd_config").read_text().replace("SetEnv ", "SetEnv LC_ALL=C ")
    (one.folder / "sshd_config").write_text(settings)
    one.start()
    (one.home / ".bashrc").write_text(r"printf 'motd \377\376 \222\n'; printf 'err \377\n' >&2" + "\n")
    yield one
    one.stop()


def test_odd_bytes_are_kept_and_disturb_nobody(server: Sshd, tmp_path: Path) -> None:
    root, device = tmp_path / "runs", server.device()
    split = (  # a character that is cut in two by time
        "import os, time\n"
        f"data = {ODD!r}\n"
        "for n in range(0, len(data), 7): os.write(1, data[n:n + 7]); time.sleep(0.001)\n"
        f"os.write(2, {ODD!r})\n"
    )
    points = [
        command(sys.executable, "-c", split, metrics={"n": r"n=(\d)"}, device="pi5"),
        command("echo", "n=2", metrics={"n": r"n=(\d)"}, device="pi5"),
    ]
    plan = make_plan(root, points, devices=[device])
    told = run(root, plan)
    assert list(told.done.values()) == ["ok", "ok"]
    assert "retry" not in told.kinds()
    odd, plain = (record(root, plan, run_id) for run_id in plan.points)
    assert (odd["metrics"]["n"], plain["metrics"]["n"]) == (1, 2)
    kept = root / odd["raw"]["dir"]
    assert (kept / "1.stdout").read_bytes() == ODD
    assert (kept / "1.stderr").read_bytes() == ODD
    assert "�" in odd["raw"]["stdout"]
    assert server.log.read_text().count("Accepted publickey") == 1, "one connection carried all of it"
    report.build(str(root), plan)
    assert "pi5" in (root / "summary/report.html").read_text(encoding="utf-8")
