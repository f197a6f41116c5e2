# Measuring: one job a point, or one a shard of points (`points_per_job`). Each job has one output, which stays where it
# is until the new one takes its place, and no params: the record's path names everything that changes the measurement.
# The shell text is frozen, since Snakemake's default triggers would measure everything again for one more blank.

if sweep.by_shard:

    rule measure:
        input:
            lambda wildcards: open_marker(
                sweep.open_shard(wildcards.device, wildcards.shard)
            ),
        output:
            update(sweep.pattern("shard")),
        log:
            sweep.pattern("shard_log"),
        wildcard_constraints:
            device=sweep.any_device(),
            shard="[0-9a-f]+",
        resources:
            device=lambda wildcards: wildcards.device,
        shell:
            "sidewinder measure {output:q} > {log:q} 2>&1"

else:

    rule measure:
        input:
            lambda wildcards: open_marker(
                sweep.open_record(wildcards.device, wildcards.run_id)
            ),
        output:
            update(sweep.pattern("record")),
        log:
            sweep.pattern("log"),
        wildcard_constraints:
            device=sweep.any_device(),
            run_id="[a-z0-9-]+",
        resources:
            device=lambda wildcards: wildcards.device,
        shell:
            "sidewinder measure {output:q} > {log:q} 2>&1"
