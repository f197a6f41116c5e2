"""Real parts for the tests of the llama workloads: a tiny model, a real llama-bench."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workloads.helpers_gguf import write_tiny_model

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "get_llama_bench.sh"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def llama_cpp_dir() -> Path:
    """Folder with a real llama-bench and llama-server: LLAMA_CPP_BIN_DIR, or unpacked once beside this environment."""
    named = os.environ.get("LLAMA_CPP_BIN_DIR")
    if named:
        return Path(named)
    prefix = Path(sys.prefix) / "llama-bench"
    done = subprocess.run(["sh", SCRIPT, prefix], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no real llama-bench to be had here: {done.stderr.strip()}")
    return prefix / "bin"
