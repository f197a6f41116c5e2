"""Records: what is believed, what replaces what, what is filled in."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from files.helpers_files import UNSYNCED, failed, hole, ok, point, raw_result, status
from sidewinder.errors import BrokenRecord, InternalError
from sidewinder.files import records
from sidewinder.files.record import Record
from sidewinder.model import Device, Failure, FailureClass, Found, Measurement

PI5 = Device("pi5", "ssh", dram_peak_GBs=17.1)
VERSIONS = {"sidewinder": "0.1.0", "python": "3.11.7"}
EVIDENCE = {
    "usage": {"max_rss_bytes": 123_456, "utime_s": 2.0, "stime_s": 1.0, "involuntary_switches": 0},
    "load": {"before": [0.1, 0.0, 0.0], "after": [1.0, 0.0, 0.0]},
    "pressure": {"before": {}, "during": {"cpu": {"some_share": 0.25}}, "after": {}},
    "cgroup": {"throttled_us": 0},
    "memory": {"before": {"MemAvailable": 1}, "after": {"MemAvailable": 2}},
    "stamps": {"start": {"wall_ns": 1_796_000_000_000_000_000}, "end": {"wall_ns": 1_796_000_002_500_000_000}},
    "placement": {"before": {"version": 2, "cpu_quota_cores": 2.0}},
    "telemetry": {"temp_c_max": 61.0, "power_w_mean": None},
}


def build(**fields: Any) -> dict[str, Any]:
    fields.setdefault("measurement", Measurement(True, metrics={"x": 0.0}))
    return records.build(point("a", threads=2, tags=("big",)), PI5, campaign="c", versions=VERSIONS, **fields)


class TestWhatIsBelieved:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (json.dumps(ok("a")), "ok"),
            (json.dumps(ok("a", later_key=1)), "ok"),
            (json.dumps(failed("a")), "failed"),
            (json.dumps(hole("a")), "hole"),
            ("", "broken"),
            ("\0" * 500, "broken"),
            (json.dumps(ok("a"))[:-2], "broken"),
            (json.dumps(ok("b")), "broken"),
            (json.dumps({**ok("a"), "schema_version": 2}), "broken"),
            (json.dumps({**ok("a"), "schema_version": True}), "broken"),
            (json.dumps({**ok("a"), "status": "skipped"}), "broken"),
            (json.dumps({key: value for key, value in ok("a").items() if key != "status"}), "broken"),
            (json.dumps([ok("a")]), "broken"),
            ("[" * 100_000, "broken"),
        ],
    )
    def test_status(self, content: str, expected: str, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_text(content)
        assert records.status_of(str(path), "a") == expected

    def test_missing_is_not_broken_and_a_folder_is_not_missing(self, tmp_path: Path) -> None:
        assert records.status_of(str(tmp_path / "none" / "a.json"), "a") == "missing"
        assert records.status_of(str(tmp_path), "a") == "broken"

    def test_every_cut_of_a_record_is_broken(self, tmp_path: Path) -> None:
        whole = records.encode(ok("a", text="é\n"))
        for length in range(len(whole.rstrip())):
            assert records.status_in(whole[:length], "a") == "broken"
        assert records.status_in(whole, "a") == "ok"

    def test_read_says_what_is_wrong(self, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_text('{"schema_version": 1, "run_id": "a"')
        with pytest.raises(BrokenRecord, match=r"a\.json is torn"):
            records.read(str(path))
        path.write_text("")
        with pytest.raises(BrokenRecord, match="is empty"):
            records.read(str(path))
        path.write_text('{"schema_version": 1, "run_id": "a", "status": "fine"}')
        with pytest.raises(BrokenRecord, match="status"):
            records.read(str(path))


class TestWhatReplacesWhat:
    @pytest.mark.parametrize("first", [ok("a", 1.0), failed("a"), hole("a"), None])
    @pytest.mark.parametrize("second", [ok("a", 2.0), failed("a", message="again"), hole("a")])
    def test_a_failure_never_replaces_an_ok(self, first: Any, second: Any, tmp_path: Path) -> None:
        folder = str(tmp_path)
        if first is not None:
            assert records.publish(folder, "pi5", "a", first, ops=UNSYNCED) == "published"
        stands = first is not None and first["status"] == "ok" and second["status"] != "ok"
        outcome = records.publish(folder, "pi5", "a", second, ops=UNSYNCED)
        assert outcome == ("kept_ok" if stands else "published")
        assert json.loads((tmp_path / "records/pi5/a.json").read_bytes()) == (first if stands else second)
        kept = [json.loads(path.read_bytes()) for path in tmp_path.glob("superseded/pi5/a.*.json")]
        replaced = (first, second) in [(ok("a", 1.0), ok("a", 2.0)), (failed("a"), hole("a"))]
        assert kept == ([first] if replaced else [])

    def test_a_broken_record_is_replaced_by_a_failure(self, tmp_path: Path) -> None:
        (tmp_path / "records/pi5").mkdir(parents=True)
        (tmp_path / "records/pi5/a.json").write_text('{"status": "ok"')
        assert records.publish(str(tmp_path), "pi5", "a", failed("a"), ops=UNSYNCED) == "published"
        assert status(tmp_path, "a") == "failed"

    def test_the_same_record_again_supersedes_nothing(self, tmp_path: Path) -> None:
        for _ in range(2):
            records.publish(str(tmp_path), "pi5", "a", ok("a"), ops=UNSYNCED)
        assert not list(tmp_path.glob("superseded/**/*.json"))

    def test_every_forced_re_run_keeps_the_one_before(self, tmp_path: Path) -> None:
        for value in (1.0, 2.0, 3.0):
            records.publish(str(tmp_path), "pi5", "a", ok("a", value), ops=UNSYNCED)
        kept = {json.loads(path.read_bytes())["metrics"]["x"] for path in tmp_path.glob("superseded/pi5/*.json")}
        assert kept == {1.0, 2.0}

    def test_a_file_system_without_hard_links_copies(self, tmp_path: Path) -> None:
        class NoLinks(type(UNSYNCED)):  # type: ignore[misc]
            def link(self, source: str, target: str) -> None:
                raise PermissionError(1, "Operation not permitted")

        for value in (1.0, 2.0):
            records.publish(str(tmp_path), "pi5", "a", ok("a", value), ops=NoLinks())
        assert [json.loads(p.read_bytes())["metrics"]["x"] for p in tmp_path.glob("superseded/pi5/*.json")] == [1.0]

    def test_a_folder_that_was_removed_is_made_again(self, tmp_path: Path) -> None:
        records.publish(str(tmp_path), "pi5", "a", ok("a"), ops=UNSYNCED)
        (tmp_path / "records/pi5/a.json").unlink()
        (tmp_path / "records/pi5").rmdir()
        records.publish(str(tmp_path), "pi5", "b", ok("b"), ops=UNSYNCED)
        assert status(tmp_path, "b") == "ok"

    def test_publish_many_says_what_lies_on_disk(self, tmp_path: Path) -> None:
        records.publish(str(tmp_path), "pi5", "a", ok("a"), ops=UNSYNCED)
        told = records.publish_many(str(tmp_path), [("pi5", "a", failed("a")), ("gpu", "b", hole("b"))], ops=UNSYNCED)
        assert [(p.run_id, p.outcome, p.status) for p in told] == [("a", "kept_ok", "ok"), ("b", "published", "hole")]
        for device, entry in zip(("pi5", "gpu"), told, strict=True):
            path = tmp_path / "records" / device / f"{entry.run_id}.json"
            assert entry.digest == records.digest(path.read_bytes())
            assert (entry.size_bytes, entry.mtime_ns) == (path.stat().st_size, path.stat().st_mtime_ns)


class TestWhatIsFilledIn:
    def test_a_measured_point(self) -> None:
        record = build(
            raw=raw_result(b"out", evidence=EVIDENCE, device={"cpu": "A76", "ram_bytes": 8}, boot_id="boot"),
            stored={"stdout": "out", "dir": "raw/pi5/a", "files": ["1.stdout"]},
            measurement=Measurement(True, metrics={"x": 0.0}, backend={"build": "b1"}, samples={"x": [0.0, 0.1]}),
            found=Found("/usr/bin/x", "1.2"),
            identity={"device": "pi5"},
            order={"seed": 7, "by": "interleaved", "position": 0},
            clock={"offset_s": 0.0, "bound_s": 0.01},
        )
        assert record["status"] == "ok"
        assert record["timestamp_utc"] == "2026-11-30T00:53:22.500+00:00"
        assert record["metrics"] == {"x": 0.0, "peak_rss_bytes": 123_456}
        assert record["device"] == {
            "cpu": "A76",
            "ram_bytes": 8,
            "device_id": "pi5",
            "kind": "ssh",
            "boot_id": "boot",
            "placement": {"cgroup": {"version": 2, "cpu_quota_cores": 2.0}, "cpu_quota_cores": 2.0},
            "dram_peak_GBs": 17.1,
        }
        assert record["backend"] == {"name": "command", "version": "1.2", "binary": "/usr/bin/x", "build": "b1"}
        assert record["knobs"] == {"threads": 2, "mode": "command", "priority": 0}
        assert record["conditions"]["cpu_over_wall"] == 2.0
        assert record["conditions"]["involuntary_switches"] == 0
        assert record["telemetry"] == {"temp_c_max": 61.0}
        assert record["raw"]["memory_after"] == {"MemAvailable": 2}
        assert record["raw"]["stderr_bytes"] == 0
        assert record["order"]["position"] == 0
        assert record["tags"] == ["big"]
        for absent in ("error", "failure", "moved_to", "accepted", "governor"):
            assert absent not in record
        assert Record.model_validate(record).to_dict() == record

    def test_what_is_not_known_is_absent(self) -> None:
        record = build(raw=raw_result())
        assert "peak_rss_bytes" not in record["metrics"]
        assert "cpu_over_wall" not in record["conditions"]
        assert not {"samples", "telemetry", "clock", "timestamp_utc"} & record.keys()
        assert "placement" not in record["device"]

    def test_a_limit_that_is_gone_since_the_device_was_met_is_absent(self) -> None:
        met = {"placement": {"runtime": "kubernetes", "cpu_quota_cores": 0.5, "cgroup": {"cpu_quota_cores": 0.5}}}
        looks = {"placement": {"before": {"version": 2, "unlimited": ["cpu"]}}}
        record = build(raw=raw_result(device=met, evidence=looks))
        assert record["device"]["placement"] == {
            "runtime": "kubernetes",
            "cgroup": {"version": 2, "unlimited": ["cpu"]},
        }

    def test_metrics_are_finite_numbers_and_what_is_dropped_is_said(self) -> None:
        metrics = {
            "a": math.nan,
            "b": math.inf,
            "c": "fast",
            "d": True,
            "e": 0,
            "f": None,
            "extra": {"g": 1, "h": -math.inf},
        }
        record = build(measurement=Measurement(True, metrics=metrics))
        assert record["metrics"] == {"e": 0, "extra": {"g": 1}}
        said = " ".join(record["warnings"])
        assert all(f"metric {name} " in said for name in "abcdh")
        assert "metric f " not in said

    def test_a_measurement_that_breaks_a_rule_is_a_failure_of_its_class(self) -> None:
        record = build(measurement=Measurement(False, "no rows", failure_class=FailureClass.PARSE))
        assert record["status"] == "failed"
        assert record["failure"] == {"class": "parse", "message": "no rows", "evidence": {}}
        assert record["error"] == "no rows"

    def test_repeats_are_named_in_the_warnings(self) -> None:
        attempts = [
            {"n": 4, "outcome": "failed", "class": "transport", "error": "connection lost"},
            {"n": 5, "outcome": "ok"},
        ]
        record = build(attempts=attempts)
        assert record["attempts"] == attempts
        assert record["warnings"] == ["produced on attempt 5 of 2 made (attempt 4 transport: connection lost)"]

    def test_a_hole(self) -> None:
        record = records.hole(
            point("a"), PI5, reason="connection refused", campaign="c", versions=VERSIONS, timestamp_utc="2026"
        )
        assert record["status"] == "failed"
        assert record["failure"]["class"] == "not_attempted"
        assert record["failure"]["evidence"] == {"reason": "connection refused"}
        for word in ("not attempted", "pi5", "taken out of service", "connection refused", "re-run to retry"):
            assert word in record["error"]
        assert "never measured" in record["warnings"][0]
        assert record["metrics"] == {}
        assert records.status_in(records.encode(record), "a") == "hole"
        assert Record.model_validate(record).is_hole

    def test_neither_measurement_nor_failure_is_our_bug(self) -> None:
        with pytest.raises(InternalError):
            build(measurement=None)

    def test_a_failure_keeps_what_was_seen(self) -> None:
        record = build(
            measurement=None,
            raw=raw_result(returncode=137, oom_kills=1),
            failure=Failure(FailureClass.MEMORY, "killed for memory", {"oom_kills": 1}),
        )
        assert record["failure"]["class"] == "memory"
        assert record["raw"]["returncode"] == 137
        assert record["conditions"]["oom_kills"] == 1

    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=12,
    )

    @given(st.dictionaries(st.text(max_size=4), json_values, max_size=4))
    @settings(max_examples=60, deadline=None)
    def test_whatever_a_plug_in_says_a_record_is_plain_json(self, said: dict[str, Any]) -> None:
        record = build(measurement=Measurement(True, metrics=said, workload=said, samples=said))
        data = records.encode(record)

        def refuse(constant: str) -> None:
            raise AssertionError(constant)

        assert json.loads(data, parse_constant=refuse)["run_id"] == "a"
        assert records.status_in(data, "a") == "ok"
        assert b"\n" not in data[:-1]


def test_write_read_compare(tmp_path: Path) -> None:
    record = build(
        raw=raw_result(b"\xff", evidence=EVIDENCE), attempts=[{"n": 1, "outcome": "ok", "class": "transport"}]
    )
    records.publish(str(tmp_path), "pi5", "a", record, ops=UNSYNCED)
    read = records.read(str(tmp_path / "records/pi5/a.json"))
    assert read.to_dict() == record
    assert read.metrics["x"] == 0.0


def test_find_passes_over_what_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "one.json").write_text(json.dumps({**ok("one"), "of_tomorrow": 1}))
    (tmp_path / "deep/list.json").write_text(json.dumps([ok("two"), {"no": "record"}, 3, failed("three")]))
    (tmp_path / "deep/er/lines.jsonl").write_text(json.dumps(ok("four")) + "\n" + json.dumps(ok("torn"))[:20] + "\n")
    (tmp_path / "deep/.x.json.1-2-3.partial").write_text(json.dumps(ok("temp")))
    (tmp_path / "table.csv").write_text("a,b\n")
    (tmp_path / "other.json").write_text('{"schema_version": 1, "status": "maybe"}')
    assert {record.run_id for record in records.find(str(tmp_path))} == {"one", "two", "three", "four"}
    assert [record.run_id for record in records.find(str(tmp_path / "one.json"))] == ["one"]
