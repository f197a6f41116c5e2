"""A user's own rules on SSH devices, in whole runs of Snakemake on real servers: what they get and what comes back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.helpers_rules import Workflow, left_on
from e2e.helpers_ssh import Sshd, needs_sshd
from plugin.helpers_plugin import Snakemake

pytestmark = needs_sshd


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "pi5").start()
    yield one
    one.stop()


CHAIN = """
rule all:
    default_target: True
    localrule: True
    input: "results/after.txt"

rule before:
    output: "data/raw/a.txt", "data/raw/deep/b.txt"
    shell: "echo one > {output[0]}; echo two > {output[1]}"

rule there:
    input: "data/raw/a.txt", "data/raw/deep/b.txt", tool="tools/join.sh"
    output: "results/there/joined.txt"
    log: "logs/there.log"
    threads: 2
    resources: device="pi5"
    shell: "./{input.tool} {input[0]} {input[1]} {output} 2> {log}; echo {threads} $PWD $LEVEL >> {output}"

rule after:
    input: "results/there/joined.txt"
    output: "results/after.txt"
    shell: "cat {input} > {output}"
"""


def test_a_rule_on_a_device_between_ordinary_rules(server: Sshd, snakemake: Snakemake, tmp_path: Path) -> None:
    flow = Workflow(snakemake, tmp_path / "w", CHAIN, pi5={**server.settings(), "env": {"LEVEL": "7"}})
    (flow.folder / "tools").mkdir()
    tool = flow.folder / "tools/join.sh"
    tool.write_text("#!/bin/sh\necho joining >&2\ncat $1 $2 > $3\n")
    tool.chmod(0o755)
    first = flow.run()
    assert first.rc == 0, first.text
    one, two, said = flow.text("results/after.txt").splitlines()
    assert (one, two) == ("one", "two")
    threads, folder, level = said.split()
    assert (threads, level) == ("2", "7")
    assert folder.startswith(str(server.state)), "it ran on the device, in a folder of its own"
    assert flow.text("logs/there.log") == "joining\n"
    assert "Nothing to be done" in flow.run().text
    assert left_on(server) == []
    assert flow.partials() == []
    # an input that changed is brought again, what did not change is not
    staged = set(os.listdir(server.state / "store"))
    (flow.folder / "data/raw/a.txt").write_text("three\n")
    again = flow.run()
    assert again.rc == 0, again.text
    assert flow.text("results/after.txt").splitlines()[:2] == ["three", "two"]
    assert len(set(os.listdir(server.state / "store")) - staged) == 1


FILES = """
rule big:
    output: "big/file.bin", "big/program"
    resources: device="pi5"
    shell: '''
        head -c 30000000 /dev/urandom > {output[0]}
        printf '#!/bin/sh\\necho works' > {output[1]}; chmod +x {output[1]}
        sha256sum {output[0]} >&2; cp {output[0]} $HOME/kept
        '''

rule folder_in_and_out:
    input: "given"
    output: folder=directory("made"), done=touch("made.done")
    log: "made/logs/it.log"
    resources: device="pi5"
    shell: '''
        cp -r {input}/. {output.folder}/; mkdir {output.folder}/empty; ln -s x.txt {output.folder}/link
        for i in $(seq 300); do echo $i > {output.folder}/n-$i; done
        echo logged > {log}
        '''
"""


def test_large_files_and_folders_come_home(server: Sshd, snakemake: Snakemake, tmp_path: Path) -> None:
    flow = Workflow(snakemake, tmp_path / "w", FILES, pi5=server.settings())
    (flow.folder / "given/sub").mkdir(parents=True)
    (flow.folder / "given/x.txt").write_text("x\n")
    (flow.folder / "given/sub/y\u00e9.txt").write_text("y\n")
    made = flow.folder / "made"
    done = flow.run("big/file.bin", "made")
    assert done.rc == 0, done.text
    kept = (server.home / "kept").read_bytes()
    big = flow.folder / "big/file.bin"
    assert hashlib.sha256(big.read_bytes()).digest() == hashlib.sha256(kept).digest()
    assert len(kept) == 30_000_000
    assert os.access(flow.folder / "big/program", os.X_OK)
    assert not os.access(big, os.X_OK)
    names = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.name != ".snakemake_timestamp")
    numbered = [f"n-{i}" for i in range(1, 301)]
    assert names == sorted(["empty", "link", "logs", "logs/it.log", "sub", "sub/y\u00e9.txt", "x.txt", *numbered])
    assert os.readlink(made / "link") == "x.txt"
    assert (made / "n-300").read_text() == "300\n"
    assert (flow.folder / "made.done").exists()
    assert "Nothing to be done" in flow.run("big/file.bin", "made").text
    assert left_on(server) == []
    assert flow.partials() == []


FAILING = """
rule fails:
    output: "out/fails.txt", directory("out/folder")
    log: "logs/fails.log"
    resources: device="pi5"
    shell: "echo half > {output[0]}; echo in the log > {log}; echo the reason there >&2; exit 3"

