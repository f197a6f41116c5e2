"""A controller in a process of its own, to be killed: runs every point of a run folder's plan through an engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.helpers_engine import Told
from sidewinder.engine import Engine
from sidewinder.files import plan as plan_file


def main(root: str) -> None:
    plan = plan_file.read(root)
    told = Told()
    engine = Engine(told)
    engine.add_lab(root, plan)
    engine.submit([(root, run_id) for run_id in plan.points])
    told.wait(len(plan.points), 300)  # whoever started it has less patience, or a lease to wait for
    engine.shutdown(20)
    print(json.dumps({run_id: told.done[root, run_id] for run_id in plan.points}))


if __name__ == "__main__":
    main(sys.argv[1])
