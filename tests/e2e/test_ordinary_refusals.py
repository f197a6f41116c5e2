"""What is wrong with `--sidewinder-ordinary-executor` or with the other plugin's options: said before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.test_pipeline import PIPELINE, pipeline
from plugin.helpers_plugin import LabFolder, Snakemake


@pytest.fixture(scope="module")
def snakemake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snakemake]:
    """One that can reach no cluster, least of all one of the person who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        # read when the other plugin is imported
        patch.setenv("KUBECONFIG", str(tmp_path_factory.mktemp("no-cluster") / "none"))
        one = Snakemake()
    yield one
    one.close()


@pytest.fixture
def lab(snakemake: Snakemake, tmp_path: Path) -> LabFolder:
    return pipeline(snakemake, tmp_path / "p")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["nope"], "there is no executor plugin 'nope' here; installed are cluster-generic, kubernetes."),
        (["local"], "local runs jobs on this machine, where they would run beside measurements"),
        (["sidewinder"], "sidewinder cannot be handed what it hands over"),
        (["dryrun"], "dryrun runs no job"),
        (["touch"], "touch runs no job"),
        (["cluster-generic"], "--cluster-generic-submit-cmd"),
        (["kubernetes", "--kubernetes-persistent-volumes", "lab"], "Invalid persistent volume spec (lab)"),
    ],
    ids=["unknown", "local", "sidewinder", "dryrun", "touch", "missing setting", "invalid setting"],
)
@pytest.mark.parametrize("dry", [True, False], ids=["dry", "real"])
def test_what_cannot_be_is_refused_before_anything_runs(
    lab: LabFolder, options: list[str], words: str, dry: bool
) -> None:
    run = lab.run(*["-n"][: int(dry)], "--sidewinder-ordinary-executor", *options)
    assert run.rc == 1
    assert "sidewinder-ordinary-executor: " in run.text
    assert words in run.text
    assert "Traceback" not in run.text
    assert ".py" not in run.text, "no frames of ours"
    assert not (lab.folder / "runs").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "kubernetes-persistent-volumes: jobs in pods would not find the working directory {lab}: nothing is"),
        (["--kubernetes-persistent-volumes", "lab:/elsewhere"], "find the working directory {lab}: only /elsewhere is"),
        (["--kubernetes-persistent-volumes", "lab:{lab}"], "container-image: jobs in pods read this workflow's"),
        (
            ["--kubernetes-persistent-volumes", "lab:{lab}", "--container-image", "x"],
            "kubernetes could not be started: ConfigException",
        ),
    ],
    ids=["no volume", "another folder", "default image", "no cluster"],
)
def test_jobs_in_pods_that_could_not_work_are_refused_before_anything_runs(
    lab: LabFolder, options: list[str], words: str
) -> None:
    options = [one.format(lab=lab.folder) for one in options]
    run = lab.run("--sidewinder-ordinary-executor", "kubernetes", *options)
    assert run.rc == 1
    assert words.format(lab=lab.folder) in run.text
    assert "Traceback" not in run.text
    assert not lab.starts, "nothing was started"


def test_who_only_measures_needs_no_cluster(lab: LabFolder) -> None:
    run = lab.run("lab_all", "--sidewinder-ordinary-executor", "kubernetes")
    assert run.rc == 0, run.text
    assert sorted(lab.starts) == ["pi5-1", "pi5-2"]


LATE = """
checkpoint look:
    localrule: True
    output: "look.txt"
    shell: "touch {output}"

rule late:
    output: "late.txt"
    shell: "touch {output}"

rule all_of_it:
    localrule: True
    input: lambda wildcards: checkpoints.look.get() and "late.txt", "runs/demo/summary/points.csv"
    output: "all_of_it.txt"
    shell: "touch {output}"
"""


def test_a_cluster_that_is_not_there_when_a_checkpoint_asks_for_it_costs_no_point(
    snakemake: Snakemake, tmp_path: Path
) -> None:
    lab = pipeline(snakemake, tmp_path / "p", PIPELINE + LATE)
    options = ["--kubernetes-persistent-volumes", f"lab:{lab.folder}", "--container-image", "x"]
    run = lab.run("all_of_it.txt", "--sidewinder-ordinary-executor", "kubernetes", *options)
    assert run.rc == 1
    assert "Error in rule late" in run.text
    assert "kubernetes could not be started: ConfigException" in run.text
    assert "Traceback" not in run.text
    assert sorted(lab.starts) == ["pi5-1", "pi5-2"]