rule forgets:
    output: "out/kept.txt", "out/forgotten.txt"
    resources: device="pi5"
    shell: "echo x > {output[0]}; echo y > out/forgoten.txt"

rule slow:
    output: "out/slow.txt"
    resources: device="pi5", runtime=1
    shell: "echo x > {output}"
"""


def test_a_command_that_fails_says_why_and_brings_its_log(server: Sshd, snakemake: Snakemake, tmp_path: Path) -> None:
    flow = Workflow(snakemake, tmp_path / "w", FAILING, pi5=server.settings())
    run = flow.run("out/fails.txt", "out/kept.txt", "out/slow.txt")
    assert run.rc == 1
    assert "exit status 3 on pi5" in run.text
    assert "the reason there" in run.text
    assert flow.text("logs/fails.log") == "in the log\n"
    assert "did not write out/forgotten.txt; out held forgoten.txt, kept.txt" in run.text
    assert os.listdir(flow.folder / "out") == ["slow.txt"], "all outputs or none"
    assert left_on(server) == []


REFUSED = """
rule absolute:
    input: "{folder}/here.txt"
    output: "a.txt"
    resources: device="pi5"
    shell: "cat {{input}} > {{output}}"

rule above:
    input: "../above.txt"
    output: "b.txt"
    resources: device="pi5"
    shell: "cat {{input}} > {{output}}"

rule absolute_output:
    output: "{folder}/c.txt"
    resources: device="pi5"
    shell: "echo > {{output}}"

rule temporary:
    output: "d.txt"
    resources: device="pi5"
    shell: "sort -T {{resources.tmpdir}} /dev/null > {{output}}"

rule updates:
    output: update("e.txt")
    resources: device="pi5"
    shell: "echo >> {{output}}"

rule scripted:
    output: "f.txt"
    resources: device="pi5"
    script: "x.py"

rule piped:
    output: pipe("g.txt")
    shell: "echo > {{output}}"

rule reads_a_pipe:
    input: "g.txt"
    output: "h.txt"
    resources: device="pi5"
    shell: "cat {{input}} > {{output}}"

rule fine:
    output: "z.txt"
    shell: "echo > {{output}}"
"""


def test_what_has_a_meaning_here_only_is_refused_by_rule(server: Sshd, snakemake: Snakemake, tmp_path: Path) -> None:
    folder = tmp_path / "w"
    flow = Workflow(snakemake, folder, REFUSED.format(folder=folder), pi5=server.settings())
    (folder / "here.txt").write_text("")
    (tmp_path / "above.txt").write_text("")
    (folder / "x.py").write_text("")
    run = flow.run("z.txt", "a.txt", "b.txt", f"{folder}/c.txt", "d.txt", "e.txt", "f.txt", "h.txt")
    assert run.rc == 1
    assert "Nothing was started" in run.text
    assert f"rule absolute: input {folder}/here.txt is an absolute path" in run.text
    assert "rule above: input ../above.txt leads out of the working directory" in run.text
    assert f"rule absolute_output: output {folder}/c.txt is an absolute path" in run.text
    assert "rule temporary: its command names {resources.tmpdir}" in run.text
    assert "rule updates: output e.txt is of update()" in run.text
    assert "rule scripted: `script:` cannot run on a device" in run.text
    assert "reads_a_pipe: " in run.text
    assert not (folder / "z.txt").exists()
    assert "Accepted" not in server.log.read_text()
