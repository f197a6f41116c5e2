"""Hosts of a soak: real SSH servers of their own, and every kind of bad luck that befalls one."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

from netns.lab_hosts import LabHost, LabHosts
from soak.chaos import Act, Chaos
from soak.sweep import GIVE_UP_S, RECOVERY_S, WORK, Sweep

GROUP = ("h1", "h2")
LEFT_BYTES = 100 << 10  # what a disk that is nearly full has left: too little for the result of a run
# how often, among a hundred faults of a host
FAULTS = {
    "cut": 14,
    "drop": 13,
    "reset": 12,
    "front killed": 11,
    "runner killed": 9,
    "session killed": 10,
    "sshd restarted": 8,
    "sshd away": 5,
    "sshd frozen": 5,
    "reboot": 5,
    "power cut": 4,
    "disk full": 3,
    "dead for long": 1,
}


def devices_of(lab: LabHosts) -> dict[str, dict[str, Any]]:
    """The section of the lab: two that share their silicon, and one that is given up and fails over."""
    devices: dict[str, dict[str, Any]] = {}
    for host in lab:
        shutil.copy(WORK, host.home)
        devices[host.name] = host.settings(recovery_after_s=RECOVERY_S, give_up_after_s="never")
        if host.name in GROUP:
            devices[host.name].update(resource_group="board", group_max_concurrency=1)
        else:
            devices[host.name].update(give_up_after_s=GIVE_UP_S, failover_to=GROUP[1])
    return devices


class HostChaos(Chaos):
    def __init__(self, lab: LabHosts, sweep: Sweep, seed: int, **pace: Any) -> None:
        self._lab = lab
        super().__init__(sweep, seed, {host.name: self._of_host(host) for host in lab}, **pace)

    def mend(self) -> None:
        for host in self._lab:
            self._mend(host)

    def _of_host(self, host: LabHost) -> Act:
        def act(rng: random.Random) -> None:
            (kind,) = rng.choices(list(FAULTS), list(FAULTS.values()))
            start_s = time.monotonic()
            try:
                hit = self._strike(kind, host, rng)
            finally:
                self._mend(host)
            self._note(kind, host.name, start_s, hit)

        return act

    def _strike(self, kind: str, host: LabHost, rng: random.Random) -> int:
        match kind:
            case "cut" | "drop":
                getattr(host, kind)()
                # short ones are ridden out, long ones noticed; now and then one outlives the lease
                if rng.random() < 0.05:
                    self._last(rng, 62, 75)
                else:
                    self._last(rng, 0.2, rng.choice((2.0, 25.0)))
            case "reset":
                hit = host.reset()
                self._last(rng, 0.5, 3)
                return hit
            case "front killed":
                return host.kill_front()
            case "runner killed":
                return host.kill_runner()
            case "session killed":
                return host.kill_sessions()
            case "sshd restarted":
                host.restart_sshd()
            case "sshd away":
                host.kill_sshd()
                self._last(rng, 2, 12)
            case "sshd frozen":
                host.freeze_sshd()
                self._last(rng, 2, 20)
                host.thaw_sshd()
            case "reboot":
                host.reboot(rng.uniform(0.5, 5) * self._scale)
            case "power cut":
                host.power_off()
                self._last(rng, 2, 20)
            case "dead for long":
                host.power_off()
                self._last(rng, 60, 80)
            case "disk full":
                self._fill(host)
                self._last(rng, 5, 20)
        return 1

    def _filler(self, host: LabHost) -> Path:
        return host.folder / "filler"

    def _fill(self, host: LabHost) -> None:
        with open(self._filler(host), "wb") as file:
            free = os.statvfs(host.folder)
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - LEFT_BYTES))

    def _mend(self, host: LabHost) -> None:
        self._filler(host).unlink(missing_ok=True)
        if not host.is_on:
            host.power_on()
        host.heal()
        if not host.sshd():
            host.start_sshd()
