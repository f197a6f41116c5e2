"""A control group, v1 and v2, in a container and outside: limits and counters from made-up and from recorded trees."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from sidewinder.agent.cgroups import Cgroup
from sidewinder.agent.evidence import Conditions, compare
from sidewinder.agent.limitwatch import LimitWatch
from sidewinder.agent.pump import Pump
from sidewinder.model import Device
from sidewinder.transports.kubernetes_limits import unlike_inside

V2 = {
    "proc/self/cgroup": "0::/user.slice/session.scope\n",
    "proc/self/mountinfo": "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    "sys/fs/cgroup/user.slice/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/user.slice/session.scope/cgroup.controllers": "cpu memory\n",
    "sys/fs/cgroup/user.slice/session.scope/cpu.max": "max 100000\n",
    "sys/fs/cgroup/user.slice/session.scope/cpu.stat": "nr_periods 10\nnr_throttled 2\nthrottled_usec 700\n",
    "sys/fs/cgroup/user.slice/session.scope/cpu.weight": "100\n",
    "sys/fs/cgroup/user.slice/session.scope/cpuset.cpus.effective": "0-3\n",
    "sys/fs/cgroup/user.slice/session.scope/memory.max": "max\n",
    "sys/fs/cgroup/user.slice/session.scope/memory.peak": "1000\n",
    "sys/fs/cgroup/user.slice/session.scope/memory.events": "low 0\nmax 3\noom 1\noom_kill 1\noom_group_kill 0\n",
}
V1_IN_A_CONTAINER = {
    "proc/self/cgroup": (
        "5:cpuset:/kubepods/pod1/abc\n4:memory:/kubepods/pod1/abc\n3:cpu,cpuacct:/kubepods/pod1/abc\n0::/\n"
    ),
    "proc/self/mountinfo": (
        "40 30 0:30 /kubepods/pod1/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "41 30 0:31 /kubepods/pod1/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "42 30 0:32 /kubepods/pod1/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n"
    ),
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "67108864\n",
    "sys/fs/cgroup/memory/memory.max_usage_in_bytes": "60000000\n",
    "sys/fs/cgroup/memory/memory.failcnt": "9\n",
    "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.shares": "512\n",
    "sys/fs/cgroup/cpuset/cpuset.effective_cpus": "0-1\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 4\nnr_throttled 1\nthrottled_time 5000000\n",
}

V2_IN_A_CONTAINER = {
    "proc/self/cgroup": "0::/\n",
    "proc/self/mountinfo": (
        "1370 1360 0:27 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n"
    ),
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
    "sys/fs/cgroup/cpu.max": "20000 100000\n",
    "sys/fs/cgroup/cpu.weight": "8\n",
    "sys/fs/cgroup/cpu.stat": (
        "usage_usec 460000\nuser_usec 400000\nsystem_usec 60000\n"
        "nr_periods 21\nnr_throttled 18\nthrottled_usec 1234567\nnr_bursts 0\nburst_usec 0\n"
    ),
    "sys/fs/cgroup/cpuset.cpus": "\n",
    "sys/fs/cgroup/cpuset.cpus.effective": "0-7\n",
    "sys/fs/cgroup/memory.max": "134217728\n",
    "sys/fs/cgroup/memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
}


def write(path: Path, text: str) -> None:
    """As the kernel's own files are written: in one go, without a moment of nothing."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, (text.strip() + "\n").encode().ljust(os.fstat(fd).st_size, b"\n"), 0)
    finally:
        os.close(fd)


