"""B22: a pod whose image cannot be had is no endless wait and no link that failed: its device is out at once, with the
reason and the image in every hole, and the others are measured.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.kubernetes.helpers_cluster import Namespace, until
from e2e.kubernetes.helpers_sweeps import Begin
from engine.helpers_engine import command, record
from sidewinder import report
from sidewinder.transports import kubernetes_verdict

IMAGE = "k8s.local/nobody-made-it:9"


@pytest.mark.parametrize(
    ("settings", "reason", "named"),
    [
        ({"image": IMAGE, "image_pull_policy": "Never"}, "ErrImageNeverPull", IMAGE),
        ({"image": "Not An Image"}, "InvalidImageName", "Not An Image"),
        ({"image": IMAGE, "image_pull_policy": "IfNotPresent"}, "ImagePullBackOff", IMAGE),
        (
            {"image": IMAGE, "image_pull_policy": "Always", "image_pull_secrets": ["gone"]},
            "ErrImagePull",
            "FailedToRetrieveImagePullSecret",
        ),
        ({"env_from_secrets": {"TOKEN": "gone/key"}}, "CreateContainerConfigError", 'secret "gone" not found'),
    ],
    ids=["never", "name", "back-off", "pull-secret", "reference"],
)
def test_it_costs_its_own_points_alone(
    settings: dict[str, Any],
    reason: str,
    named: str,
    namespace: Namespace,
    begin: Begin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    after_s = {**kubernetes_verdict._HOPELESS_AFTER_S}
    # a registry that is away for a moment gets a minute; here as long as the cluster takes to say it in both ways
    after_s |= {"ErrImagePull": 4.0, "ImagePullBackOff": 4.0} if reason == "ErrImagePull" else {"ImagePullBackOff": 0.0}
    monkeypatch.setattr(kubernetes_verdict, "_HOPELESS_AFTER_S", after_s)
    bad, good = namespace.device("bad", **settings), namespace.device("good")
    points = [
        command("sh", "-c", f"echo n={n}", metrics={"n": r"n=(\d)"}, device=device.id, parameters={"i": n})
        for device in (bad, good)
        for n in range(3)
    ]
    sweep = begin(points, bad, good)
    outcomes = sweep.wait()
    by_device = {
        device: [outcomes[one] for one in outcomes if sweep.plan.points[one].device == device]
        for device in ("bad", "good")
    }
    assert by_device == {"bad": ["hole"] * 3, "good": ["ok"] * 3}
    for run_id, point in sweep.plan.points.items():
        written = record(sweep.root, sweep.plan, run_id)
        if point.device == "bad":
            assert written["failure"]["class"] == "not_attempted"
            assert written["failure"]["evidence"]["cause"] == "device"
            assert reason in written["failure"]["message"]
            assert named in written["failure"]["message"]
            assert "devices.bad" in written["failure"]["message"], "what to correct"
    assert sweep.ledger == ["quarantined"], "one line, and nothing was tried again"
    until(lambda: namespace.pod("sidewinder-bad") is None, "a pod that never starts gives its place back")
    report.build(str(sweep.root), sweep.plan)
    holes = json.loads((sweep.root / "summary/holes.json").read_text())["open"]
    assert len(holes) == 3
    assert all(named in hole["reason"] for hole in holes)
    assert named.replace('"', "&quot;") in (sweep.root / "summary/report.html").read_text().replace("&#34;", "&quot;")
