"""A lab becomes points: axes multiply, models and devices fill in, exclusions and tables shape the rest."""

from __future__ import annotations

import pathlib

import pytest

from config.helpers_config import FakeWorkload, Folder, values
from sidewinder import config, ids
from sidewinder.model import Plan, Point

pytestmark = pytest.mark.usefixtures("fake")
BASE = "devices: {a: {}, b: {host: b.lan}}\nmodels: {m: m.gguf, n: {path: n.gguf, quantization: q4, tags: big}}\n"


def block(folder: Folder, text: str, more: str = "") -> Plan:
    return folder.load(f"{BASE}defaults: {{backend: fake}}\nmatrix: [{{{text}}}]\n{more}")


def test_every_axis_multiplies(folder: Folder) -> None:
    plan = block(
        folder,
        "devices: [a, b], models: [m, n], modes: [throughput, latency], threads: [1, 2], prompt_tokens: [8, 16],"
        " output_tokens: [1, 2], context_tokens: [0, 64], batch_sizes: [1, 2], governors: [performance, powersave],"
        " freqs_khz: [1000, 2000], kv_quantizations: [f16, q8_0], parameters: {x: [1, 2], n-gpu: [a, b]}",
    )
    assert len(plan.points) == 2**13
    assert (
        len({ids.digest(ids.identity(point, plan.lab.devices[point.device])) for point in plan.points.values()})
        == 2**13
    )


def test_devices_vary_slowest_then_models(folder: Folder) -> None:
    plan = block(folder, "threads: [1, 2], models: [m, n], devices: [a, b]")
    assert values(plan, "device", "model", "threads")[:5] == [
        ("a", "m", 1),
        ("a", "m", 2),
        ("a", "n", 1),
        ("a", "n", 2),
        ("b", "m", 1),
    ]


def test_null_in_an_axis_is_not_set(folder: Folder) -> None:
    assert values(block(folder, "device: a, threads: [null, 4]"), "threads") == [None, 4]
    assert values(block(folder, "device: a, threads: []"), "threads") == [None]


def test_a_block_overrides_the_defaults_key_by_key_and_by_either_name(folder: Folder) -> None:
    plan = folder.load(
        BASE + "defaults: {backend: fake, mode: latency, threads: 8, repetitions: 5}\n"
        "matrix: [{device: a}, {device: a, modes: throughput, repetitions: 1}]"
    )
    assert values(plan, "mode", "threads", "repetitions") == [("latency", 8, 5), ("throughput", 8, 1)]


def test_matrix_may_be_one_mapping_and_the_config_json(folder: Folder) -> None:
    file = folder.write("lab.json", '{"devices": {"a": {}}, "matrix": {"devices": "a", "backend": "fake"}}')
    plan = config.load_files([file])
    assert (plan.lab.experiment, plan.lab.output_dir, len(plan.points)) == ("lab", "runs/lab", 1)


def test_inference_has_defaults_and_a_command_has_none(folder: Folder) -> None:
    text = BASE + "matrix: [{device: a, backend: noop}, {device: a, model: m, backend: llamacpp}]"
    plan = folder.load(text)
    fields = ("prompt_tokens", "output_tokens", "repetitions", "sample_power", "sample_hz")
    assert values(plan, *fields) == [(None, None, None, False, None), (128, 128, 3, False, None)]


def test_power_is_sampled_ten_times_a_second_unless_told(folder: Folder) -> None:
    assert values(block(folder, "device: a, sample_power: true"), "sample_hz") == [10.0]
    assert values(block(folder, "device: a, sample_power: true, sample_hz: 1e1"), "sample_hz") == [10]
    assert values(block(folder, "device: a, sample_hz: 2"), "sample_power", "sample_hz") == [(False, 2)]


def test_a_model_has_a_path_for_all_or_for_each(folder: Folder) -> None:
    plan = folder.load(
        "devices: {a: {}, b: {}, c: {}}\nmodels: {m: {path: p, paths: {b: q}}, s: {paths: {a: r}, stage: t}}\n"
        "matrix: {devices: [a, b, c], models: [m, s], backend: fake}"
    )
    assert values(plan, "model_path") == ["p", "r", "q", "t", "p", "t"]


