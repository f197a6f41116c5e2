"""The commands of `sidewinder` on a lab: what they say, as text and as JSON, and their exit codes."""

from __future__ import annotations

import json
import pathlib

import jsonschema
import pytest
import yaml


def measure(lab, run_id: str, *more: str):
    return lab.say("measure", f"runs/cli/records/local/{run_id}.json", *more)


# -- plan


def test_plan_names_every_point_and_what_became_of_it(lab):
    measure(lab, lab.good)
    said = lab.say("plan")
    assert said.code == 0
    assert "local  2 planned, 1 done, 0 failed, 1 never measured" in said.out
    rows = {line.split()[-1]: line.split() for line in said.out.splitlines() if line.startswith("local   ")}
    assert rows[lab.good][-2] == "ok"
    assert rows[lab.bad][-2] == "missing"


def test_plan_as_json_and_only_what_is_open(lab):
    measure(lab, lab.good)
    said = lab.say("plan", "--open", "--json").json
    assert [(point["run_id"], point["status"]) for point in said["points"]] == [(lab.bad, "missing")]
    assert said["devices"]["local"] == {"planned": 2, "done": 1, "failed": 0, "never_measured": 1, "accepted": 0}


def test_plan_narrows_without_changing_a_run_id(lab):
    assert [point["run_id"] for point in lab.say("plan", "--limit", "1", "--json").json["points"]] == [lab.good]


def test_a_config_that_is_not_there_is_one_message(lab):
    said = lab.say("plan", "--configfile", "nowhere.yaml")
    assert said.code == 2
    assert "nowhere.yaml" in said.err
    assert "Traceback" not in said.err


def test_a_mistake_in_a_config_is_one_message(lab):
    pathlib.Path("config/lab.yaml").write_text("devices: {local: {}}\nmatrx: []\n")
    said = lab.say("plan")
    assert said.code == 2
    assert "matrx" in said.err
    assert "Traceback" not in said.err


# -- explain


def test_explain_a_point_that_was_never_started(lab):
    said = lab.say("explain", lab.bad)
    assert said.code == 1
    assert "not started" in said.out
    assert f"only this point: sidewinder measure runs/cli/records/local/{lab.bad}.json" in said.out


def test_explain_a_failed_point_shows_class_reason_log_and_ways_out(lab):
    measure(lab, lab.bad)
    said = lab.say("explain", lab.bad[-12:])  # a part of the id is enough
    assert said.code == 1
    assert "why (measurement)" in said.out
    assert "| the disk is sad" in said.out
    assert f'accept: {{{lab.bad}: "your reason"}}' in said.out


def test_explain_an_accepted_failure_is_done(lab):
    measure(lab, lab.bad)
    path = pathlib.Path("config/lab.yaml")
    path.write_text(path.read_text() + f"accept: {{{lab.bad}: it is known to fail}}\n")
    said = lab.say("explain", lab.bad)
    assert said.code == 0
    assert "accepted: it is known to fail" in said.out
    assert "what would unblock it" not in said.out


def test_explain_a_torn_record(lab):
    measure(lab, lab.good)
    record = pathlib.Path(f"runs/cli/records/local/{lab.good}.json")
    record.write_bytes(record.read_bytes()[:40])
    said = lab.say("explain", str(record), "--json")
    assert said.code == 1
    assert said.json["status"] == "broken"


def test_explain_a_measured_point(lab):
    measure(lab, lab.good)
    said = lab.say("explain", lab.good)
    assert said.code == 0
    assert "measured at 20" in said.out


@pytest.mark.parametrize(
    ("text", "message"), [("nothing-like-it", "no planned point"), ("local-", "2 planned points fit")]
)
def test_explain_refuses_what_names_no_point_or_several(lab, text, message):
    said = lab.say("explain", text)
    assert said.code == 2
    assert message in said.err


# -- report


