"""A user's own rules on SSH devices when something goes wrong: the link, the clock, the store, the controller."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.helpers_badluck import until
from e2e.helpers_rules import Workflow, left_on
from e2e.helpers_ssh import ProxyThread, Sshd, needs_sshd
from plugin.helpers_plugin import Snakemake

pytestmark = needs_sshd


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "pi5").start()
    yield one
    one.stop()


ONE_BIG = """
rule big:
    output: "big.bin"
    resources: device="pi5"
    shell: "echo began >> $HOME/ran; head -c 8000000 /dev/urandom > {output}; cp {output} $HOME/kept"
"""


def test_a_link_that_is_cut_while_an_output_is_fetched(server: Sshd, snakemake: Snakemake, tmp_path: Path) -> None:
    with ProxyThread(server.port) as proxy:
        flow = Workflow(snakemake, tmp_path / "w", ONE_BIG, pi5=server.settings(port=proxy.port))
        proxy.proxy.swallow_after_bytes = 4_000_000  # in the middle of the output
        started = flow.start("big.bin")
        until(lambda: proxy.proxy.passed_bytes >= 4_000_000, "the output is being fetched")
        proxy.do(lambda one: (setattr(one, "refuses", True), one.heal(), one.reset()))
        until(lambda: "the link was lost" in started.text(), "the link is missed")
        (partial,) = flow.partials()
        had, before = partial.stat().st_size, proxy.proxy.passed_bytes
        proxy.do(lambda one: setattr(one, "refuses", False))
        run = started.wait()
        assert run.rc == 0, run.text
        came = proxy.proxy.passed_bytes - before
    assert (flow.folder / "big.bin").read_bytes() == (server.home / "kept").read_bytes()
    assert (server.home / "ran").read_text() == "began\n", "fetched, not run again"
    assert 0 < had < 8_000_000, "it was cut in the middle"
    assert came < 8_000_000 - had + 2_500_000, "what was here was not sent again (an agent's source aside)"
    assert left_on(server) == []


TWO = """
rule both:
    output: "{device}.txt"
    resources: device=lambda wildcards: wildcards.device
    shell: '''
        touch $HOME/../../here-{wildcards.device}
        while [ ! -e $HOME/../../here-pi5 ] || [ ! -e $HOME/../../here-pi6 ]; do sleep 0.05; done
        basename $(dirname $HOME) > {output}
        '''
"""


def test_two_devices_at_the_same_time(server: Sshd, snakemake: Snakemake, tmp_path: Path) -> None:
    other = Sshd(tmp_path / "pi6").start()
    try:
        flow = Workflow(snakemake, tmp_path / "w", TWO, pi5=server.settings(), pi6=other.settings())
        run = flow.run("pi5.txt", "pi6.txt")  # each waits for the other
    finally:
        other.stop()
    assert run.rc == 0, run.text
    assert (flow.text("pi5.txt"), flow.text("pi6.txt")) == ("pi5\n", "pi6\n")


SKEWED = """
rule all:
    default_target: True
    localrule: True
    input: "last.txt"

rule first:
    output: "first.txt"
    shell: "echo 1 > {output}"

rule there:
    input: "first.txt"
    output: "there.txt", directory("folder")
    resources: device="pi5"
    shell: '''
        cat {input} > {output[0]}; mkdir {output[1]}; echo 1 > {output[1]}/in
        touch -d "now OFFSET" {output[0]} {output[1]}/in {output[1]}
        '''

rule last:
    input: "there.txt", "folder"
    output: "last.txt"
    shell: "cat {input[0]} > {output}"
"""


@pytest.mark.parametrize("offset", ["+3 hours", "-3 hours"])
def test_the_device_clock_does_not_date_outputs(
    offset: str, server: Sshd, snakemake: Snakemake, tmp_path: Path
) -> None:
    """B12 for files: Snakemake compares their dates with those of this machine."""
    flow = Workflow(snakemake, tmp_path / "w", SKEWED.replace("OFFSET", offset), pi5=server.settings())
    before_s = time.time()
    run = flow.run()
    assert run.rc == 0, run.text
    for name in ("there.txt", "folder", "folder/in"):
        assert before_s - 1 <= (flow.folder / name).stat().st_mtime <= time.time() + 1, name
    assert "Nothing to be done" in flow.run().text


def test_a_damaged_input_on_the_device_is_brought_again(server: Sshd, snakemake: Snakemake, tmp_path: Path) -> None:
    rule = """
rule copies:
    input: "in.txt"
    output: "out-{i}.txt"
    resources: device="pi5"
    shell: "cat {input} > {output}; echo more >> {input}"
"""
    flow = Workflow(snakemake, tmp_path / "w", rule, pi5=server.settings())
    (flow.folder / "in.txt").write_text("what it is\n")
    assert flow.run("out-1.txt").rc == 0
    (staged,) = (server.state / "store").iterdir()
    assert staged.read_text() == "what it is\n", "a command writes into a copy of its own"
    staged.chmod(0o644)
    staged.write_text("what it as\n")  # of the same length, as a bad disk does it
    run = flow.run("out-2.txt")
    assert run.rc == 0, run.text
    assert flow.text("out-2.txt") == "what it is\n"


HELD = """
rule held:
    output: "out.txt"
    resources: device="pi5"
    shell: "echo began >> $HOME/ran; while [ ! -e $HOME/go ]; do sleep 0.05; done; echo $PPID > {output}"
"""


def test_after_a_crash_of_snakemake_the_rule_runs_again_alone(
    server: Sshd, snakemake: Snakemake, tmp_path: Path
) -> None:
    flow = Workflow(snakemake, tmp_path / "w", HELD, pi5=server.settings())
    ran = server.home / "ran"
    first = flow.start("out.txt")
    until(lambda: ran.exists() and any(server.state.glob("runs/*/rule-*/proc.json")), "it runs")
    (proc,) = server.state.glob("runs/*/rule-*/proc.json")
    until(lambda: proc.read_text() != "", "its numbers are written")
    leader = json.loads(proc.read_text())["leader"]
    first.kill(signal.SIGKILL)
    first.wait()
    second = flow.start("out.txt")
    until(lambda: ran.read_text() == "began\nbegan\n", "it is run again")
    assert not Path(f"/proc/{leader}").exists(), "the device has one slot: the first one is ended before"
    (server.home / "go").touch()
    run = second.wait()
    assert run.rc == 0, run.text
    assert (flow.folder / "out.txt").exists()
    assert not any(server.state.glob("runs/*/rule-*/work")), "nor does the first one's folder stay"
    assert flow.partials() == []
