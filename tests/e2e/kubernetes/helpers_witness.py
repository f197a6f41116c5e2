"""Workloads in pods that tell when they really ran: their programs in a ConfigMap, their traces on a volume of the pod
or, where nodes are hurt, in a folder of this machine, which can be read whatever became of the node.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.kubernetes.helpers_cluster import Namespace, until
from e2e.kubernetes.helpers_sweeps import inside
from engine.helpers_engine import command
from netns.lab_hosts import Witness
from sidewinder.model import Device

PROGRAMS = Path(__file__).resolve().parents[2] / "netns"
FOLDER = "/sidewinder/witness"  # on the pod's own volume, which outlives a container
METRICS = {"start_ns": r'"start_ns": (\d+)'}
_READ = f"""
import json, os
names = os.listdir({FOLDER!r}) if os.path.isdir({FOLDER!r}) else []
print(json.dumps({{name: open({FOLDER!r} + '/' + name).read() for name in names}}))
"""
_ALIVE = f"""
import os
for name in os.listdir('/proc'):
    if name.isdigit() and int(name) != os.getpid():
        try:
            line = open('/proc/' + name + '/cmdline').read()
        except OSError:
            continue
        if {FOLDER!r} in line:
            print(name)
print('looked')
"""


class PodWitness(Witness):
    """What the workloads of a pod saw of themselves, read in the pod."""

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(Path(FOLDER))
        self.namespace = namespace

    def traces(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(inside(self.namespace, _READ) or "{}")
        return found

    def alive(self) -> list[str]:
        """The pids of its processes, there. Waits until the pod can be asked."""
        found: list[str] = until(lambda: inside(self.namespace, _ALIVE).split(), "it can be asked who lives")
        return found[:-1]

    def let_go(self, run: str | None = None) -> None:
        name = f"{FOLDER}/{f'go-{run}' if run else 'go'}"
        code = f"import os; os.makedirs({FOLDER!r}, exist_ok=True); open({name!r}, 'w'); print('gone')"
        until(lambda: inside(self.namespace, code), "it is let go")


def programs(namespace: Namespace) -> dict[str, Any]:
    """A volume with the programs."""
    data = {name: (PROGRAMS / name).read_text() for name in ("witness.py", "tree.py")}
    namespace.api("POST", f"{namespace.path}/configmaps", {"metadata": {"name": "programs"}, "data": data})
    return {"mount_path": "/programs", "config_map": "programs"}


def witnessed(device: Device, run: str = "run", how_long: float | str = "hold", folder: str = FOLDER) -> dict[str, Any]:
    """The fields of a point that is called ``run`` in the witness."""
    argv = ("python3", "-S", "/programs/witness.py", folder, "{run}", str(how_long))
    return command(*argv, metrics=METRICS, device=device.id, parameters={"run": run})


def tree(device: Device) -> dict[str, Any]:
    """The same as wrapper, child, and a grandchild in a session of its own."""
    argv = ("python3", "-S", "/programs/tree.py", "wrapper", "/programs/witness.py", FOLDER, "hold")
    return command(*argv, metrics=METRICS, device=device.id)
