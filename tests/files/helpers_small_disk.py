"""A small real disk: a tmpfs in a mount namespace of its own, which vanishes with the process that uses it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_MOUNT = 'mount -t tmpfs -o size={size},nr_inodes={inodes} none "$1" && exec "$2" -c "$3" "$1"'


def run_on_small_disk(script: str, folder: Path, *, size: str = "256k", inodes: int = 2000) -> str:
    """What ``script`` (its ``sys.argv[1]`` is the disk) printed. Skips where no file system can be mounted."""
    unshare = shutil.which("unshare")
    if unshare is None or sys.platform != "linux":
        pytest.skip("a small disk needs Linux and util-linux' unshare")
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    argv = [unshare, "--mount", *rights, "sh", "-c"]
    probe = subprocess.run([*argv, 'mount -t tmpfs none "$1"', "sh", str(folder)], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {probe.stderr.decode(errors='replace').strip()}")
    mount = _MOUNT.format(size=size, inodes=inodes)
    tests = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [*argv, mount, "sh", str(folder), sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
