"""A run folder as a sweep leaves it, for the tests of the report: believable numbers, every way a point can end."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sidewinder.files import plan as plans
from sidewinder.files.layout import RunFolder
from sidewinder.model import Device, Lab, Plan, Point, Policy

START = datetime(2026, 11, 30, 20, 19, 38, tzinfo=UTC)
GENERATED = datetime(2026, 11, 30, 21, 0, 0, tzinfo=UTC)
# tokens a second of a 135M model on two cores of a server: (quantisation, threads) -> prefill, decode
SPEED = {
    ("q4_1", 1): (272.0, 149.0),
    ("q4_1", 2): (505.0, 155.0),
    ("q8_0", 1): (331.0, 101.0),
    ("q8_0", 2): (612.0, 112.0),
}
SHAPES = ((32, 16), (64, 16), (128, 32))


class Sweep:
    """A plan under construction and the records that its folder holds."""

    def __init__(
        self, root: str, *, devices: Iterable[str] = ("local",), experiment: str = "smol-on-my-laptop"
    ) -> None:
        self.root = root
        self.devices = {
            d: Device(id=d, kind="local" if d == "local" else "ssh", failover_to=("pi5-spare",) if d == "pi5" else ())
            for d in devices
        }
        self.experiment = experiment
        self.points: dict[str, Point] = {}
        self.accept: dict[str, str] = {}
        self.rng = random.Random(7)
        self.clock = START

    @property
    def plan(self) -> Plan:
        lab = Lab(self.experiment, self.root, self.devices, policy=Policy(order_seed=7), accept=self.accept)
        return Plan(lab, self.points, campaign="6f6d9b3e-0f2b-4d5b-8d75-0c1f3f6c9a11")

    def publish(self) -> Plan:
        return plans.publish(self.root, self.plan)

    def point(self, run_id: str, device: str = "local", **fields: Any) -> Point:
        fields = {"backend": "llama", "mode": "throughput", "repetitions": 5, "warmup": 1, **fields}
        point = Point(run_id=run_id, experiment=self.experiment, device=device, **fields)
        self.points[run_id] = point
        return point

    def write(self, point: Point, record: Mapping[str, Any] | bytes | None) -> str:
        path = RunFolder(self.root).record(point.device, point.run_id)
        if record is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(record if isinstance(record, bytes) else json.dumps(record).encode())
        return path

    def base(self, point: Point, *, took_s: float = 2.6, **more: Any) -> dict[str, Any]:
        start, self.clock = self.clock, self.clock + timedelta(seconds=took_s + 0.04)
        end = start + timedelta(seconds=took_s)
        number = sum(1 for p in self.points.values() if p.device == point.device)
        cores = 2 if point.device == "local" else 4
        busy = (point.threads or 1) * 0.97
        return {
            "schema_version": 1,
            "run_id": point.run_id,
            "experiment": self.experiment,
            "campaign": self.plan.campaign,
            "status": "ok",
            "warnings": [],
            "tags": list(point.tags),
            "timestamp_utc": end.isoformat(),
            "duration_s": took_s,
            "identity": {"experiment": self.experiment, "device": point.device},
            "device": {
                "device_id": point.device,
                "kind": self.devices[point.device].kind if point.device in self.devices else "ssh",
                "os": "Linux",
                "distro": "Debian GNU/Linux 12 (bookworm)",
                "kernel": "6.18.0" if point.device == "local" else "6.12.25-v8",
                "machine": "x86_64" if point.device == "local" else "aarch64",
                "cpu": "AMD EPYC" if point.device == "local" else "Cortex-A76",
                "logical_cores": cores,
                "physical_cores": cores,
                "ram_bytes": 25_000_000_000 if point.device == "local" else 8_300_000_000,
                "boot_id": str(uuid.uuid5(uuid.NAMESPACE_DNS, point.device)),  # each a machine of its own
                "python": "3.11.2",
            },
            "backend": {"name": point.backend, "version": "0.2.18", "build": "b9190"},
            "workload": {
                "model": point.model,
                "quantization": point.quantization,
                "prompt_tokens": point.prompt_tokens,
                "output_tokens": point.output_tokens,
                "model_bytes": 98_362_432,
                "params": 0.1345,
            },
            "knobs": {
                "threads": point.threads,
                "repetitions": 5,
                "warmup": 1,
                "mode": point.mode,
                "governor": "performance",
            },
            "metrics": {},
            "conditions": {
                "load": {"before": [0.71, 0.5, 0.4], "after": [1.1, 0.6, 0.4]},
                "pressure": {
                    "before": {"cpu": {"some_avg10": 1.2, "some_total_us": 1000}},
                    "during": {"cpu": {"some_us": 40_000, "some_share": 0.015}},
                    "after": {"cpu": {"some_avg10": 1.9, "some_total_us": 41_000}},
                },
                "cpu_s": round(busy * took_s, 3),
                "wall_s": took_s,
                "cpu_over_wall": round(busy, 3),
                "involuntary_switches": 225,
            },
            "raw": {"stdout": "", "stderr": "", "stdout_bytes": 0, "stderr_bytes": 0},
            "attempts": [{"n": 1, "start_utc": start.isoformat(), "end_utc": end.isoformat(), "outcome": "ok"}],
            "order": {"seed": 7, "by": "interleaved", "position": number},
            "clock": {"offset_s": -0.0004, "bound_s": 0.0003},
            "versions": {"sidewinder": "0.1.0", "python": "3.11.2", "snakemake": "9.27.1"},
            **more,
        }  # fmt: skip

    def ok(self, point: Point, *, scale: float = 1.0, spread: float = 0.012, **more: Any) -> dict[str, Any]:
        prefill, decode = SPEED.get((point.quantization or "q4_1", point.threads or 1), (300.0, 120.0))
        samples = {
            name: [round(mean * scale * self.rng.gauss(1, spread), 4) for _ in range(5)]
            for name, mean in (("prefill_tps", prefill), ("decode_tps", decode))
        }
        took_s = 0.8 + 6 * ((point.prompt_tokens or 64) / prefill + (point.output_tokens or 16) / decode) / scale
        record = self.base(point, took_s=round(took_s, 3))
        record["samples"] = samples
        record["metrics"] = {name: sum(v) / len(v) for name, v in samples.items()} | {
            "peak_rss_bytes": 137_052 * 1024,
            "load_ms": 61.5,
        }
        return record | more

    def failed(
        self, point: Point, failure_class: str, message: str, *, stderr: str = "", **more: Any
    ) -> dict[str, Any]:
        record = self.base(point, took_s=0.6)
        record |= {
            "status": "failed",
            "error": message,
            "failure": {"class": failure_class, "message": message, "evidence": {"returncode": 1}},
        }
        record["raw"]["stderr"] = stderr
        record["attempts"][-1] |= {"outcome": "failed", "class": failure_class}
        return record | more

    def hole(self, point: Point, reason: str, **more: Any) -> dict[str, Any]:
        message = f"not attempted: {point.device} was taken out of service; last reason: {reason}; re-run to retry"
        record = self.failed(point, "not_attempted", message)
        for key in ("device", "conditions", "duration_s"):
            del record[key]
        record["attempts"] = []
        record["warnings"] = ["this point was never measured: it is a hole, not a result"]
        return record | more


def llama_points(sweep: Sweep, device: str = "local") -> list[Point]:
    """The default sweep: two quantisations, one and two threads, three shapes."""
    return [
        sweep.point(
            f"smol-{q.replace('_', '-')}-t{t}-p{p}-n{n}-{device}",
            device,
            model=f"smol-{q}",
            quantization=q,
            threads=t,
            prompt_tokens=p,
            output_tokens=n,
        )
        for q in ("q4_1", "q8_0")
        for t in (1, 2)
        for p, n in SHAPES
    ]


def twelve(root: str, change: Callable[[Sweep, int, Point], Mapping[str, Any] | bytes | None] | None = None) -> Sweep:
    """Twelve measured points on ``local``; ``change`` says what lies under the name of the i-th instead."""
    sweep = Sweep(root)
    points = llama_points(sweep)
    order = sorted(range(len(points)), key=lambda i: sweep.rng.random())
    previous = None
    for position, i in enumerate(order):
        point = points[i]
        record: Mapping[str, Any] | bytes | None = sweep.ok(point)
        record["order"] |= {"position": position} | ({"predecessor": previous} if previous else {})  # type: ignore[index]
        previous = point.run_id
        if change is not None:
            record = change(sweep, i, point)
        sweep.write(point, record)
    return sweep


def eventful(root: str) -> Sweep:
    """Four devices, two workloads, and every way in which a point can end."""
    sweep = Sweep(root, devices=("local", "pi5", "gpu0", "pi5-spare"), experiment="edge-decode")
    for device, scale in (("local", 1.0), ("pi5", 0.11), ("gpu0", 3.2)):
        for i, point in enumerate(llama_points(sweep, device)):
            if device == "pi5":
                sweep.write(point, _on_pi5(sweep, i, point, scale))
            elif device == "gpu0" and i >= 9:
                sweep.write(point, sweep.hole(point, "could not connect to box.lan:22 (timed out after 10 s)"))
            elif device == "gpu0" and i == 4:
                record = sweep.ok(point, scale=scale, spread=0.17)
                record["telemetry"] = {"throttled": True, "temp_c_max": 91.0}
                record["conditions"]["load"]["before"] = [9.4, 7.1, 3.0]
                record["conditions"]["pressure"]["during"]["cpu"]["some_share"] = 0.31
                sweep.write(point, record)
            else:
                sweep.write(point, sweep.ok(point, scale=scale))
    for t in (1, 2, 4):
        point = sweep.point(
            f"sysbench-cpu-t{t}-local",
            backend="command",
            mode="run",
            threads=t,
            repetitions=None,
            warmup=None,
            command=("sysbench", "cpu", "--threads={threads}", "run"),
            parameters={"prime": 20_000},
        )
        record = sweep.base(point, took_s=10.0)
        record["metrics"] = {"events_per_s": 1912.4 * min(t, 2), "latency_p95_ms": 0.53}
        record["backend"] = {"name": "command", "version": "1.0.20"}
        sweep.write(point, record)
    return sweep


_KV_LOG = "llama_model_load: loaded meta data with 34 key-value pairs\nllama_kv_cache: size = 180.00 MiB\n"
_CONTEXT_LOG = (
    "llama_init_from_model: failed to initialize the context: failed to allocate compute buffers\n"
    "error: failed to create context\n"
)


def _on_pi5(sweep: Sweep, i: int, point: Point, scale: float) -> Mapping[str, Any] | bytes | None:
    if i == 2:
        why = "killed by the kernel: the cgroup counted 1 OOM kill at 512 MiB"
        # It died in its third repeat: the numbers until then are evidence, no measurement.
        return sweep.failed(
            point,
            "memory",
            why,
            stderr=_KV_LOG,
            metrics={"prefill_tps": 31.0},
            samples={"prefill_tps": [31.0, 31.2]},
        )
    if i == 3:
        return sweep.failed(point, "measurement", "the process exited with 1", stderr=_CONTEXT_LOG)
    if i == 5:
        noise = "\ufffd\ufffd half a character \u0000 and <b>markup</b>"
        return sweep.failed(point, "parse", "the last line is no JSON", stderr=noise)
    if i == 6:
        return b'{"schema_version": 1, "run_id": "smol'
    if i == 7:
        return None
    if i == 8:
        return _move(sweep, point, scale)
    if i == 9:
        sweep.accept[point.run_id] = "this quantisation crashes on that board; known upstream"
        return sweep.failed(point, "measurement", "killed by signal 4 (illegal instruction)")
    record = sweep.ok(point, scale=scale)
    if i == 10:
        first = record["attempts"][0]
        lost = {**first, "end_utc": first["start_utc"], "outcome": "lost", "class": "transport"}
        record["attempts"] = [{**lost, "error": "connection reset by peer"}, {**first, "n": 2}]
        record["warnings"] = ["produced on attempt 2 of 2 made (attempt 1 transport: connection reset by peer)"]
    if i == 11:
        record["metrics"]["decode_tps"] = float("nan")
        record["samples"].pop("decode_tps")
    return record


def _move(sweep: Sweep, point: Point, scale: float) -> Mapping[str, Any]:
    """The work went to the spare under another run id; for its own device the point is a hole."""
    spare = dataclasses.replace(point, run_id=f"moved-{point.run_id}", device="pi5-spare")
    record = sweep.ok(spare, scale=scale)
    record["identity"]["failover_from"] = "pi5"
    record["tags"] = ["failover-from:pi5"]
    sweep.write(spare, record)
    return sweep.hole(point, "the link was lost 3 times in a row", moved_to=spare.run_id)


def parse_html(text: str) -> Any:
    """The page as a tree; raises where it is not valid HTML5."""
    import html5lib

    parser = html5lib.HTMLParser(strict=False, tree=html5lib.getTreeBuilder("lxml"), namespaceHTMLElements=False)
    tree = parser.parse(text)
    problems = [(where, code, data) for where, code, data in parser.errors]
    assert not problems, problems[:5]
    for element in tree.iter():
        if isinstance(element.tag, str):  # drawings have a namespace of their own; paths are simpler without
            element.tag = element.tag.rpartition("}")[2]
    return tree


def words_of(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())
