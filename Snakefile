# One lab's sweep: every point of the config is one job, its record is the only output, and the record decides what is
# open. `snakemake --profile profiles/lab` measures; docs/snakemake.md says how it sits in Snakemake.
from sidewinder.sweep import Sweep

if not config.get("matrix"):

    configfile: "config/lab.yaml"


sweep = Sweep(workflow, config, error=WorkflowError, log=logger)


include: "rules/common.smk"
include: "rules/measure.smk"
include: "rules/report.smk"


rule all:
    default_target: True
    input:
        sweep.html,
    localrule: True


onsuccess:
    sweep.onsuccess()
