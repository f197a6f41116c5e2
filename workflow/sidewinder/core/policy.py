"""The failure policy: which class a failure belongs to, and what each class does to point, breaker and budget.

Evidence decides, never the text of a message (docs/design.md §3).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from sidewinder.model import Evidence, FailureClass


class PointEffect(enum.Enum):
    """What a failure of a class does to the pinned point it struck."""

    RETRY = "retried with back-off, then a hole"
    REQUEUE = "queued again, within its own bound"
    RESULT = "a failed result, never retried"
    HOLE = "a hole"
    DROP = "no record"
    RAISE = "the run ends loudly"


class BreakerEffect(enum.Enum):
    """What a failure of a class says about the device's health."""

    FAILURE = "counts as a failure"
    ALIVE = "counts as alive"
    NONE = "no effect"
    QUARANTINE = "takes the device out at once"


class Rule(NamedTuple):
    point: PointEffect
    breaker: BreakerEffect
    budget: str


TABLE: Final[Mapping[FailureClass, Rule]] = {
    FailureClass.TRANSPORT: Rule(PointEffect.RETRY, BreakerEffect.FAILURE, "retry.max_attempts"),
    FailureClass.PREEMPTED: Rule(PointEffect.REQUEUE, BreakerEffect.NONE, "MAX_PREEMPTIONS"),
    FailureClass.MEMORY: Rule(PointEffect.RESULT, BreakerEffect.ALIVE, "none (fungible work: once more)"),
    FailureClass.MEASUREMENT: Rule(PointEffect.RESULT, BreakerEffect.ALIVE, "none"),
    FailureClass.PARSE: Rule(PointEffect.RESULT, BreakerEffect.ALIVE, "none"),
    FailureClass.CONFIG: Rule(PointEffect.RESULT, BreakerEffect.NONE, "none"),
    FailureClass.DEVICE: Rule(PointEffect.HOLE, BreakerEffect.QUARANTINE, "none"),
    FailureClass.CANCELLED: Rule(PointEffect.DROP, BreakerEffect.NONE, "none"),
    FailureClass.INTERNAL: Rule(PointEffect.RAISE, BreakerEffect.NONE, "none"),
    FailureClass.NOT_ATTEMPTED: Rule(PointEffect.HOLE, BreakerEffect.NONE, "none"),
}

#: A node that drains for a week must not keep one point going round for ever.
MAX_PREEMPTIONS: Final = 5

#: Codes of ``RawResult.error`` for which the device, not the point, is unfit.
_DEVICE_CODES: Final = frozenset({"disk_full"})
#: Codes with which a device says that it cannot be used right now: nothing ran, and the point had no part in it.
_OCCUPIED_CODES: Final = frozenset({"not_idle"})
#: A file that was brought to the device is gone or damaged there: it is brought again with the next attempt.
_LOST_CODES: Final = frozenset({"input_lost"})
_SIGTERM: Final = frozenset({143, -15})

#: Shorter sleeps and smaller steps are let go. No time service sets a clock by less (ntpd from 0.128 s on,
#: systemd-timesyncd from 0.4 s, chrony from 1 s: below that they slew), and a stamp is read within a millisecond.
INTERRUPTION_S: Final = 0.1
#: What slewing may put between wall and monotonic clock, as a share of the run. On Linux none, both are slewed alike;
#: elsewhere 500 ppm, the most that NTP asks of a kernel. A step below that changes no figure by more.
SLEW_SHARE: Final = 500e-6


def interruption(evidence: Evidence) -> str | None:
    """Why a run that came to its end cannot be trusted by the device's own clocks and limits, as the end of a
    sentence; None: it can, as far as they tell."""
    if evidence.limits_changed is not None:
        return evidence.limits_changed
    slept_s, step_s = evidence.suspended_s, evidence.clock_step_s
    if slept_s is not None and slept_s > INTERRUPTION_S:
        return f"the machine slept for {slept_s:.1f} s during the run (a closed lid, a suspend)"
    if step_s is not None and abs(step_s) > INTERRUPTION_S + SLEW_SHARE * max(0.0, evidence.duration_s or 0.0):
        asleep = " or the machine slept, which cannot be told apart there" if slept_s is None else ""
        return f"the machine's clock was set by {step_s:+.3f} s during the run{asleep}"
    return None


def classify(evidence: Evidence) -> FailureClass | None:
    """The class of what came back from a device; ``None``: nothing speaks against it, the workload may parse it."""
    state, code = evidence.state, evidence.returncode
    if evidence.wrong_spec is not None:
        return FailureClass.DEVICE  # however it ended: that is another device's end
    if evidence.limits_changed is not None and state in ("done", "timeout"):
        return FailureClass.PREEMPTED  # it may have died of limits that nobody asked for
    if state != "done" or code != 0:
        if evidence.error in _DEVICE_CODES:
            return FailureClass.DEVICE
        if evidence.oom_kills:
            # An exit by SIGKILL says nothing about memory; the cgroup's own count does.
            return FailureClass.MEMORY
    if state == "done":
        if interruption(evidence) is not None:
            return FailureClass.PREEMPTED  # whatever it printed: the machine was taken away from it for a while
        if code is None:
            return FailureClass.TRANSPORT  # ended, but how could not be had: unknown is not "failed"
        if code == 0:
            return None
        return FailureClass.PREEMPTED if code in _SIGTERM else FailureClass.MEASUREMENT
    if state in ("timeout", "spawn_failed"):
        return FailureClass.MEASUREMENT
    if evidence.error in _OCCUPIED_CODES:
        return FailureClass.TRANSPORT  # the way to an idle device is barred: its breaker waits, not each of its points
    if evidence.error in _LOST_CODES:
        return FailureClass.TRANSPORT
    if state == "refused":
        return FailureClass.CONFIG  # the plan asks for a file or an axis that this device does not have
    if state in ("lease_expired", "stopped"):
        return FailureClass.TRANSPORT  # ended because we were away; proven dead on the device
    return FailureClass.INTERNAL


def describe(evidence: Evidence, failure_class: FailureClass) -> str:
    """One sentence for the record: what the device saw."""
    if failure_class is FailureClass.DEVICE and evidence.wrong_spec is not None:
        return evidence.wrong_spec
    if failure_class is FailureClass.PREEMPTED and (why := interruption(evidence)) is not None:
        return f"{why}: what it measured is not trusted"
    if evidence.detail:
        return evidence.detail
    if failure_class is FailureClass.MEMORY:
        return f"the kernel killed the run for lack of memory ({evidence.oom_kills} OOM kill(s) counted in its cgroup)"
    if evidence.state == "done":
        if evidence.returncode is None:
            return "the run ended, but its exit status could not be had"
        if evidence.returncode < 0:
            return f"the run was ended by signal {-evidence.returncode}"
        return f"the run ended with exit code {evidence.returncode}"
    sentence = {
        "timeout": "the run did not end within its time limit and was stopped",
        "lease_expired": "the device stopped the run because the controller had been out of reach for too long",
        "stopped": "the run was stopped before it ended",
        "spawn_failed": "the command could not be started",
        "refused": "the device refused the run before it started",
    }.get(evidence.state, f"the device answered with an unknown state {evidence.state!r}")
    return f"{sentence} ({evidence.error})" if evidence.error else sentence
