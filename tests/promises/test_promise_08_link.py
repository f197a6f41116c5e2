"""Promise 8: a link that drops during a run loses nothing if the device survived: the run goes on, the controller
re-attaches and fetches.

Shown over a real sshd behind a proxy that resets, refuses and comes back, and in campaigns whose links heal within the
lease.
"""

from __future__ import annotations

from pathlib import Path

from e2e.helpers_ssh import ProxyThread, needs_sshd, sshd
from engine.helpers_engine import Told, make_plan, only, record
from promises.helpers_promises import Diary, Property, campaigns, lines, until
from sidewinder.engine import Engine
from sidewinder.files import schedule


@needs_sshd
def test_the_run_goes_on_and_its_result_is_fetched(tmp_path: Path) -> None:
    diary, root = Diary(tmp_path), tmp_path / "runs"
    with sshd(tmp_path / "pi5") as server, ProxyThread(server.port) as proxy:
        plan = make_plan(root, [diary.point("p", waits=True, device="pi5")], devices=[server.device(port=proxy.port)])
        told = Told()
        engine = Engine(told)
        engine.add_lab(str(root), plan)
        engine.submit([(str(root), only(plan))])
        told.until(lambda told: told.started and diary.words, "it runs")
        proxy.do(lambda one: (setattr(one, "refuses", True), one.reset()))
        until(lambda: "link_lost" in [line["event"] for line in lines(root)], "the loss is noticed")
        diary.go.touch()
        until(lambda: diary.words == ["+p", "-p"], "it ends while nobody can hear it")
        proxy.do(lambda one: (setattr(one, "refuses", False), one.heal()))
        told.wait(1)
        assert engine.shutdown(20)
    written = record(root, plan, only(plan))
    assert (written["status"], written["metrics"]["n"]) == ("ok", 1)
    assert diary.words == ["+p", "-p"], "it ran once"
    assert schedule.read(str(root))["links_healed"] == {"pi5": 1}


def test_in_campaigns_whose_links_heal(record_property: Property) -> None:
    campaigns(record_property, "link healed within the lease", "Attach failed")
