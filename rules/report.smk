# The report: a table a device, then one page. A tree, because one job that depends on N records costs Snakemake N²; and
# nothing of it runs beside a measurement on this machine, whose table is an input of every other.


rule part:
    input:
        lambda wildcards: sweep.part_leaves(wildcards.device, wildcards.part),
        missing=lambda wildcards: open_marker(
            sweep.missing_of_part(wildcards.device, wildcards.part)
        ),
    output:
        touch(sweep.pattern("part")),
    wildcard_constraints:
        device=sweep.any_device(),
        part="[0-9]+",
    localrule: True


rule table:
    input:
        lambda wildcards: sweep.table_inputs(wildcards.device),
        missing=lambda wildcards: open_marker(sweep.missing_of_table(wildcards.device)),
    output:
        sweep.pattern("table"),
    log:
        sweep.pattern("table_log"),
    wildcard_constraints:
        device=sweep.any_device(),
    localrule: True
    run:
        sweep.make_table(wildcards.device, output[0])


rule report:
    input:
        sweep.tables,
        missing=lambda wildcards: open_marker(sweep.missing_of_report()),
    output:
        report(sweep.html, category="Sidewinder"),
        **sweep.products,
    log:
        sweep.report_log,
    localrule: True
    run:
        sweep.make_report()
