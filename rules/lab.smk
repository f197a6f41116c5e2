# What a workflow of one's own imports by `module:`: a whole sweep with its target and its hook. (A target in an included
# file is nobody's default, hence the same lines in the Snakefile.)
include: "sweep.smk"


rule all:
    default_target: True
    input:
        sweep.html,
    localrule: True


onsuccess:
    sweep.onsuccess()
