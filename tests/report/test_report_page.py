"""The page: says how much is measured, why the rest is not, and nothing that came from outside as markup."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from report.conftest import Built, build
from report.helpers_report import Sweep, parse_html, words_of
from sidewinder.model import Device
from sidewinder.report import environment, integrity, tables, timeline


def open_cards(tree: Any, section: str = "open") -> dict[str, str]:
    """Run id -> all words of its card."""
    cards = tree.xpath(f'//section[@id="{section}"]/ol[@class="open"]/li')
    return {card.xpath('.//code[@class="id"]')[0].text: words_of(card) for card in cards}


def test_it_opens_with_how_much_is_measured(eventful: Built) -> None:
    tree = parse_html(eventful.html)
    assert words_of(tree.xpath("//h1")[0]) == "29 of 39 measured"
    assert tree.xpath("//title")[0].text == "edge-decode: 29 of 39 measured"
    rows = [[words_of(c) for c in row] for row in tree.xpath('//section[@id="devices"]//tbody/tr')]
    assert rows == [
        ["local", "local", "15", "15", "–", "–", "–"],
        ["pi5", "ssh", "12", "5", "3", "3", "1"],
        ["gpu0", "ssh", "12", "9", "–", "3", "–"],
    ]
    counts = eventful.summary.by_device
    assert [[d, str(c.planned), str(c.done)] for d, c in counts.items()] == [[row[0], *row[2:4]] for row in rows]


def test_every_open_point_has_device_reason_log_and_command(eventful: Built) -> None:
    tree = parse_html(eventful.html)
    cards = open_cards(tree) | open_cards(tree, "moved")
    assert set(cards) == {hole.run_id for hole in eventful.summary.holes}
    for hole in eventful.summary.holes:
        card = cards[hole.run_id]
        assert hole.device in card
        assert " ".join(hole.command.split()) in card
        assert all(" ".join(line.split())[:60].replace("\x00", "\ufffd") in card for line in hole.log)
    assert "out of memory, 1 attempt" in cards["smol-q4-1-t1-p128-n32-pi5"]
    assert "error: failed to create context" in cards["smol-q4-1-t2-p32-n16-pi5"]
    assert "record unreadable" in cards["smol-q8-0-t1-p32-n16-pi5"]
    assert "torn or not JSON" in cards["smol-q8-0-t1-p32-n16-pi5"]
    assert "not started" in cards["smol-q8-0-t1-p64-n16-pi5"]


def test_accepted_and_moved_stand_apart_and_in_no_figure(eventful: Built) -> None:
    tree = parse_html(eventful.html)
    (accepted,) = open_cards(tree, "accepted").items()
    assert accepted[0] == "smol-q8-0-t2-p32-n16-pi5"
    assert "known upstream" in accepted[1]
    (moved,) = open_cards(tree, "moved").items()
    assert "Measured on pi5-spare" in moved[1]
    results = words_of(tree.xpath('//section[@id="results"]')[0])
    assert "26 points of 36 measured" in results
    assert "pi5-spare" not in results


def test_nothing_is_loaded_from_anywhere(eventful: Built) -> None:
    tree = parse_html(eventful.html)
    assert tree.xpath("//link | //img | //iframe | //script[@src] | //object | //embed | //base") == []
    targets = [str(v) for e in tree.iter() if isinstance(e.tag, str) for k, v in e.attrib.items() if "href" in k]
    assert all(t.startswith("#") for t in targets)
    ids = [str(i) for i in tree.xpath("//@id")]
    assert len(ids) == len(set(ids))
    assert {t[1:] for t in targets if len(t) > 1} <= set(ids)
    style = "".join(tree.xpath("//style/text()"))
    assert "@import" not in style
    assert "url(" not in style


def test_headings_captions_and_words_for_drawings(eventful: Built) -> None:
    tree = parse_html(eventful.html)
    levels = [int(h.tag[1]) for h in tree.iter("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert all(t.xpath("caption") for t in tree.iter("table"))
    assert len(list(tree.iter("svg"))) > 20
    assert all(s.get("aria-label") or s.get("aria-hidden") == "true" for s in tree.iter("svg"))


EVIL = "<script>alert('x')</script><img src=x onerror=alert(1)> & \" ' \x00 \x1b[31m \ud800 \u202e {{ 7*7 }} {% raw %}"


def test_text_from_outside_is_never_markup(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path), experiment=EVIL.replace("\ud800", ""))
    text = EVIL.replace("\ud800", "")
    ok = sweep.point("ok", backend="command", command=(text,), parameters={text: text}, threads=None)
    record = sweep.ok(ok, warnings=[EVIL])
    record["metrics"] = {EVIL: 3.5}
    record["samples"] = {EVIL: [3.4, 3.6]}
    record["device"] |= {"cpu": EVIL, "kernel": EVIL}
    record["backend"] = {"name": EVIL, "version": EVIL}
    record["versions"] = {"sidewinder": EVIL}
    record["order"] = {"seed": 1, "by": EVIL, "position": 1, "predecessor": EVIL}
    record["attempts"] = [{"n": EVIL, "class": EVIL, "error": EVIL}, {}, {"n": 2}]
    sweep.write(ok, record)
    other = sweep.point("other", backend="command", command=(text,), parameters={text: "b"}, threads=None)
    sweep.write(other, sweep.failed(other, EVIL, EVIL, stderr=EVIL, tags=[EVIL]))
    gone = sweep.point("gone", backend="command", command=(text,), parameters={text: "c"}, threads=None)
    sweep.write(gone, sweep.failed(gone, "parse", EVIL))
    sweep.accept["gone"] = text
    built = build(sweep)
    html = built.html
    tree = parse_html(html)
    assert len(tree.xpath("//script")) == 1
    assert tree.xpath("//img | //@onerror") == []
    assert "{{ 7*7 }}" in html
    assert re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", html) is None
    assert words_of(tree.xpath("//h1")[0]) == "1 of 3 measured"


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    point = sweep.point("a", threads=1)
    sweep.write(point, sweep.ok(point))
    first, second = build(sweep).html, build(sweep).html
    assert first == second


def test_doubts_are_told_with_their_figures() -> None:
    base = {"status": "ok", "device": "d", "threads": 2, "cores": 4, "wall_s": 10.0}
    rows = [
        {**base, "run_id": "good", "cpu_over_wall": 1.9, "cv_pct.prefill_tps": 9.9, "load_before": 4.0},
        {**base, "run_id": "hot", "throttled": True, "temp_c": 91.0},
        {**base, "run_id": "wide", "cv_pct.prefill_tps": 10.1},
        {**base, "run_id": "starved", "cpu_over_wall": 1.5},
        {**base, "run_id": "loaded", "load_before": 4.1},
        {**base, "run_id": "stalled", "pressure_memory_during_pct": 30.0},
        {**base, "run_id": "capped", "cgroup_throttled_s": 0.2},
        {**base, "run_id": "peak", "bw_util_pct": 101.0},
        {**base, "run_id": "failed", "status": "failed", "throttled": True},
        {**base, "run_id": "quota", "cpu_over_wall": 0.95, "cpu_quota_cores": 1.0},
    ]
    found = {d.title: [f.run_id for f in d.findings] for d in integrity.doubts(rows)}
    assert found == {
        "Throttled": ["hot"],
        "Wide spread": ["wide"],
        "Above the declared peak": ["peak"],
        "Did not get its cores": ["starved"],
        "Load before the run": ["loaded"],
        "Pressure during the run": ["stalled"],
        "Held back by a CPU quota": ["capped"],
    }


def test_an_environment_that_changed_says_so(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    for i in range(3):
        point = sweep.point(f"p{i}", threads=i + 1)
        record = sweep.ok(point)
        record["device"]["kernel"] = "6.1" if i else "6.2"
        sweep.write(point, record)
    rows = tables.rows_of(tables.points(sweep.root, sweep.plan))
    (found,) = environment.environments(rows, ["local", "never-used"])
    facts = {f.name: f.values for f in found.facts}
    assert facts["kernel"] == ("6.1 (2×)", "6.2 (1×)")
    assert facts["processor"] == ("AMD EPYC",)


def test_a_pod_says_its_node_its_limits_also_where_it_has_none_and_with_whom_it_takes_turns(tmp_path: Path) -> None:
    devices = {
        name: Device(name, kind, resource_group="silicon")
        for name, kind in (("host", "ssh"), ("k8s-free", "kubernetes"), ("k8s-cpu2", "kubernetes"))
    }
    sweep = Sweep(str(tmp_path), devices=devices)
    sweep.devices = devices
    for device in devices:
        point = sweep.point(f"p-{device}", device)
        record = sweep.ok(point)
        placement: dict[str, Any] = {"cgroup": {"version": 2, "unlimited": ["cpu", "memory"]}}
        if device == "k8s-cpu2":
            placement = {"cpu_quota_cores": 2.0, "cgroup": {"version": 2, "memory_max_bytes": 2 << 30}}
        record["device"].update(kind=devices[device].kind, boot_id="b", placement=placement)
        if device != "host":
            pod = {"name": f"sidewinder-{device}", "namespace": "bench", "node": "node1", "image": "lab/bench:1"}
            record["device"]["pod"] = {**pod, "qos": "Guaranteed" if "2" in device else "BestEffort"}
        sweep.write(point, record)
    rows = tables.rows_of(tables.points(sweep.root, sweep.plan))
    found = environment.environments(rows, list(devices), turns=environment.turns(sweep.plan))
    facts = {one.device: {f.name: f.values for f in one.facts} for one in found}
    assert facts["k8s-cpu2"].items() >= {
        ("node", ("node1",)),
        ("pod", ("sidewinder-k8s-cpu2",)),
        ("namespace", ("bench",)),
        ("CPU limit", ("2 cores",)),
        ("memory limit", ("2.0 GiB",)),
        ("QoS class", ("Guaranteed",)),
        ("image", ("lab/bench:1",)),
        ("takes turns", ("with host, k8s-free: 1 at a time",)),
    }
    assert environment.arms(found, sweep.plan) == {
        "host": "ssh",
        "k8s-free": "pod on node1: no limits",
        "k8s-cpu2": "pod on node1: 2 cores, 2.0 GiB",
    }
    assert (facts["k8s-free"]["CPU limit"], facts["k8s-free"]["memory limit"]) == (("none",), ("none",))
    assert not {"CPU limit", "memory limit", "node"} & facts["host"].keys(), "who is no pod has none"
    assert environment.one_machine(rows, sweep.plan) == [], "they take turns"
    alone = {name: replace(device, resource_group=None) for name, device in devices.items()}
    (said,) = environment.one_machine(rows, replace(sweep.plan, lab=replace(sweep.plan.lab, devices=alone)))
    assert "host, k8s-free (a pod on node1) and k8s-cpu2 (a pod on node1) show one boot id" in said


def test_the_timeline_shows_every_attempt_and_merges_only_what_no_eye_could_tell(eventful: Built) -> None:
    rows = tables.rows_of(tables.points(str(eventful.folder), eventful.plan))
    found = timeline.timeline(rows, ["local"])
    assert found is not None
    assert {lane.device: lane.attempts for lane in found.lanes} == {"local": 15, "gpu0": 9, "pi5": 10, "pi5-spare": 1}
    assert not found.is_merged
    outcomes = [b.outcome for lane in found.lanes if lane.device == "pi5" for b in lane.bars]
    assert (outcomes.count("failed"), outcomes.count("lost")) == (4, 1)
    attempts = [timeline.Bar(i * 0.1, 0.1, "failed" if i % 2 else "ok", 1, "") for i in range(10_000)]
    merged = timeline._merge(attempts)
    assert len(merged) <= timeline.MAX_BARS + 1
    assert sum(b.count for b in merged) == 10_000
    assert {b.outcome for b in merged} == {"failed"}
    assert timeline.timeline([], []) is None


def test_long_lists_are_counted_not_printed(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    for i in range(300):
        point = sweep.point(f"p{i:03}", parameters={"x": i}, threads=None)
        sweep.write(point, sweep.failed(point, "measurement", f"exit {i}", warnings=[f"odd {i}"]))
    tree = parse_html(build(sweep).html)
    assert len(open_cards(tree)) == 100
    text = words_of(tree.xpath("//main")[0])
    assert "200 more open points: each with its reason and command in holes.json" in text
    assert [words_of(c) for c in tree.xpath('//section[@id="open"]//tbody/tr/*')] == ["local", "ran and failed", "300"]
    assert "100 rows more: see points.csv" in text
    assert "260 warnings more: see points.csv" in text
