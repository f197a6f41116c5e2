#!/usr/bin/env bash
# Format, lint, types, import directions, rules. Each line is one tool; the first that objects ends the run.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
ruff format --check .
ruff check .
mypy
lint-imports
snakefmt --check Snakefile rules docs/pipeline/Snakefile
python tests/lint_snakemake.py
# What is shipped to a device must run on its Python; source.py, which ships it, stays on the controller.
vermin --no-tips --violations -t=3.7- $(ls workflow/sidewinder/agent/*.py | grep -v /source.py) \
  workflow/sidewinder/transports/kubernetes_keeper.py
