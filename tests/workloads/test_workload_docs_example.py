"""The example in docs/workloads.md is a whole workload: it is run as it stands in the page."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from sidewinder.errors import ConfigError, DeviceFault
from sidewinder.model import Found
from workloads.helpers_llama import View, device, point, result

PAGE = (Path(__file__).parent.parent.parent / "docs" / "workloads.md").read_text()
SYSBENCH = "/usr/bin/sysbench"


@pytest.fixture
def example() -> Any:
    source = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(source) == 1
    namespace: dict[str, Any] = {}
    exec(compile(source[0], "docs/workloads.md", "exec"), namespace)
    return namespace["MemoryBandwidth"]()


def test_it_finds_builds_and_reads(example: Any) -> None:
    view = View(existing={SYSBENCH: SYSBENCH}, answers={SYSBENCH: (0, b"sysbench 1.0.20\n", b"")})
    found = asyncio.run(example.discover(view, {}))
    assert found == Found(SYSBENCH, "sysbench 1.0.20")
    asked = point(backend="memory-bandwidth", threads=4, parameters={"block_kib": 4})
    example.validate(asked)
    task = example.build_task(asked, device(), found)
    assert task.argv == (SYSBENCH, "memory", "--memory-block-size=4K", "--threads=4", "run")
    got = example.parse(asked, task, result(b"102400.00 MiB transferred (9536.74 MiB/sec)\n"))
    assert got.ok
    assert example.headline(got.metrics) == "read 10.0 GB/s"
    assert not example.parse(asked, task, result(b"", b"", 1)).ok


def test_it_refuses_and_names_what_is_missing(example: Any) -> None:
    with pytest.raises(ConfigError, match="block_kib"):
        example.validate(point(parameters={"block_kib": 0}))
    with pytest.raises(DeviceFault, match="apt-get install sysbench"):
        asyncio.run(example.discover(View(), {}))
