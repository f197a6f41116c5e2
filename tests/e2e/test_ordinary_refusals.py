"""What is wrong with `--sidewinder-ordinary-executor` or with the other plugin's options: said before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.test_pipeline import pipeline
from plugin.helpers_plugin import LabFolder, Snakemake


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
    environ = {"KUBECONFIG": str(lab.folder / "none")}
    run = lab.run("--sidewinder-ordinary-executor", "kubernetes", *options, env=environ)
    assert run.rc == 1
    assert words.format(lab=lab.folder) in run.text
    assert "Traceback" not in run.text
    assert not lab.starts, "nothing was started"


def test_who_only_measures_needs_no_cluster(lab: LabFolder) -> None:
    environ = {"KUBECONFIG": str(lab.folder / "none")}
    run = lab.run("lab_all", "--sidewinder-ordinary-executor", "kubernetes", env=environ)
    assert run.rc == 0, run.text
    assert sorted(lab.starts) == ["pi5-1", "pi5-2"]
