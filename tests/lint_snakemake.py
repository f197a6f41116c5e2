"""`snakemake --lint` over the rules, less the one remark that does not fit: `measure` needs no software environment.

The rule runs on devices through our executor, or as one `sidewinder` command; an environment for it would be another
experiment. Exits 1 with what is left.
"""

from __future__ import annotations

import json
import subprocess
import sys

ENVIRONMENT = "Specify a conda environment or container for each rule."


def main() -> int:
    run = subprocess.run(["snakemake", "--lint", "json"], capture_output=True, text=True, check=False)
    try:
        found = json.loads(run.stdout or "{}")
    except ValueError:
        print(run.stdout, run.stderr, sep="\n", file=sys.stderr)
        return 1
    left = list(found.get("snakefiles", []))
    for rule in found.get("rules", []):
        lints = [one for one in rule["lints"] if not (rule["rule"] == "measure" and one["title"] == ENVIRONMENT)]
        if lints:
            left.append({**rule, "lints": lints})
    if left:
        print(json.dumps(left, indent=2))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