def test_a_model_gives_quantisation_digest_tags_and_shape(folder: Folder) -> None:
    digest = "AB" * 32
    plan = folder.load(
        f"devices: {{a: {{}}}}\nmodels: {{m: {{path: p, sha256: {digest}, quantization: q4_1, tags: [x, y],"
        " batch_size: 4, input_shape: [1, 3]}}\nmatrix: {devices: a, models: m, tags: [z],"
        " extra: {batch_size: 8}, backend: llamacpp}"
    )
    (point,) = plan.points.values()
    assert (point.model_sha256, point.quantization, point.tags) == (digest.lower(), "q4_1", ("z", "x", "y"))
    assert point.extra == {"batch_size": 8, "input_shape": [1, 3]}


def test_the_extra_of_one_model_does_not_leak_into_the_next(folder: Folder) -> None:
    plan = folder.load(
        "devices: {a: {}}\nmodels: {m: {path: p, input_shape: [1]}, n: {path: q, input_shape: [2]}}\n"
        "matrix: {devices: a, models: [m, n], extra: {timeout_s: 9}, backend: llamacpp}"
    )
    assert [point.extra["input_shape"] for point in plan.points.values()] == [[1], [2]]


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        ("{}", "local"),
        ("null", "local"),
        ("{host: h}", "ssh"),
        ("{image: i}", "kubernetes"),
        ("{pod: p, host: h}", None),
        ("{pod: p}", "kubernetes"),
        ("{kind: k8s, image: i}", "kubernetes"),
        ("{kind: local}", "local"),
    ],
)
def test_the_kind_is_inferred(folder: Folder, section: str, kind: str | None) -> None:
    text = f"devices: {{d: {section}}}\nmatrix: {{devices: d, backend: fake}}"
    if kind is None:
        assert "belongs to kind ssh" in str(folder.problem(text))
    else:
        assert folder.load(text).lab.devices["d"].kind == kind


def test_a_device_takes_the_breaker_of_the_policy_unless_it_has_its_own(folder: Folder) -> None:
    plan = folder.load(
        "devices: {a: {}, b: {recovery_after_s: 10, give_up_after_s: never, max_transport_failures: 1}}\n"
        "policy: {breaker: {recovery_after_s: 60, max_transport_failures: 5}}\nmatrix: {devices: a, backend: fake}"
    )
    a, b = plan.lab.devices.values()
    assert (a.recovery_after_s, a.give_up_after_s, a.max_transport_failures) == (60, 120, 5)
    assert (b.recovery_after_s, b.give_up_after_s, b.max_transport_failures) == (10, None, 1)


def test_devices_of_one_host_have_own_locks_and_a_warning_without_a_group(folder: Folder) -> None:
    hosts = "devices: {x: {host: h%s}, y: {host: h%s}, z: {host: g}}\nmatrix: {devices: x, backend: fake}"
    plan = folder.load(hosts % ("", ""))
    assert [device.lock for device in plan.lab.devices.values()] == ["slot-x", "slot-y", "slot"]
    assert "measured at the same time" in plan.warnings[0]
    assert not folder.load(hosts % (", resource_group: g", ", resource_group: g")).warnings


def test_exclude_leaves_out_every_combination_that_matches(folder: Folder) -> None:
    plan = block(
        folder,
        "devices: [a, b], threads: [1, 2, 4], parameters: {x: [1, true]},"
        " exclude: [{devices: b, threads: [2, 4]}, {device: a, x: true}]",
    )
    found = [(point.device, point.threads, point.parameters["x"]) for point in plan.points.values()]
    assert found == [("a", 1, 1), ("a", 2, 1), ("a", 4, 1), ("b", 1, 1), ("b", 1, True)]


def test_an_exclusion_that_hits_nothing_is_a_warning(folder: Folder) -> None:
    plan = block(folder, "device: a, threads: [1, 2], exclude: [{threads: 3}]")
    assert plan.warnings == ("matrix[0]: exclusion 0 leaves nothing out",)


