"""What one run brings home: its output, its end, its evidence, and no trace on the device."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agent.conftest import Here
from agent.helpers_agent import Bench, alive, drive, eventually, run, sh, written
from sidewinder.model import FileCheck, RawResult, Task


def measure(state: Path, task: Task) -> RawResult:
    """One run on a device with a state folder (and so an environment and a control group) of its own."""

    async def body(bench: Bench) -> RawResult:
        return await run(await bench.client(), "run", task)

    return drive(state, body)


def test_output_and_exit_code_come_home_as_bytes(here: Here) -> None:
    raw = here.measure(sh(r"printf 'a\377\000b'; printf oops >&2; exit 3"))
    assert (raw.state, raw.returncode) == ("done", 3)
    assert raw.stdout.whole() == b"a\xff\x00b"
    assert raw.stderr.whole() == b"oops"
    assert raw.tree_dead is True
    assert raw.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_signal_is_a_negative_return_code(here: Here) -> None:
    raw = here.measure(sh("kill -SEGV $$"))
    assert raw.returncode == -signal.SIGSEGV
    assert raw.state == "done"


def test_large_stdin_and_output_do_not_block_each_other(here: Here) -> None:
    data = os.urandom(1 << 20) * 3
    raw = here.measure(Task(("cat",), stdin=data, output_cap_bytes=2 * len(data)))
    assert raw.stdout.whole() == data


def test_stdin_may_be_left_unread(here: Here) -> None:
    assert here.measure(Task(("true",), stdin=b"x" * 1_000_000)).returncode == 0


def test_output_beyond_the_cap_is_counted_not_kept(here: Here) -> None:
    raw = here.measure(sh("seq 1 200000", output_cap_bytes=1000))
    whole = "".join(f"{n}\n" for n in range(1, 200_001)).encode()
    assert raw.stdout.total_bytes == len(whole)
    assert raw.stdout.head == whole[:500]
    assert raw.stdout.tail == whole[-500:]
    assert raw.stdout.dropped_bytes == len(whole) - 1000


def test_no_shell_reads_the_arguments(here: Here) -> None:
    nasty = ("$HOME", "a b", "'\"", "\\", "!", "*", "\n", "", "~/x", "é")
    raw = here.measure(Task((sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *nasty)))
    assert raw.stdout.whole() == (ascii(list(nasty)) + "\n").encode()


def test_environment_is_added_and_signals_are_as_in_a_shell(here: Here) -> None:
    script = "import os, signal; print(os.environ['LEVEL'], signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL)"
    raw = here.measure(Task((sys.executable, "-S", "-c", f"import signal; {script}"), env={"LEVEL": "7"}))
    # Python itself ignores SIGPIPE, so ask the kernel what it inherited.
    assert raw.stdout.whole() is not None
    assert raw.stdout.head.startswith(b"7 ")
    mask = here.measure(sh("grep SigIgn /proc/self/status")).stdout.head.split()[1]
    assert int(mask, 16) & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGHUP - 1) | 1 << (signal.SIGINT - 1)) == 0


def test_the_scratch_folder_is_fresh_private_and_gone(here: Here) -> None:
    raw = here.measure(sh("pwd; ls -A; stat -c %a .; mkdir d; touch d/f; chmod 0 d"))
    where, mode = raw.stdout.head.decode().split()
    assert mode == "700"
    assert not os.path.exists(where)


def test_a_declared_folder_is_used_and_kept(here: Here, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    raw = here.measure(sh("pwd; touch made", cwd=str(folder)))
    assert raw.stdout.head.decode().strip() == str(folder)
    assert (folder / "made").exists()


def test_own_time_out_kills_the_whole_tree(here: Here) -> None:
    raw = here.measure(sh("sleep 1000 & echo $!; echo $$; sleep 1000", timeout_s=0.3, grace_s=0.2))
    assert raw.state == "timeout"
    assert raw.returncode == -signal.SIGTERM
    assert raw.tree_dead
    assert not any(alive(int(pid)) for pid in raw.stdout.head.split())


def test_who_ignores_sigterm_is_killed_after_the_grace(here: Here) -> None:
    raw = here.measure(sh("trap '' TERM; while :; do sleep 1000; done", timeout_s=0.3, grace_s=0.2))
    assert (raw.state, raw.returncode) == ("timeout", -signal.SIGKILL)


def test_a_last_word_in_the_grace_is_heard(here: Here) -> None:
    raw = here.measure(sh("trap 'echo bye; exit 5' TERM; sleep 1000 & wait", timeout_s=0.3, grace_s=20.0))
    assert (raw.state, raw.returncode, raw.stdout.head) == ("timeout", 5, b"bye\n")


def test_leftovers_are_killed_and_counted(here: Here) -> None:
    raw = here.measure(sh("setsid sleep 1000 & setsid sleep 1000 & sleep 1000 & exit 0"))
    assert (raw.state, raw.returncode, raw.tree_dead) == ("done", 0, True)
    assert raw.evidence["leftover_killed"] == 3


def test_a_daemon_that_cleaned_its_traces_is_found_as_our_orphan(here: Here) -> None:  # T6c
    daemon = (
        "import os,sys,time\n"
        "if os.fork(): sys.exit()\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "print(os.getpid(), flush=True)\n"
        "os.closerange(0, 100)\n"
        "os.execve('/bin/sleep', ['sleep', '1000'], {})\n"
    )
    raw = here.measure(sh(f'{sys.executable} -S -c "$DAEMON" | cat', env={"DAEMON": daemon}))
    assert raw.tree_dead
    assert not alive(int(raw.stdout.head))


@pytest.mark.parametrize(
    ("argv", "error"),
    [(("no-such-program",), "not_found"), (("/nowhere/x",), "not_found"), (("/etc/passwd",), "not_executable")],
)
def test_a_program_that_cannot_start(here: Here, argv: tuple[str, ...], error: str) -> None:
    raw = here.measure(Task(argv))
    assert (raw.state, raw.error, raw.returncode) == ("spawn_failed", error, None)
    assert argv[0] in str(raw.detail)


def test_a_script_whose_interpreter_is_missing_is_not_called_missing_itself(here: Here, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/nowhere/python\n")
    script.chmod(0o755)
    raw = here.measure(Task((str(script),)))
    assert (raw.state, raw.error) == ("spawn_failed", "not_executable")
    assert "interpreter" in str(raw.detail)


def test_a_folder_that_is_not_there(here: Here) -> None:
    raw = here.measure(Task(("true",), cwd="/nowhere"))
    assert (raw.state, raw.error) == ("spawn_failed", "bad_cwd")


def test_a_missing_model_is_refused_by_name(here: Here) -> None:
    task = sh("echo ran", checks=(FileCheck("/nowhere/m.gguf", None, "model smol"),))
    raw = here.measure(task)
    assert (raw.state, raw.error) == ("refused", "file_missing")
    assert "model smol" in str(raw.detail)
    assert raw.stdout.total_bytes == 0


def test_a_corrupt_model_is_refused_and_a_good_one_runs(here: Here, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.write_bytes(b"weights" * 400_000)
    good = hashlib.sha256(model.read_bytes()).hexdigest()
    assert here.measure(sh("echo ran", checks=(FileCheck(str(model), good),))).stdout.head == b"ran\n"
    content = bytearray(model.read_bytes())
    content[1000] ^= 1
    model.write_bytes(bytes(content))
    raw = here.measure(sh("echo ran", checks=(FileCheck(str(model), good, "model smol"),)))
    assert (raw.state, raw.error) == ("refused", "digest_mismatch")
    assert "model smol" in str(raw.detail)
    assert good in str(raw.detail)


def test_home_is_expanded_in_checked_files_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m.gguf").write_text("x")
    task = Task(("echo", "~/m.gguf", "~/other"), checks=(FileCheck("~/m.gguf"),))
    assert measure(tmp_path / "state", task).stdout.head.decode().split() == [str(tmp_path / "m.gguf"), "~/other"]


def test_evidence_is_there(here: Here) -> None:
    script = "x=$(head -c 100000000 /dev/zero | tr '\\0' x); for i in 1 2 3; do sleep 0.01; done"
    raw = here.measure(sh(script))
    evidence = raw.evidence
    assert evidence["usage"]["max_rss_bytes"] > 90_000_000
    assert evidence["usage"]["utime_s"] + evidence["usage"]["stime_s"] > 0.01
    assert evidence["usage"]["voluntary_switches"] > 0
    assert "involuntary_switches" in evidence["usage"]
    assert len(evidence["load"]["before"]) == 3
    assert evidence["memory"]["after"]["mem_available_bytes"] > 0
    stamps = evidence["stamps"]
    assert raw.duration_s == pytest.approx((stamps["end"]["monotonic_ns"] - stamps["start"]["monotonic_ns"]) / 1e9)
    assert abs(stamps["clock_step_s"]) < 0.5
    assert evidence["agent"]["version"]
    if os.path.exists("/proc/pressure/cpu"):
        assert 0 <= evidence["pressure"]["during"]["cpu"]["some_share"] <= 1
    assert "telemetry" not in evidence
    assert "prepare" not in evidence
    assert raw.device["logical_cores"] == os.cpu_count()
    assert raw.device["ram_bytes"] > 0


def test_nothing_of_environment_or_stdin_is_written_down(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        task = sh("sleep 1000", env={"TOKEN": "s3cret-value"}, stdin=b"s3cret-stdin")
        await client.start("run", 1, task)
        await eventually(lambda: written(bench.record("run") / "proc.json"))
        contents = _contents(tmp_path)
        assert len(contents) >= 4
        assert not [content for content in contents if b"s3cret" in content]
        assert stat.S_IMODE(bench.record("run").stat().st_mode) == 0o700
        assert await client.stop("run", 1)

    drive(tmp_path, body)


def test_the_device_forgets_an_acknowledged_run(tmp_path: Path) -> None:
    measure(tmp_path, sh("echo x"))
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"runs/campaign/max/run", "locks/slot.0", "fronts/controller"}
    assert json.loads((tmp_path / "runs/campaign/max/run").read_text()) == 1


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a cgroup")
@pytest.mark.skipif(not os.path.isdir("/sys/fs/cgroup/memory"), reason="needs cgroup v1's memory controller")
def test_a_kill_for_memory_is_counted_in_the_cgroup(tmp_path: Path) -> None:
    group = Path(f"/sys/fs/cgroup/memory/sidewinder-test-{os.getpid()}")
    group.mkdir()
    # A process of its own goes into the group: this one, fat from many tests, would be the kernel's first choice.
    inside = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
open({str(group / "cgroup.procs")!r}, "w").write(str(os.getpid()))
from pathlib import Path
from agent.test_agent_run import measure
from sidewinder.model import Task
raw = measure(Path({str(tmp_path)!r}), Task((sys.executable, "-S", "-c", "x = b'x' * (200 << 20)")))
import json
print(json.dumps({{"rc": raw.returncode, "oom_kills": raw.oom_kills, **{{k: raw.evidence[k] for k in
    ("oom_source", "placement", "cgroup")}}}}))
"""
    try:
        (group / "memory.limit_in_bytes").write_text(str(96 << 20))
        done = subprocess.run([sys.executable, "-c", inside], capture_output=True, text=True, timeout=60, check=True)
        raw = json.loads(done.stdout)
        assert raw["rc"] == -signal.SIGKILL
        assert raw["oom_kills"] == 1
        assert raw["oom_source"] == "cgroup"
        assert raw["placement"]["before"]["memory_max_bytes"] == 96 << 20
        assert raw["cgroup"]["memory_failcnt"] > 0
    finally:
        _remove_group(group)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a cgroup")