def tree(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return str(root)


def test_v2_takes_the_tightest_quota_above_us(tmp_path: Path) -> None:
    group = Cgroup(tree(tmp_path, V2))
    assert group.limits() == {
        "version": 2,
        "cpu_period_us": 100000,
        "cpu_quota_cores": 1.5,
        "unlimited": ["cpu", "memory"],  # says our own group
        "cpu_weight": 100,
        "cpuset": "0-3",
    }
    assert group.counters() == {
        "oom_kills": 1,
        "memory_failcnt": 3,
        "memory_peak_bytes": 1000,
        "throttled_us": 700,
        "throttled_periods": 2,
        "periods": 10,
    }


def test_v1_in_a_container_is_read_relative_to_its_mount(tmp_path: Path) -> None:
    group = Cgroup(tree(tmp_path, V1_IN_A_CONTAINER))
    assert group.limits() == {
        "version": 1,
        "cpu_quota_us": 50000,
        "cpu_period_us": 100000,
        "cpu_quota_cores": 0.5,
        "memory_max_bytes": 67108864,
        "cpu_shares": 512,
        "cpuset": "0-1",
    }
    assert group.counters() == {
        "oom_kills": 2,
        "memory_failcnt": 9,
        "memory_peak_bytes": 60000000,
        "throttled_us": 5000,
        "throttled_periods": 1,
        "periods": 4,
    }


def test_v1_unlimited_is_absent(tmp_path: Path) -> None:
    files = dict(V1_IN_A_CONTAINER)
    files["sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712\n"
    files["sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"] = "-1\n"
    assert Cgroup(tree(tmp_path, files)).limits() == {
        "version": 1,
        "cpu_period_us": 100000,
        "unlimited": ["cpu", "memory"],
        "cpu_shares": 512,
        "cpuset": "0-1",
    }


@pytest.mark.parametrize(
    ("name", "limits", "throttled_us"),
    [
        (
            "limited",
            {"cpu_quota_us": 20_000, "cpu_quota_cores": 0.2, "memory_max_bytes": 64 << 20, "cpu_shares": 204},
            74_621,
        ),
        ("unlimited", {"unlimited": ["cpu", "memory"], "cpu_shares": 2}, 0),
    ],
)
def test_two_pods_of_a_real_cluster(tmp_path: Path, name: str, limits: dict[str, object], throttled_us: int) -> None:
    """Recorded in their containers: Kubernetes 1.36, containerd 1.6, cgroup v1 without a namespace of its own."""
    recorded = json.loads((Path(__file__).parents[1] / "data" / "cgroups" / "pods-v1.json").read_text())
    group = Cgroup(tree(tmp_path, recorded[name]))
    assert group.limits() == {"version": 1, "cpu_period_us": 100_000, "cpuset": "0-1", **limits}
    assert group.counters()["throttled_us"] == throttled_us
    settings = {"image": "i", **({"cpu": "200m", "memory": "64Mi"} if name == "limited" else {})}
    other = {"image": "i", **({} if name == "limited" else {"cpu": "200m", "memory": "64Mi"})}
    assert unlike_inside(group.limits(), Device("k8s", "kubernetes", settings=settings)) == []
    assert len(unlike_inside(group.limits(), Device("k8s", "kubernetes", settings=other))) == 2


def test_what_cannot_be_read_is_neither_a_limit_nor_none(tmp_path: Path) -> None:
    files = {
        name: text for name, text in V1_IN_A_CONTAINER.items() if "limit_in_bytes" not in name and "cfs" not in name
    }
    assert Cgroup(tree(tmp_path, files)).limits() == {"version": 1, "cpu_shares": 512, "cpuset": "0-1"}


def test_v2_in_a_container_of_its_own_namespace(tmp_path: Path) -> None:
    """As containerd mounts it: the group is the root of what can be seen."""
    group = Cgroup(tree(tmp_path, V2_IN_A_CONTAINER))
    assert group.limits() == {
        "version": 2,
        "cpu_quota_us": 20000,
        "cpu_period_us": 100000,
        "cpu_quota_cores": 0.2,
        "memory_max_bytes": 134217728,
        "cpu_weight": 8,
        "cpuset": "0-7",
    }
    assert group.counters() == {
        "oom_kills": 0,
        "memory_failcnt": 0,
        "throttled_us": 1234567,
        "throttled_periods": 18,
        "periods": 21,
    }


@pytest.mark.parametrize("files", ["v1", "v2"])
def test_a_limit_that_is_set_and_set_back_during_a_run_is_seen(tmp_path: Path, files: str) -> None:
    tree(tmp_path, V1_IN_A_CONTAINER if files == "v1" else V2_IN_A_CONTAINER)
    name, other = ("cpu,cpuacct/cpu.cfs_quota_us", "25000") if files == "v1" else ("cpu.max", "25000 100000")
    path, pump = tmp_path / "sys/fs/cgroup" / name, Pump()
    was = path.read_text()
    watch = LimitWatch(Cgroup(str(tmp_path)), pump)
    write(path, other)
    pump.turn(60)
    write(path, was)
    found = watch.end()
    assert found["before"] == Cgroup(str(tmp_path)).limits()
    assert found["during"]["cpu_quota_us"] == 25000
    assert "after" not in found


def test_a_limit_that_is_another_one_in_the_end_is_after(tmp_path: Path) -> None:
    root, pump = tree(tmp_path, V2_IN_A_CONTAINER), Pump()
    watch = LimitWatch(Cgroup(root), pump)
    write(tmp_path / "sys/fs/cgroup/memory.max", "max")
    pump.turn(60)
    found = watch.end()
    assert found["after"] == {
        **{k: v for k, v in found["before"].items() if k != "memory_max_bytes"},
        "unlimited": ["memory"],
    }
    assert "during" not in found


def test_the_same_limit_set_again_is_no_change(tmp_path: Path) -> None:
    root, pump = tree(tmp_path, V2_IN_A_CONTAINER), Pump()
    watch = LimitWatch(Cgroup(root), pump)
    write(tmp_path / "sys/fs/cgroup/memory.max", "134217728")
    pump.turn(60)
    assert list(watch.end()) == ["before"]


def test_a_group_that_is_gone_in_the_end_says_nothing_of_a_change(tmp_path: Path) -> None:
    root = tree(tmp_path, V2_IN_A_CONTAINER)
    group = Cgroup(root)
    watch = LimitWatch(group, Pump())
    group.version = 0
    assert list(watch.end()) == ["before"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a cgroup")
@pytest.mark.skipif(not os.path.isdir("/sys/fs/cgroup/cpu"), reason="needs cgroup v1's cpu controller")
def test_the_kernel_tells_of_limits_that_another_process_sets(tmp_path: Path) -> None:
    folder = Path(f"/sys/fs/cgroup/cpu/sidewinder-watch-{os.getpid()}")
    folder.mkdir()
    try:
        group, pump = Cgroup(str(tmp_path)), Pump()
        group.version, group.folders, group._tops = 1, {"cpu": str(folder)}, {str(folder)}
        watch = LimitWatch(group, pump)
        assert watch.before["unlimited"] == ["cpu"]
        for quota, cores in ((50000, 0.5), (-1, None)):
            subprocess.run(["sh", "-c", f"echo {quota} > {folder}/cpu.cfs_quota_us"], check=True)
            pump.turn(60)
            assert group.limits().get("cpu_quota_cores") == cores
        assert watch.end()["during"]["cpu_quota_us"] == 50000
    finally:
        folder.rmdir()


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    group = Cgroup(str(tmp_path))
    assert (group.version, group.limits(), group.counters()) == (0, {}, {})


def test_changes_between_two_looks(tmp_path: Path) -> None:
    root = tree(tmp_path, V2)
    pressure = "some avg10=1.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    tree(tmp_path, {"proc/pressure/cpu": pressure.format(1_000_000), "proc/vmstat": "nr_free_pages 5\noom_kill 3\n"})
    group = Cgroup(root)
    before = Conditions(group, root)
    scope = "sys/fs/cgroup/user.slice/session.scope/"
    tree(
        tmp_path,
        {
            "proc/pressure/cpu": pressure.format(1_500_000),
            "proc/vmstat": "nr_free_pages 5\noom_kill 4\n",
            scope + "memory.events": "max 3\noom_kill 2\n",
            scope + "memory.peak": "5000\n",
        },
    )
    found = compare(before, Conditions(group, root), 2.0)
    assert found["cgroup"]["oom_kills"] == 1
    assert found["cgroup"]["memory_failcnt"] == 0
    assert (found["cgroup"]["memory_peak_bytes"], found["cgroup"]["memory_peak_raised"]) == (5000, True)
    assert found["vmstat_oom_kills"] == 1
    assert found["pressure"]["during"]["cpu"]["some_us"] == 500_000
    assert found["pressure"]["during"]["cpu"]["some_share"] == 0.25
    assert "memory" not in found["pressure"]["during"]
    assert "memory" not in found  # no /proc/meminfo there: absent


def test_a_counter_that_one_look_lacks_is_absent_not_zero(tmp_path: Path) -> None:
    root = tree(tmp_path, V2)
    group = Cgroup(root)
    before = Conditions(group, root)
    before.counters.pop("oom_kills")
    assert "oom_kills" not in compare(before, Conditions(group, root), 1.0)["cgroup"]
