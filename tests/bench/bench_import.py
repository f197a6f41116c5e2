"""What our code adds to every start: CPU time of importing the package, and the plugins beyond what Snakemake imports.

Prints ``name value unit goal ok|short``; exits 1 if one is short. Each figure is the least of several fresh processes.
"""

from __future__ import annotations

import subprocess
import sys

ROUNDS = 7
SNAKEMAKE = (
    "import snakemake.cli, snakemake_interface_executor_plugins.executors.real, "
    "snakemake_interface_logger_plugins.base, snakemake_interface_scheduler_plugins.base"
)
PLUGINS = (
    "import snakemake_executor_plugin_sidewinder, snakemake_logger_plugin_sidewinder, "
    "snakemake_scheduler_plugin_sidewinder"
)
TIMED = "import time; {before}; began = time.process_time(); {timed}; print(time.process_time() - began)"


def import_ms(before: str, timed: str) -> float:
    code = TIMED.format(before=before, timed=timed)
    command = [sys.executable, "-c", code]
    return 1000 * min(
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(ROUNDS)
    )


def main() -> int:
    figures = [
        ("import_sidewinder", import_ms("pass", "import sidewinder"), 30.0),
        ("import_plugins_beyond_snakemake", import_ms(SNAKEMAKE, PLUGINS), 30.0),
    ]
    for name, value, goal in figures:
        print(f"{name} {value:.1f} cpu_ms <={goal:g} {'ok' if value <= goal else 'short'}")
    print(f"# import of what `sidewinder measure` runs: {import_ms('pass', 'import sidewinder.engine'):.0f} ms")
    return int(any(value > goal for _, value, goal in figures))


if __name__ == "__main__":
    sys.exit(main())