def test_report_builds_from_what_lies_there(lab):
    measure(lab, lab.good)
    measure(lab, lab.bad)
    said = lab.say("report", "runs/cli", "--json")
    assert said.code == 1  # one point is open
    assert (said.json["done"], said.json["failed"]) == (1, 1)
    assert [hole["run_id"] for hole in said.json["holes"]] == [lab.bad]
    assert pathlib.Path(said.json["report"]).read_text().startswith("<!doctype html>")


def test_report_of_a_folder_without_a_plan(lab):
    said = lab.say("report", "runs")
    assert said.code == 2
    assert "there is no plan" in said.err


# -- doctor


def test_doctor_of_a_healthy_lab(lab):
    said = lab.say("doctor", "--json")
    assert said.code == 0, said.out
    verdicts = {(one["where"], one["what"]): one["verdict"] for one in said.json["findings"]}
    assert verdicts["local", "agent"] == "ok"
    assert verdicts["local", "backend command"] == "ok"


def test_doctor_names_the_missing_model_and_the_device_that_cannot_be_reached(lab):
    pathlib.Path("config/lab.yaml").write_text(
        "experiment: sick\n"
        "devices: {local: {}, pi5: {host: pi5.invalid}}\n"
        "models: {m: {path: models/gone.gguf}}\n"
        "matrix: [{backend: llamacpp, devices: [local, pi5], models: [m], threads: [1]}]\n"
    )
    said = lab.say("doctor")
    assert said.code == 1
    assert "fail  local: model m: models/gone.gguf is not there" in said.out
    assert "fail  pi5: not reached:" in said.out
    assert said.out.endswith("until that is mended, points stay open: local, pi5\n")


def test_doctor_refuses_a_device_that_the_lab_has_not(lab):
    assert lab.say("doctor", "--device", "pi6").code == 2


# -- init, schema, unlock, the dispatcher


def test_init_writes_a_lab_that_loads(lab):
    said = lab.say("init", "new lab")
    assert said.code == 0
    text = pathlib.Path("new lab/config/lab.yaml").read_text()
    assert yaml.safe_load(text)["experiment"] == "new-lab"
    plan = lab.say("plan", "--configfile", "new lab/config/lab.yaml", "--json").json
    assert len(plan["points"]) == 2


def test_init_overwrites_nothing_and_writes_nothing(lab):
    said = lab.say("init", ".")
    assert said.code == 2
    assert "config/lab.yaml" in said.err
    assert not pathlib.Path("Snakefile").exists()


def test_init_brings_the_profile_of_the_repository():
    root = pathlib.Path(__file__).parents[2]
    template = root / "workflow/sidewinder/cli/lab_template/profile.yaml.in"
    assert template.read_text() == (root / "profiles/lab/config.v9+.yaml").read_text()


def test_the_schema_accepts_the_default_lab(lab):
    schema = lab.say("schema").json
    jsonschema.Draft202012Validator.check_schema(schema)
    root = pathlib.Path(__file__).parents[2]
    jsonschema.validate(yaml.safe_load((root / "config/lab.yaml").read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"devices": {"local": {}}, "matrx": []}, schema)


def test_unlock_strikes_out_a_controller_of_another_host(lab):
    holder = {
        "host": "elsewhere",
        "boot_id": "x",
        "pid": 1,
        "start": "1",
        "since_utc": "2026-01-01",
        "what": "controller",
    }
    pathlib.Path("runs/cli/controller.lock").write_text(json.dumps(holder).ljust(512))
    said = measure(lab, lab.good)
    assert said.code == 1
    assert "elsewhere" in said.err
    assert "struck out: controller pid 1 on elsewhere" in lab.say("unlock", "runs/cli").out
    assert measure(lab, lab.good).code == 0


def test_without_a_command_the_help_is_shown(lab):
    said = lab.say()
    assert said.code == 2
    assert "explain" in said.out


def test_an_error_on_purpose_is_never_a_traceback(lab, monkeypatch):
    from sidewinder.cli import plan
    from sidewinder.errors import PublishError

    def full(args):
        raise PublishError("the disk is full")

    monkeypatch.setattr(plan, "run", full)
    said = lab.say("plan")
    assert (said.code, said.err) == (1, "sidewinder plan: the disk is full\n")
