"""B35 over pods: bytes that are no text come through the exec stream as they are, and disturb nobody."""

from __future__ import annotations

from e2e.kubernetes.helpers_cluster import Namespace
from e2e.kubernetes.helpers_sweeps import Begin
from engine.helpers_engine import command, record
from sidewinder import report

ODD = b"\xc2\x20 \xff\xfe \x00 caf\xc3 \xa9 \x92 \xed\xa0\x80 \x1b[1m\r @@frame 1 1\n n=1\n"
# a character that is cut in two by time, a file name that is no text, and first of all a great deal of noise
NOISY = f"""\
import os, time
os.write(2, bytes(range(256)) * 4096)
data = {ODD!r}
for n in range(0, len(data), 7):
    os.write(1, data[n:n + 7])
    time.sleep(0.001)
open(b'odd-\\xff-name', 'w').close()
os.write(1, os.listdir(b'.')[0])
"""


def test_odd_bytes_are_kept_and_disturb_nobody(namespace: Namespace, begin: Begin) -> None:
    device = namespace.device(env={"LC_ALL": "C"})
    points = [
        command("python3", "-c", NOISY.replace("{", "{{").replace("}", "}}"), metrics={"n": r"n=(\d)"}, device="k8s"),
        command("echo", "n=2", metrics={"n": r"n=(\d)"}, device="k8s"),
    ]
    sweep = begin(points, device)
    assert list(sweep.wait().values()) == ["ok", "ok"]
    assert sweep.ledger == [], "one link carried all of it"
    odd, plain = (record(sweep.root, sweep.plan, run_id) for run_id in sweep.plan.points)
    assert (odd["metrics"]["n"], plain["metrics"]["n"]) == (1, 2)
    kept = sweep.root / odd["raw"]["dir"]
    assert (kept / "1.stdout").read_bytes() == ODD + b"odd-\xff-name"
    assert odd["raw"]["stderr_bytes"] == 256 * 4096
    head, tail = (kept / "1.stderr.head").read_bytes(), (kept / "1.stderr.tail").read_bytes()
    assert head.startswith(bytes(range(256)) * 16)
    assert tail.endswith(bytes(range(256)) * 16)
    assert "�" in odd["raw"]["stdout"]
    odd["raw"]["stdout"].encode("utf-8")  # no lone surrogate
    report.build(str(sweep.root), sweep.plan)
    assert "k8s" in (sweep.root / "summary/report.html").read_text(encoding="utf-8")