def test_a_table_has_one_point_a_row(folder: Folder) -> None:
    folder.write(
        "points.tsv",
        "device\tthreads\trepetitions\tflash\tseed\tnote\nb\t2\t3\tTrue\t7\t 1e-3 \n\na\t1\t\tfalse\t\tx, y\n",
    )
    plan = folder.load(BASE + "matrix: {from: points.tsv, backend: fake}")
    assert values(plan, "device", "threads", "repetitions") == [("b", 2, 3), ("a", 1, None)]
    assert values(plan, "parameters") == [{"flash": True, "seed": 7, "note": 0.001}, {"flash": False, "note": "x, y"}]


def test_a_table_multiplies_with_the_axes_beside_it(folder: Folder) -> None:
    folder.write("t.csv", "threads,x\n1,a\n2,b\n")
    plan = folder.load(BASE + "matrix: {from: t.csv, backend: fake, devices: [a, b], exclude: [{device: b, x: b}]}")
    assert values(plan, "threads", "device") == [(1, "a"), (1, "b"), (2, "a")]


@pytest.mark.parametrize(
    ("table", "line", "words"),
    [
        ("device,threads\na,1\na,x\n", 3, "column 'threads': must be a whole number, this is text"),
        ("device,threads\na,1\nz,1\n", 3, "no such device"),
        ("device,x\na\n", 2, "1 cells, the header 2"),
        ("device,devices\na,a\n", 1, "two columns mean the same"),
        ("device,\na,1\n", 1, "every column needs a name"),
        ("device,x\n", 1, "no rows"),
        ("", 1, "the table is empty"),
        ("device,x\na,NaN\n", 2, "column 'x': NaN and infinities"),
        ('device,x\na,"b\n', 2, "the table is broken"),
        ("x\n1\n", 2, "needs `devices`"),
    ],
)
def test_a_bad_table_is_told_with_its_line(folder: Folder, table: str, line: int, words: str) -> None:
    path = folder.write("t.csv", table)
    error = folder.problem(BASE + "matrix:\n- {from: t.csv, backend: fake}")
    assert words in str(error)
    assert (error.file, error.line) == (path, line)


def test_a_table_that_is_not_there_is_told_where_it_is_named(folder: Folder) -> None:
    error = folder.problem(BASE + "matrix:\n- {from: no.csv, backend: fake}")
    assert (error.line, error.key) == (4, "matrix[0].from")
    assert "No such file" in str(error)


def test_a_key_beside_a_column_of_the_same_name_is_refused(folder: Folder) -> None:
    folder.write("t.csv", "device,threads\na,1\n")
    assert "is a column of" in str(folder.problem(BASE + "matrix: [{from: t.csv, backend: fake, threads: 2}]"))


def test_a_workload_is_asked_about_every_combination_but_not_again_for_each_device(
    folder: Folder, fake: FakeWorkload
) -> None:
    block(folder, "devices: [a, b], threads: [1, 2], parameters: {x: [1, 2]}")
    assert [(point.threads, point.parameters["x"]) for point in fake.asked] == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_points_share_what_is_the_same(folder: Folder) -> None:
    points = list(block(folder, "devices: [a, b], threads: [1, 2], parameters: {x: 1}, extra: {y: 1}").points.values())
    assert len({id(point.parameters) for point in points}) == 1
    assert len({id(point.extra) for point in points}) == 1


def test_policy_stands_in_policy_or_at_the_top(folder: Folder) -> None:
    plan = block(
        folder,
        "device: a",
        "points_per_job: 50\nallow_holes: true\npolicy: {controller_shares_local: true, order: {by: config, seed: 7},"
        " retry: {max_attempts: 2, backoff_s: 0}}",
    )
    policy = plan.lab.policy
    assert (policy.points_per_job, policy.allow_holes, policy.controller_shares_local) == (50, True, True)
    assert (policy.order_by, policy.order_seed, policy.busy_wait_s) == ("config", 7, 600)
    assert (policy.retry.max_attempts, policy.retry.backoff_s, policy.retry.max_backoff_s) == (2, 0, 120)


