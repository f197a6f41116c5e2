# `snakemake --profile profiles/lab` measures what config/lab.yaml (or `--configfile`) asks for and builds the report.
# docs/snakemake.md says how a sweep sits in Snakemake.
if not config.get("matrix"):

    configfile: "config/lab.yaml"


include: "rules/sweep.smk"


rule all:
    default_target: True
    input:
        sweep.html,
    localrule: True


onsuccess:
    sweep.onsuccess()
