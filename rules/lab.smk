# One lab's sweep: every point of the config is one job, its record is the only output, and the record decides what is
# open. Included by the Snakefile of this repository, imported by `module:` from a lab folder of one's own.
from sidewinder.sweep import Sweep

sweep = Sweep(workflow, config, error=WorkflowError, log=logger)


include: "common.smk"
include: "measure.smk"
include: "report.smk"


rule all:
    default_target: True
    input:
        sweep.html,
    localrule: True


onsuccess:
    sweep.onsuccess()
