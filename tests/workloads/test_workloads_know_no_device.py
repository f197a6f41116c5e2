"""No workload may know what kind of device it runs on: the device is the variable."""

from __future__ import annotations

import re
from pathlib import Path

import sidewinder.workloads

FOLDER = Path(sidewinder.workloads.__file__).parent
KINDS = re.compile(
    r"\b(k8s|kubernetes|kubectl|kube|container|containers|pod|pods|ssh|sshd|local device)\b|\.kind\b", re.I
)


def test_no_source_of_a_workload_names_a_kind_of_device() -> None:
    hits = [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted(FOLDER.glob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if KINDS.search(line)
    ]
    assert not hits
    assert len(list(FOLDER.glob("*.py"))) > 5
