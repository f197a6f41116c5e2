#!/usr/bin/env bash
# Format, lint, types, import directions, rules. Each line is one tool; the first that objects ends the run.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
ruff format --check .
ruff check .
mypy
lint-imports
snakefmt --check Snakefile rules
python tests/lint_snakemake.py
vermin --no-tips --violations -t=3.7- workflow/sidewinder/agent/*.py
