"""A pod's device whose points ran on two nodes: two series everywhere, and the page says so before anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from report import helpers_chromium
from report.conftest import Built, build
from report.helpers_report import Sweep, llama_points, parse_html, words_of
from sidewinder.report import nodes, tables
from sidewinder.report.views import views


def built(tmp_path: Path, ran_on: list[str | None], devices: tuple[str, ...] = ("k8s-cpu2",)) -> Built:
    """Twelve points a device; the i-th ran on the i-th of these nodes, in turn; None: it was never measured."""
    sweep = Sweep(str(tmp_path / "runs"), devices=devices, experiment="two-nodes")
    for device in devices:
        for i, point in enumerate(llama_points(sweep, device)):
            node = ran_on[i % len(ran_on)]
            if node is None:
                sweep.write(point, sweep.hole(point, "evicted"))
                continue
            record = sweep.ok(point, scale=1.0 if node == "node1" else 0.6)
            record["device"]["kind"] = "kubernetes"
            pod = {"name": f"sidewinder-{device}", "node": node, "qos": "Guaranteed", "restarts": 0}
            record["device"]["pod"] = {**pod, "node_others": {"pods": 3, "cpu_request_cores": 0.75}}
            record["device"]["placement"] = {"cpu_quota_cores": 2.0, "cgroup": {"cpuset": "0-3"}}
            record["conditions"]["cgroup"] = {"periods": 40, "throttled_periods": 8, "throttled_us": 250_000}
            sweep.write(point, record)
    return build(sweep)


def rows(page: Built) -> list[dict[str, Any]]:
    return tables.rows_of(tables.points(str(page.folder), page.plan))


def alarms(page: Built) -> list[str]:
    return [words_of(one) for one in parse_html(page.html).xpath('//header//p[contains(@class, "alarm")]')]


def test_two_nodes_are_two_series_and_the_page_says_so_first(tmp_path: Path) -> None:
    page = built(tmp_path, ["node1", "node1", "node2"])
    (said,) = alarms(page)
    assert said.startswith("2 NODES: the points of k8s-cpu2 ran on node1 (8 points) and node2 (4 points)")
    assert "devices.k8s-cpu2.node_name" in said
    (view,) = views(rows(page), page.plan)
    (axis,) = [one for one in (view.x, view.series, *view.facets) if one is not None and one.columns == ("device",)]
    assert set(axis.values) == {"k8s-cpu2 on node1", "k8s-cpu2 on node2"}
    tree = parse_html(page.html)
    cells = [words_of(cell) for cell in tree.xpath('//section[@id="results"]//td')]
    assert (cells.count("k8s-cpu2 on node1"), cells.count("k8s-cpu2 on node2")) == (8, 4)
    shown = [words_of(one) for one in tree.xpath("//figcaption | //ul[@class='legend']/li")]
    assert any("k8s-cpu2 on node1" in one for one in shown)
    assert any("k8s-cpu2 on node2" in one for one in shown)


def test_the_table_of_points_keeps_the_device_and_has_a_column_for_the_node(tmp_path: Path) -> None:
    page = built(tmp_path, ["node1", "node2"])
    table = tables.read_csv(str(page.folder / "summary" / "points.csv"))
    assert set(table.device) == {"k8s-cpu2"}
    assert dict(table.groupby("node").size()) == {"node1": 6, "node2": 6}
    assert set(table.qos_class) == {"Guaranteed"}
    assert set(table.cpu_quota_cores) == {2.0}
    assert set(zip(table.restarts, table.node_pods, table.node_cpu_request_cores, strict=True)) == {(0, 3, 0.75)}
    assert set(table.cpuset) == {"0-3"}
    assert set(zip(table.cgroup_periods, table.cgroup_throttled_periods, strict=True)) == {(40, 8)}


def test_what_was_not_measured_belongs_to_no_node(tmp_path: Path) -> None:
    page = built(tmp_path, ["node1", None, "node2"])
    (view,) = views(rows(page), page.plan)
    assert {row["device"] for row in view.rows} == {
        "k8s-cpu2 on node1",
        "k8s-cpu2 on node2",
        "k8s-cpu2, on no node",
    }


@pytest.mark.parametrize("ran_on", [["node1"], ["node1", None], [None]], ids=["one node", "with holes", "holes alone"])
def test_one_node_is_nothing_to_speak_of(tmp_path: Path, ran_on: list[str | None]) -> None:
    page = built(tmp_path, ran_on)
    assert alarms(page) == []
    assert {row["device"] for row in nodes.apart(rows(page))} == {"k8s-cpu2"}


def test_two_devices_on_a_node_each_are_two_devices(tmp_path: Path) -> None:
    sweep_rows = [
        {"run_id": "a", "planned": True, "device": "one", "node": "node1"},
        {"run_id": "b", "planned": True, "device": "two", "node": "node2"},
    ]
    assert nodes.spread(sweep_rows) == {}
    assert nodes.sentences(sweep_rows) == []


@pytest.mark.chromium
def test_it_is_seen_in_a_browser_without_scrolling(tmp_path: Path) -> None:
    binary = helpers_chromium.find()
    if binary is None:
        pytest.skip("there is no Chromium here (apt-get install chromium)")
    page = built(tmp_path, ["node1", "node1", "node2"])
    with helpers_chromium.chromium(binary) as browser:
        browser.open(page.folder / "summary/report.html", width=1200, scheme="light")
        box = browser.value(
            "(() => { const b = document.querySelector('header .alarm').getBoundingClientRect();"
            " return [b.top, b.bottom, b.width, innerHeight]; })()"
        )
        assert 0 <= box[0] < box[1] <= box[3], "it is in the first screenful"
        assert box[2] > 300
