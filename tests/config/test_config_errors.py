"""Every mistake is found before anything runs, by one message that names file, line, key, value and rule."""

from __future__ import annotations

import pytest

from config.helpers_config import Folder
from sidewinder.errors import ConfigErrors

GOOD = """\
devices: {local: {}, pi5: {host: pi5.lan}}
models:
  m: {paths: {local: m.gguf}}
"""
NOOP = "defaults: {backend: noop}\n"

# (id, config, key of the message, line, words of the message)
CASES = [
    # M-20, one each
    ("no devices", "matrix: [{devices: local}]", "devices", 1, "at least one device"),
    ("devices empty", "devices: {}\nmatrix: [{devices: local}]", "devices", 1, "at least one device"),
    ("no matrix", "devices: {local: {}}", "matrix", 1, "nothing to run"),
    ("matrix empty", "devices: {local: {}}\nmatrix: []", "matrix", 2, "nothing to run"),
    ("block no mapping", GOOD + "matrix:\n - 3", "matrix[0]", 5, "must be a mapping"),
    ("no device", GOOD + NOOP + "matrix:\n - threads: 2", "matrix[0]", 6, "needs `devices`"),
    ("device null", GOOD + NOOP + "matrix:\n - devices: []", "matrix[0].devices", 6, "needs `devices`"),
    ("unknown device", GOOD + NOOP + "matrix:\n - devices:\n   - local\n   - pi6", "matrix[0].devices[1]", 8, "'pi5'"),
    ("unknown model", GOOD + NOOP + "matrix: [{devices: local, models: n}]", "matrix[0].models", 5, "no such model"),
    ("no path", GOOD + NOOP + "matrix: [{devices: pi5, models: m}]", "models.m", 3, "no path for device 'pi5'"),
    ("no points", GOOD + NOOP + "matrix: [{devices: local, exclude: [{device: local}]}]", "matrix", 5, "no points"),
    (
        "same run",
        GOOD + NOOP + "matrix:\n - devices: local\n - devices: local",
        "matrix[1]",
        7,
        "2 points are the same",
    ),
    (
        "same value",
        GOOD + NOOP + "matrix: [{devices: local, threads: [1, 2, 1]}]",
        "matrix[0].threads",
        5,
        "1 (2 times)",
    ),
    # devices
    ("unknown kind", "devices:\n  a: {kind: cloud}\nmatrix: [{devices: a}]", "devices.a.kind", 2, "kubernetes"),
    ("ssh no host", "devices:\n  a: {kind: ssh}\nmatrix: [{devices: a}]", "devices.a", 2, "'host' is required"),
    ("pod no image", "devices:\n  a: {kind: k8s}\nmatrix: [{devices: a}]", "devices.a", 2, "needs an `image`"),
    (
        "typo",
        "devices:\n  a:\n    recovery_after: 3\nmatrix: [{devices: a}]",
        "devices.a.recovery_after",
        3,
        "'recovery_after_s'",
    ),
    (
        "key of another kind",
        "devices:\n  a: {cpu: 2}\nmatrix: [{devices: a}]",
        "devices.a.cpu",
        2,
        "belongs to kind kubernetes",
    ),
    (
        "bad number",
        "devices:\n  a: {max_concurrency: 0}\nmatrix: [{devices: a}]",
        "devices.a.max_concurrency",
        2,
        "1 or more",
    ),
    (
        "yes is no text",
        "devices:\n  a: {python: yes}\nmatrix: [{devices: a}]",
        "devices.a.python",
        2,
        "must be text, this is a boolean",
    ),
    ("name is a number", "devices:\n  7: {}\nmatrix: [{devices: 7}]", "devices", 1, "write '7' in quotes"),
    ("name with a slash", "devices:\n  a/b: {}\nmatrix: [{devices: a/b}]", "devices.a/b", 2, "A-Z a-z 0-9"),
    (
        "engine no mapping",
        "devices:\n  a: {llama: 3}\nmatrix: [{devices: a}]",
        "devices.a.llama",
        2,
        "settings of a backend",
    ),
    (
        "stand-in",
        "devices:\n  a: {failover_to: b}\nmatrix: [{devices: a}]",
        "devices.a.failover_to",
        2,
        "no such device",
    ),
    (
        "its own stand-in",
        "devices:\n  a: {failover_to: a}\nmatrix: [{devices: a}]",
        "devices.a.failover_to",
        2,
        "cannot stand in for itself",
    ),
    (
        "stand-ins in a circle",
        "devices:\n  c: {failover_to: a}\n  a: {failover_to: b}\n  b: {failover_to: a}\nmatrix: [{devices: a}]",
        "devices.a.failover_to",
        3,
        "a -> b -> a",
    ),
    (
        "stand-in without the model",
        "devices:\n  a: {failover_to: b}\n  b: {}\nmodels: {m: {paths: {a: /m}}}\nmatrix: [{devices: a, models: m}]",
        "devices.a.failover_to",
        2,
        "model 'm' has no path there",
    ),
    (
        "two limits",
        "devices:\n  a: {image: i, cpu: 1, cpu_limit: 2}\nmatrix: [{devices: a}]",
        "devices.a.cpu_limit",
        2,
        "same setting",
    ),
    ("quantity", "devices:\n  a: {image: i, memory: 2 GB}\nmatrix: [{devices: a}]", "devices.a.memory", 2, "4Gi"),
    ("env a fraction", "devices:\n  a: {env: {X: 1.5}}\nmatrix: [{devices: a}]", "devices.a.env.X", 2, "in quotes"),
    # models
    ("digest", GOOD + "  n: {path: p, sha256: 12ab}\nmatrix: [{devices: local}]", "models.n.sha256", 4, "64 hex"),
    ("model is a list", GOOD + "  n: [p]\nmatrix: [{devices: local}]", "models.n", 4, "must be a path"),
    ("model typo", GOOD + "  n: {paht: p}\nmatrix: [{devices: local}]", "models.n.paht", 4, "'path'"),
    # blocks
    ("axis typo", GOOD + NOOP + "matrix: [{devices: local, thread: 1}]", "matrix[0].thread", 5, "'threads'"),
    (
        "axis twice",
        GOOD + NOOP + "matrix: [{devices: local, mode: a, modes: b}]",
        "matrix[0].modes",
        5,
        "the same as 'mode'",
    ),
    (
        "text for a number",
        GOOD + NOOP + "matrix: [{devices: local, threads: [1, '4']}]",
        "matrix[0].threads[1]",
        5,
        "this is text",
    ),
    (
        "fraction",
        GOOD + NOOP + "matrix: [{devices: local, threads: 1.5}]",
        "matrix[0].threads",
        5,
        "this is a fraction",
    ),
    ("boolean", GOOD + NOOP + "matrix: [{devices: local, threads: yes}]", "matrix[0].threads", 5, "this is a boolean"),
    (
        "negative",
        GOOD + NOOP + "matrix: [{devices: local, output_tokens: -1}]",
        "matrix[0].output_tokens",
        5,
        "0 or more",
    ),
    (
        "nan",
        GOOD + NOOP + "matrix:\n - devices: local\n   parameters: {x: [1, .nan]}",
        "matrix[0].parameters.x[1]",
        7,
        "NaN",
    ),
    (
        "date",
        GOOD + NOOP + "matrix: [{devices: local, parameters: {x: 2024-01-31}}]",
        "matrix[0].parameters.x",
        5,
        "read this as a date",
    ),
    (
        "structure",
        GOOD + NOOP + "matrix: [{devices: local, parameters: {x: {y: 1}}}]",
        "matrix[0].parameters.x",
        5,
        "`extra`",
    ),
    (
        "name of a parameter",
        GOOD + NOOP + "matrix: [{devices: local, parameters: {'a b': 1}}]",
        "matrix[0].parameters.a b",
        5,
        "starts with a letter",
    ),
    (
        "an axis as parameter",
        GOOD + NOOP + "matrix: [{devices: local, parameters: {threads: 1}}]",
        "matrix[0].parameters.threads",
        5,
        "is an axis",
    ),
    (
        "prepare",
        GOOD + NOOP + "matrix: [{devices: local, prepare: {settle: 1}}]",
        "matrix[0].prepare.settle",
        5,
        "'settle_s'",
    ),
    (
        "defaults",
        GOOD + "defaults: {backend: noop, warmup: -1}\nmatrix: [{devices: local}]",
        "defaults.warmup",
        4,
        "0 or more",
    ),
    (
        "exclude typo",
        GOOD + NOOP + "matrix: [{devices: local, exclude: [{thread: 1}]}]",
        "matrix[0].exclude[0].thread",
        5,
        "'threads'",
    ),
    (
        "exclude all",
        GOOD + NOOP + "matrix: [{devices: local, exclude: [{}]}]",
        "matrix[0].exclude[0]",
        5,
        "leave everything out",
    ),
    (
        "command without backend",
        GOOD + NOOP + "matrix: [{devices: local, command: ['true']}]",
        "matrix[0].command",
        5,
        "`backend: command`",
    ),
    (
        "command as text",
        GOOD + "matrix: [{devices: local, backend: command, command: ls -l}]",
        "matrix[0].command",
        4,
        "list of arguments",
    ),
    (
        "argument no text",
        GOOD + "matrix: [{devices: local, backend: command, command: [sleep, 010]}]",
        "matrix[0].command",
        4,
        "in quotes",
    ),
    (
        "placeholder",
        GOOD + "matrix: [{devices: local, backend: command, command: [a, '{thread}'], metrics: json}]",
        "matrix[0].command[1]",
        4,
        "'thread'",
    ),
    (
        "pattern",
        GOOD + "matrix: [{devices: local, backend: command, command: [a], metrics: {x: '(' }}]",
        "matrix[0].metrics",
        4,
        "no regular expression",
    ),
    ("backend", GOOD + "matrix: [{devices: local, backend: lama}]", "matrix[0].backend", 4, "did you mean 'llama'?"),
    (
        "mlsys' own backend",
        GOOD + "matrix: [{devices: local, backend: onnxruntime}]",
        "matrix[0].backend",
        4,
        "command, llama",
    ),
    (
        "mode",
        GOOD + NOOP + "matrix: [{devices: local, modes: [latency, laten]}]",
        "matrix[0].modes",
        5,
        "latency, noop",
    ),
    # the rest of the document
    ("top typo", GOOD + "devcies: {}\nmatrix: [{devices: local, backend: noop}]", "devcies", 4, "'devices'"),
    (
        "policy typo",
        GOOD + "policy: {retry: {max_atempts: 3}}\nmatrix: [{devices: local, backend: noop}]",
        "policy.retry.max_atempts",
        4,
        "'max_attempts'",
    ),
    (
        "order",
        GOOD + "policy: {order: {by: random}}\nmatrix: [{devices: local, backend: noop}]",
        "policy.order.by",
        4,
        "must be 'interleaved' or 'config'",
    ),
    (
        "text for seconds",
        GOOD + "policy: {busy_wait_s: '600'}\nmatrix: [{devices: local, backend: noop}]",
        "policy.busy_wait_s",
        4,
        "must be a number, this is text",
    ),
    (
        "jitter",
        GOOD + "policy: {retry: {jitter: 25}}\nmatrix: [{devices: local, backend: noop}]",
        "policy.retry.jitter",
        4,
        "1 or less",
    ),
    (
        "gate typo",
        "devices:\n  a:\n    idle_gate: {max_busy: 0.1}\nmatrix: [{devices: a, backend: noop}]",
        "devices.a.idle_gate.max_busy",
        3,
        "'max_busy_share'",
    ),
    (
        "gate in percent",
        "devices:\n  a:\n    idle_gate: {max_busy_share: 10}\nmatrix: [{devices: a, backend: noop}]",
        "devices.a.idle_gate.max_busy_share",
        3,
        "1 or less",
    ),
    (
        "gate below a tick",
        "devices:\n  a:\n    idle_gate: {window_s: 0.01}\nmatrix: [{devices: a, backend: noop}]",
        "devices.a.idle_gate.window_s",
        3,
        "0.1 or more",
    ),
    (
        "gate and neighbours",
        "devices:\n  a:\n    idle_gate: {}\n    max_concurrency: 2\nmatrix: [{devices: a, backend: noop}]",
        "devices.a.idle_gate",
        3,
        "max_concurrency of 1",
    ),
    (
        "given twice",
        GOOD + "allow_holes: true\npolicy: {allow_holes: false}\nmatrix: [{devices: local, backend: noop}]",
        "allow_holes",
        4,
        "with another value",
    ),
    ("experiment", GOOD + "experiment: a/b\nmatrix: [{devices: local, backend: noop}]", "experiment", 4, "no slash"),
    ("key twice", "devices:\n  a: {}\n  a: {host: h}\nmatrix: [{devices: a, backend: noop}]", "devices.a", 3, "line 2"),
    (
        "accept",
        GOOD + "accept: {local-noop-123: too old}\nmatrix: [{devices: local, backend: noop}]",
        "accept.local-noop-123",
        4,
        "run id",
    ),
]