def test_priority_and_tags_change_no_run_id(folder: Folder) -> None:
    first, second = (block(folder, f"device: a{more}") for more in ("", ", priority: 5, tags: [x]"))
    assert list(first.points) == list(second.points)
    assert values(second, "priority", "tags") == [(5, ("x",))]


def test_a_larger_sweep_keeps_the_run_ids_of_the_smaller(folder: Folder) -> None:
    small = block(folder, "devices: a, threads: [1, 2]")
    large = block(folder, "devices: [a, b], threads: [4, 2, 1], prompt_tokens: [null, 64], parameters: {x: [null, 1]}")
    assert set(small.points) < set(large.points)


def test_the_default_mode_of_the_lab_does_not_bind_a_block_of_another_backend(folder: Folder) -> None:
    text = BASE + "defaults: {backend: noop, mode: noop}\nmatrix: [{device: a, backend: fake}, {device: a}]"
    assert values(folder.load(text), "backend", "mode") == [("fake", "throughput"), ("noop", "noop")]


def test_several_files_merge_as_in_snakemake(folder: Folder) -> None:
    plan = folder.load(
        BASE + "defaults: {backend: fake, threads: [1, 2]}\nmatrix: [{device: a}, {device: b}]",
        "defaults: {threads: [8]}\nmatrix: [{device: b}]",
        overrides={"experiment": "over"},
    )
    assert values(plan, "experiment", "device", "threads") == [("over", "b", 8)]


def test_select_narrows_and_keeps_run_ids(folder: Folder) -> None:
    plan = block(folder, "devices: [a, b], models: [m, n], modes: [throughput, latency]")
    narrow = config.select(plan, device="a", model=["m", "n"], mode="latency", limit=1)
    assert narrow.points is plan.points
    assert [plan.points[run_id].model for run_id in narrow.selected or ()] == ["m"]
    assert config.select(plan) is plan
    again = config.select(config.select(plan, device="a"), mode="latency")
    assert {(plan.points[run_id].device, plan.points[run_id].mode) for run_id in again.selected or ()} == {
        ("a", "latency")
    }


def test_select_comes_from_the_command_line_too(folder: Folder) -> None:
    text = BASE + "matrix: {devices: [a, b], backend: fake, threads: [1, 2]}"
    plan = folder.load(text, overrides={"device": "b", "limit": 1})
    assert [plan.points[run_id].device for run_id in plan.selected or ()] == ["b"]


def test_select_names_what_it_does_not_know(folder: Folder) -> None:
    plan = block(folder, "devices: [a], models: [m]")
    for asked, words in (({"device": "c"}, "'c'"), ({"device": "b"}, "no point"), ({"limit": 0}, "1 or more")):
        with pytest.raises(config.loader.ConfigError, match=words):
            config.select(plan, **asked)


def test_the_default_lab_is_twelve_points_of_this_machine() -> None:
    plan = config.load_files([str(pathlib.Path(__file__).parents[2] / "config/lab.yaml")])
    assert (plan.lab.experiment, plan.lab.output_dir, len(plan.points)) == ("first-sweep", "runs/first-sweep", 12)
    assert {(point.device, point.backend, point.repetitions) for point in plan.points.values()} == {
        ("local", "llama", 3)
    }


@pytest.mark.parametrize(
    "path", sorted((pathlib.Path(__file__).parents[2] / "config/examples").glob("*.yaml")), ids=str
)
def test_every_example_loads(path: pathlib.Path) -> None:
    plan = config.load_files([str(path)], environ={"HF_TOKEN": "x"})
    assert plan.points
    assert not plan.warnings


def test_a_point_is_rebuilt_field_by_field() -> None:
    """`ids.with_run_id` relies on the order of the fields of Point."""
    from sidewinder.model import Device

    point = Point("", "e", "d", "noop", "noop", threads=3, tags=("x",), failover_from="c")
    named = ids.with_run_id(point, Device("d", "local"))
    assert named.run_id.startswith("d-noop-noop-t3-")
    assert (named.threads, named.tags, named.failover_from) == (3, ("x",), "c")
