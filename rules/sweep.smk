# One lab's sweep: every point of the config is one job, its record is the only output, and the record decides what is
# open.
from sidewinder.sweep import Sweep

sweep = Sweep(workflow, config, error=WorkflowError, log=logger)


include: "common.smk"
include: "measure.smk"
include: "report.smk"