@pytest.mark.skipif(not os.path.isdir("/sys/fs/cgroup/cpu"), reason="needs cgroup v1's cpu controller")
def test_limits_are_read_before_and_after_a_run(tmp_path: Path) -> None:
    group = Path(f"/sys/fs/cgroup/cpu/sidewinder-limits-{os.getpid()}")
    group.mkdir()
    inside = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
open({str(group / "cgroup.procs")!r}, "w").write(str(os.getpid()))
from pathlib import Path
from agent.test_agent_run import measure
from agent.helpers_agent import sh
import json
quota = {str(group / "cpu.cfs_quota_us")!r}
for script in ("true", f"echo 80000 > {{quota}}"):
    print(json.dumps(measure(Path({str(tmp_path)!r}) / str(len(script)), sh(script)).evidence["placement"]))
"""
    try:
        (group / "cpu.cfs_quota_us").write_text("90000")
        done = subprocess.run([sys.executable, "-c", inside], capture_output=True, text=True, timeout=60, check=True)
        first, second = (json.loads(line) for line in done.stdout.splitlines())
        assert (first["before"]["cpu_quota_us"], first["before"]["cpu_period_us"]) == (90_000, 100_000)
        assert first["before"]["cpu_quota_cores"] == 0.9
        assert list(first) == ["before"], "nothing was changed"
        assert second["before"] == first["before"]
        assert second["after"] == {**first["before"], "cpu_quota_us": 80_000, "cpu_quota_cores": 0.8}
    finally:
        _remove_group(group)


def _contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def _remove_group(group: Path) -> None:
    import time

    end_s = time.monotonic() + 10
    while True:
        try:
            group.rmdir()
            return
        except OSError:  # the kernel lets go of dead members a little later
            if time.monotonic() > end_s:
                raise
            time.sleep(0.01)