@pytest.mark.parametrize(
    ("text", "key", "line", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_mistake_is_told_with_key_line_and_rule(
    folder: Folder, text: str, key: str, line: int | None, words: str
) -> None:
    errors = folder.problems(text)
    error = next((one for one in errors if one.key == key), None)
    assert error is not None, f"{key} is not among {[one.key for one in errors]}"
    assert error.line == line
    assert words in str(error)
    if line is not None:
        assert str(error).startswith(f"{folder.path}/lab.yaml:{line}: {key}: ")


def test_the_value_is_told(folder: Folder) -> None:
    assert "(got 'four')" in str(folder.problem(GOOD + NOOP + "matrix: [{devices: local, threads: four}]"))


def test_braces_of_a_value_are_shown_as_they_are(folder: Folder) -> None:
    error = folder.problem(GOOD + NOOP + "matrix: [{devices: local, parameters: {x: ['{a}', '{a}']}}]")
    assert "'{a}' (2 times)" in str(error)


def test_several_problems_come_together(folder: Folder) -> None:
    text = "devices: {a: {hots: h}}\npolicy: {busy_wait_s: -1}\nmatrix: [{devices: a, threads: 0}, 7]"
    keys = [error.key for error in folder.problems(text)]
    assert keys == ["policy.busy_wait_s", "devices.a.hots", "matrix[0].threads", "matrix[1]"]


def test_a_mistake_in_the_defaults_is_told_once(folder: Folder) -> None:
    error = folder.problem(
        "devices: {a: {}}\ndefaults: {threads: 0, backend: noop}\nmatrix: [{devices: a}, {devices: a, warmup: 1}]"
    )
    assert error.key == "defaults.threads"


def test_many_problems_are_cut(folder: Folder) -> None:
    keys = "".join(f"x{number}: 1\n" for number in range(80))
    errors = folder.problems(f"{keys}devices: {{a: {{}}}}\nmatrix: [{{devices: a, backend: noop}}]")
    assert len(errors) == 51
    assert "30 more problems" in str(errors[-1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1, 2", "no valid YAML"),
        ("a: b: c", "no valid YAML"),
        ("- 1", "must be a mapping"),
        ("", "must be a mapping"),
        ("a: 2024-13-45", "no valid YAML"),
        ("a: !!python/object:os.system {}", "no valid YAML"),
        ("a: " + "[" * 3000, "no valid YAML"),
        ("a: " + "9" * 5000, "no valid YAML"),
        ('a: "\\ud800"', ""),
        ("devices: &a {x: *a}\nmatrix: *a", "contains itself"),
        ("? [1, 2]\n: 3", "no valid YAML"),
        ("devices: 3\nmatrix: 3\nmodels: 3\ndefaults: 3\npolicy: 3\naccept: 3", "must be a mapping"),
    ],
)
def test_no_text_leads_to_a_traceback(folder: Folder, text: str, words: str) -> None:
    assert words in "\n".join(map(str, folder.problems(text)))


def test_a_syntax_error_has_its_line(folder: Folder) -> None:
    error = folder.problem("devices: {a: {}}\nmatrix: [1, 2")
    assert (error.file, error.line) == (f"{folder.path}/lab.yaml", 3)


def test_a_missing_file_is_told(folder: Folder) -> None:
    from sidewinder import config
    from sidewinder.errors import ConfigError

    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        config.load_files([str(folder.path / "none.yaml")])


def test_a_file_that_is_not_utf8_is_told(folder: Folder) -> None:
    from sidewinder import config
    from sidewinder.errors import ConfigError

    (folder.path / "latin.yaml").write_bytes(b"experiment: Ger\xe4t\n")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        config.load_files([str(folder.path / "latin.yaml")])


def test_a_secret_that_is_not_set_is_told_by_name(folder: Folder) -> None:
    text = "devices: {a: {secrets: [HF_TOKEN]}, b: {secrets: OTHER}}\nmatrix: [{devices: a, backend: noop}]"
    error = folder.problem(text, environ={})
    assert error.key == "devices.a.secrets"
    assert "HF_TOKEN is not set" in str(error)
    plan = folder.load(text, environ={"HF_TOKEN": "hf_very_secret"})
    assert plan.lab.devices["a"].secrets == ("HF_TOKEN",)
    assert "hf_very_secret" not in repr(plan)


def test_accept_names_the_nearest_run_id(folder: Folder) -> None:
    base = "devices: {a: {}}\nmatrix: [{devices: a, backend: noop}]\n"
    (run_id,) = folder.load(base).points
    assert f"did you mean '{run_id}'?" in str(folder.problem(base + f"accept: {{{run_id[:-1]}0g: known}}"))
    assert folder.load(base + f"accept: {{{run_id}: known}}").lab.accept == {run_id: "known"}
    assert "must be text" in str(folder.problem(base + f"accept: {{{run_id}: 3}}"))


def test_a_value_of_the_command_line_has_no_wrong_line(folder: Folder) -> None:
    text = "devices: {a: {}}\nmatrix: [{devices: a, backend: noop}]\nexperiment: fine"
    error = folder.problem(text, overrides={"experiment": "a/b"})
    assert (error.key, error.file, error.line) == ("experiment", None, None)


def test_the_line_is_that_of_the_file_that_won(folder: Folder) -> None:
    base = "policy: {busy_wait_s: 1, points_per_job: -1}\ndevices: {a: {}}\nmatrix: [{devices: a, backend: noop}]"
    errors = folder.problems(base, "\n\npolicy: {busy_wait_s: -1}")
    places = {error.key: (error.file, error.line) for error in errors}
    assert places == {
        "policy.busy_wait_s": (f"{folder.path}/lab1.yaml", 3),
        "policy.points_per_job": (f"{folder.path}/lab.yaml", 1),
    }


def test_what_a_workload_objects_to_is_told_once_at_its_key(folder: Folder, fake: object) -> None:
    text = "devices: {a: {}, b: {}}\nmatrix:\n- devices: [a, b]\n  backend: fake\n  threads: [1, 2]\n"
    text += "  parameters:\n    bad: 1"
    error = folder.problem(text)
    assert (error.key, error.line) == ("matrix[0].parameters.bad", 7)
    assert "this can never work (got 1)" in str(error)


def test_errors_are_one_message_each(folder: Folder) -> None:
    with pytest.raises(ConfigErrors) as caught:
        folder.load("devices: {a: {x: 1}}\nmatrix: 3")
    assert str(caught.value).count("lab.yaml:") == 2
