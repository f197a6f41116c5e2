"""A control group, v1 and v2, in a container and outside: limits and counters from made-up trees."""

from __future__ import annotations

from pathlib import Path

from sidewinder.agent.cgroups import Cgroup
from sidewinder.agent.evidence import Conditions, compare

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
    "proc/self/cgroup": "4:memory:/kubepods/pod1/abc\n3:cpu,cpuacct:/kubepods/pod1/abc\n0::/\n",
    "proc/self/mountinfo": (
        "40 30 0:30 /kubepods/pod1/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "41 30 0:31 /kubepods/pod1/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
    ),
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "67108864\n",
    "sys/fs/cgroup/memory/memory.max_usage_in_bytes": "60000000\n",
    "sys/fs/cgroup/memory/memory.failcnt": "9\n",
    "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.shares": "512\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 4\nnr_throttled 1\nthrottled_time 5000000\n",
}


def tree(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return str(root)


def test_v2_takes_the_tightest_quota_above_us(tmp_path: Path) -> None:
    group = Cgroup(tree(tmp_path, V2))
    assert group.limits() == {"version": 2, "cpu_quota_cores": 1.5, "cpu_weight": 100, "cpuset": "0-3"}
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
    assert group.limits() == {"version": 1, "cpu_quota_cores": 0.5, "memory_max_bytes": 67108864, "cpu_shares": 512}
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
    assert Cgroup(tree(tmp_path, files)).limits() == {"version": 1, "cpu_shares": 512}


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
