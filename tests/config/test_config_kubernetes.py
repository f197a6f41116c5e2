"""What a config says of pods: Kubernetes' own rules, told before anything runs, and what of it is part of a run id."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config.helpers_config import Folder
from sidewinder import ids, quantity
from sidewinder.config.schema import DeviceSection, KubernetesSection
from sidewinder.errors import ConfigErrors
from sidewinder.model import Device

BLOCK = "matrix: {devices: d, backend: fake}"

pytestmark = pytest.mark.usefixtures("fake")


def lab(**section: Any) -> str:
    return yaml.safe_dump({"devices": {"d": {"kind": "kubernetes", "image": "i", **section}}}) + BLOCK


def device(folder: Folder, **section: Any) -> Device:
    return folder.load(lab(**section)).lab.devices["d"]


def run_id(folder: Folder, **section: Any) -> str:
    return next(iter(folder.load(lab(**section)).points))


@pytest.mark.parametrize(
    ("section", "key", "words"),
    [
        ({"cpu": "2 CPUs"}, "cpu", "quantity such as"),
        ({"cpu": "-1"}, "cpu", "quantity such as"),
        ({"cpu": 0}, "cpu", "more than 0"),
        ({"cpu": "0.5m"}, "cpu", "finer than"),
        ({"memory": "500m"}, "memory", "m is a thousandth, mebibytes are Mi"),
        ({"memory": "0.3Ki"}, "memory", "whole number of bytes"),
        ({"cpu": "1", "cpu_request": "1500m"}, "cpu_request", "more than the limit (1)"),
        ({"memory": "1Gi", "memory_request": "1100Mi"}, "memory_request", "more than the limit"),
        ({"resources": {"nvidia.com/gpu": 0.5}}, "resources.nvidia.com/gpu", "whole numbers"),
        ({"resources": {"gpu": 1}}, "resources.gpu", "domain/name"),
        ({"resources": {"cpu": 1}}, "resources.cpu", "a key of its own"),
        ({"namespace": "My_Lab"}, "namespace", "DNS label"),
        ({"pod": "-x"}, "pod", "Kubernetes name"),
        ({"pod": "a" * 254}, "pod", "Kubernetes name"),
        ({"container": "a.b"}, "container", "DNS label"),
        ({"image": "lab/b: 1"}, "image", "image reference"),
        ({"image": "lab/b@sha256:12"}, "image", "image reference"),
        ({"image": "a//b"}, "image", "image reference"),
        ({"node_selector": {"a b": "c"}}, "node_selector.a b", "label key"),
        ({"node_selector": {"ssd": True}}, "node_selector.ssd", "write it in quotes"),
        ({"node_selector": {"x": "no blank"}}, "node_selector.x", "label value"),
        ({"idle_timeout_s": 30}, "idle_timeout_s", "120 or more"),
        ({"idle_timeout_s": "soon"}, "idle_timeout_s", "must be a number"),
        ({"volumes": [{"mount_path": "data", "host_path": "/d"}]}, "volumes[0].mount_path", "absolute"),
        ({"volumes": [{"mount_path": "/d"}]}, "volumes[0]", "given are 0"),
        ({"volumes": [{"mount_path": "/d", "pvc": "p", "host_path": "/d"}]}, "volumes[0]", "given are 2"),
        ({"volumes": [{"mount_path": "/d", "hostpath": "/d"}]}, "volumes[0].hostpath", "'host_path'"),
        ({"volumes": [{"mount_path": "/d", "empty_dir": {"size": 1}}]}, "volumes[0].empty_dir.size", "size_limit"),
        ({"volumes": [{"mount_path": "/d", "pvc": "p", "type": "File"}]}, "volumes[0].type", "for a host_path"),
        ({"volumes": [{"mount_path": "/d", "pvc": "p", "sub_path": "../x"}]}, "volumes[0].sub_path", "relative"),
        (
            {"volumes": [{"mount_path": "/d", "pvc": "p"}, {"mount_path": "/d/", "pvc": "q"}]},
            "volumes",
            "two volumes are mounted at /d",
        ),
        ({"host_mounts": [{"host_path": "/d"}]}, "host_mounts[0]", "'mount_path' is required"),
        ({"tolerations": [{"effect": "Never"}]}, "tolerations[0].effect", "NoSchedule"),
        ({"env_from_secrets": {"TOKEN": "hf"}}, "env_from_secrets.TOKEN", "SECRET/KEY"),
        ({"env_from_secrets": {"A-B": "hf/token"}}, "env_from_secrets.A-B", "environment variable"),
        ({"kubectl": ["ssh", "h", "kubectl"]}, "kubectl", "no kubectl is run"),
        ({"create": False}, "create", "name of the `pod`"),
        ({"create": True, "create_pod": True}, "create_pod", "same setting"),
        ({"node_name": "n", "node_selector": {"kubernetes.io/hostname": "n"}}, "node_name", "give one of them"),
        ({"pod_template": {"kind": "Deployment"}}, "pod_template", "must be a v1 Pod"),
        ({"pod_template": {"spec": {"containers": {}}}}, "pod_template", "spec.containers"),
        ({"pod_template": {"status": {}}}, "pod_template", "no 'status'"),
        ({"pod_template": "no.yaml"}, "pod_template", "cannot be read"),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)
def test_a_mistake_is_told_by_one_message(folder: Folder, section: dict[str, Any], key: str, words: str) -> None:
    problem = folder.problem(lab(**section))
    assert not isinstance(problem, ConfigErrors), str(problem)
    assert problem.key == f"devices.d.{key}"
    assert problem.line is not None
    assert words in str(problem)


def test_a_pod_without_an_image_takes_what_is_there(folder: Folder) -> None:
    plan = folder.load(f"devices: {{d: {{pod: mine, namespace: lab}}}}\n{BLOCK}")
    assert plan.lab.devices["d"].settings == {"pod": "mine", "namespace": "lab"}
    volume = "volumes: [{mount_path: /d, pvc: p}]"
    assert "without `image` none is made" in str(folder.problem(f"devices: {{d: {{pod: mine, {volume}}}}}\n{BLOCK}"))


def test_of_a_pod_that_is_there_may_be_said_what_it_must_be(folder: Folder) -> None:
    plan = folder.load(f"devices: {{d: {{pod: mine, cpu: 2, memory: 1Gi, node_name: n1}}}}\n{BLOCK}")
    assert plan.lab.devices["d"].settings == {"pod": "mine", "cpu": "2", "memory": "1Gi", "node_name": "n1"}


def test_two_devices_never_have_one_pod(folder: Folder) -> None:
    text = "devices: {d: {image: i, pod: p}, e: {image: j, pod: p}}\n" + BLOCK
    assert "has the same pod as 'd'" in str(folder.problem(text))
    folder.load(text.replace("image: j", "image: j, namespace: other"))
    named = "devices: {d: {image: i}, e: {image: i, pod: sidewinder-d}}\n" + BLOCK
    assert "has the same pod as 'd'" in str(folder.problem(named))


def test_a_template_is_a_file_or_a_mapping(folder: Folder) -> None:
    pod = {"metadata": {"annotations": {"a": "b"}}, "spec": {"hostNetwork": True}}
    (folder.path / "pod.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **pod}))
    from_file, inline = device(folder, pod_template="pod.yaml"), device(folder, pod_template=pod)
    assert from_file.settings["pod_template"] == inline.settings["pod_template"] == pod
    assert run_id(folder, pod_template="pod.yaml") == run_id(folder, pod_template=pod) != run_id(folder)
    (folder.path / "pod.yaml").write_text("a: [")
    assert "is no YAML" in str(folder.problem(lab(pod_template="pod.yaml")))
    (folder.path / "pod.yaml").write_text("spec: {}\n---\nspec: {}\n")
    assert "2 documents" in str(folder.problem(lab(pod_template="pod.yaml")))


@pytest.mark.parametrize(
    "section",
    [
        {"cpu": 2},
        {"memory": "1Gi"},
        {"ephemeral_storage": "1Gi"},
        {"cpu_request": "1"},
        {"resources": {"nvidia.com/gpu": 1}},
        {"runtime_class": "kata"},
        {"node_name": "n1"},
        {"node_selector": {"disk": "ssd"}},
        {"affinity": {"nodeAffinity": {}}},
        {"env_from_secrets": {"T": "s/k"}},
        {"volumes": [{"mount_path": "/d", "pvc": "p"}]},
        {"env": {"A": "1"}},
    ],
    ids=lambda section: next(iter(section)),
)
def test_what_the_pod_is_made_of_is_part_of_the_run_id(folder: Folder, section: dict[str, Any]) -> None:
    assert run_id(folder, **section) != run_id(folder)


@pytest.mark.parametrize(
    "section",
    [
        {"namespace": "other", "pod": "p", "container": "c"},
        {"kubeconfig": "~/k", "context": "c"},
        {"tolerations": [{"operator": "Exists"}], "priority_class": "high", "service_account": "lab"},
        {"image_pull_policy": "Always", "image_pull_secrets": ["s"]},
        {"ready_timeout_s": 1, "idle_timeout_s": "never"},
        {"host_mounts": [{"host_path": "/d", "mount_path": "/d"}]},
        {"resources": {}, "volumes": []},
    ],
    ids=lambda section: next(iter(section)),
)
def test_the_way_to_the_pod_is_not(folder: Folder, section: dict[str, Any]) -> None:
    assert run_id(folder, **section) == run_id(folder)


def test_every_key_is_part_of_the_run_id_or_is_not_on_purpose() -> None:
    """A key that comes to the config must be put on one side or the other."""
    made_of = set(ids._PLACEMENT)
    way = {"pod", "namespace", "container", "kubeconfig", "context", "create", "image_pull_policy"}
    way |= {"image_pull_secrets", "ready_timeout_s", "idle_timeout_s", "tolerations", "priority_class"}
    way |= {"service_account", "host_mounts"}
    other_names = {"cpu_limit", "memory_limit", "create_pod", "kubectl"}
    own = set(KubernetesSection.model_fields) - set(DeviceSection.model_fields)
    assert own == made_of | way | other_names
    assert not made_of & way


def test_an_amount_has_one_spelling(folder: Folder) -> None:
    written = device(folder, cpu="2000m", memory="2048Mi", cpu_request=2, memory_request="1.5Gi").settings
    assert written == {"image": "i", "cpu": "2", "memory": "2Gi", "memory_request": "1536Mi"}
    assert run_id(folder, cpu=2, memory="2Gi") == run_id(folder, cpu="2000m", memory="2048Mi", cpu_request="2")


@pytest.mark.parametrize(
    "image", ["a", "lab/b:1", "host:5000/a/b:x", "a@sha256:" + "0" * 64, "h/a_b:v-1@sha256:" + "f" * 64]
)
def test_an_image_that_may_be(folder: Folder, image: str) -> None:
    assert device(folder, image=image).settings["image"] == image


@pytest.mark.parametrize(
    ("text", "amount", "spelling"),
    [
        ("500m", 0.5, "500m"),
        ("0.5", 0.5, "500m"),
        ("2", 2, "2"),
        ("1e3", 1000, "1k"),
        ("1.5Gi", 1.5 * 2**30, "1536Mi"),
        ("128974848", 128974848, "128974848"),
        ("129e6", 129e6, "129M"),
        ("123Mi", 123 * 2**20, "123Mi"),
        ("1024Ki", 2**20, "1Mi"),
        ("1E", 1e18, "1E"),
        ("100u", 1e-4, "100u"),
        (".5", 0.5, "500m"),
        ("2.", 2, "2"),
    ],
)
def test_a_quantity_is_read_as_kubernetes_does(text: str, amount: float, spelling: str) -> None:
    assert float(quantity.parse(text)) == amount
    assert quantity.canonical(text) == spelling


@pytest.mark.parametrize(
    "text", ["", "m", "1 Gi", "1GB", "+1", "-1", "0x1", "1e", "1ki", "1KI", "1.2.3", "1" * 50, "１"]
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        quantity.parse(text)


@given(st.integers(0, 10**12), st.sampled_from(["n", "u", "m", "", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_the_spelling_of_an_amount_is_the_same_amount(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    spelling = quantity.canonical(text)
    assert quantity.parse(spelling) == quantity.parse(text)
    assert quantity.canonical(spelling) == spelling


@pytest.mark.parametrize(
    ("name", "pod"), [("k8s-cpu2", "sidewinder-k8s-cpu2"), ("Pi.5", "sidewinder-pi-5-"), ("a" * 63, "sidewinder-aaa")]
)
def test_a_pod_is_called_like_its_device(name: str, pod: str) -> None:
    made = ids.pod_name(name)
    assert made.startswith(pod)
    assert len(made) <= 63


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True))
def test_every_device_has_a_pod_of_a_legal_name(name: str) -> None:
    made = ids.pod_name(name)
    assert len(made) <= 63
    assert made.strip("abcdefghijklmnopqrstuvwxyz0123456789-") == ""
    assert made[0].isalnum()
    assert made[-1].isalnum()


def test_devices_that_differ_in_signs_only_have_pods_of_their_own() -> None:
    names = ["a.b", "a-b", "a_b", "A-b", "a-B"]
    assert len({ids.pod_name(name) for name in names}) == len(names)
