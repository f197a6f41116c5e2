"""A sampler on made-up machines: what is there is read right, what is not there is absent."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from agent.conftest import Here
from agent.helpers_agent import sh
from sidewinder.agent.facts import capabilities
from sidewinder.agent.power import Counter, Energy, PmicMeter, RaplMeter, VideoCore, pmic_watts
from sidewinder.agent.pump import Pump
from sidewinder.agent.telemetry import Sampler


def put(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def sampler(root: Path, hz: float = 1.0, power: bool = False, core: VideoCore | None = None) -> Sampler:
    return Sampler(str(root), hz, power, Pump(), core)


class Firmware:
    """Stands in for the ioctl of /dev/vcio: takes the message apart and answers in place."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers

    def __call__(self, _fd: int, request: int, buffer: bytearray, _mutate: bool) -> int:
        assert request == 0xC0000000 | struct.calcsize("P") << 16 | 0x6400
        size, process, tag, room, _request, _error = struct.unpack_from("=6I", buffer)
        assert (size, process, tag, room) == (len(buffer), 0, 0x00030080, 1024)
        command = bytes(buffer[24:]).split(b"\0")[0].decode()
        answer = self.answers.get(command)
        struct.pack_into("=I", buffer, 20, 0 if answer is not None else 1)
        buffer[24 : 24 + 1024] = (answer or "").encode().ljust(1024, b"\0")
        return 0

    def core(self, tmp_path: Path) -> VideoCore:
        return VideoCore(str(put(tmp_path, "dev/vcio", "")), self)


PMIC = """   3V3_SYS_A current(1)=0.05000000A
   VDD_CORE_A current(7)=2.00000000A
   DDR_VDD2_A current(4)=0.50000000A
   EXT5V_V volt(24)=5.15000000V
   3V3_SYS_V volt(9)=3.30000000V
   VDD_CORE_V volt(15)=0.90000000V
   DDR_VDD2_V volt(12)=1.10000000V
"""


def test_an_empty_machine_tells_nothing(tmp_path: Path) -> None:
    one = sampler(tmp_path, power=True)
    one.start()
    one.begin(0.0)
    one.finish(1.0)
    assert one.summary(1.0) == {"sample_hz": 1.0, "sample_count": 2}
    assert not any(value for name, value in capabilities(str(tmp_path)).items() if name in ("rapl", "pmic", "cpu_freq"))


def test_temperature_is_the_hottest_zone_in_either_unit(tmp_path: Path) -> None:
    hot = put(tmp_path, "sys/class/thermal/thermal_zone0/temp", "45000\n")
    put(tmp_path, "sys/class/thermal/thermal_zone1/temp", "41\n")
    put(tmp_path, "sys/class/thermal/thermal_zone2/temp", "")  # a zone that does not tell
    one = sampler(tmp_path)
    one.begin(0.0)
    hot.write_text("65500\n")
    one.sample_if_due(1.0)
    hot.write_text("39000\n")
    one.finish(2.0)
    told = one.summary(2.0)
    assert (told["temp_c_start"], told["temp_c_max"]) == (45.0, 65.5)
    assert told["temp_c_mean"] == pytest.approx((45 + 65.5 + 41) / 3, abs=0.001)


def test_clocks_from_cpufreq_or_else_from_cpuinfo(tmp_path: Path) -> None:
    put(tmp_path, "proc/cpuinfo", "cpu MHz\t\t: 2000.5\n\ncpu MHz\t\t: 1000.5\n")
    one = sampler(tmp_path)
    one.begin(0.0)
    one.finish(1.0)
    told = one.summary(1.0)
    assert (told["freq_khz_min"], told["freq_khz_mean"], told["freq_khz_max"]) == (1000500.0, 1500500.0, 2000500.0)
    put(tmp_path, "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "1800000\n")
    one = sampler(tmp_path)
    one.begin(0.0)
    one.finish(1.0)
    assert one.summary(1.0)["freq_khz_mean"] == 1800000.0


def test_throttling_is_what_holds_now_not_since_boot(tmp_path: Path) -> None:
    file = put(tmp_path, "sys/devices/platform/soc/soc:firmware/get_throttled", "50000\n")
    one = sampler(tmp_path)
    one.start()
    one.begin(0.0)
    assert one.throttle_before == 0
    file.write_text("50005\n")
    one.finish(1.0)
    told = one.summary(1.0)
    assert told["throttled"] is True
    assert told["throttle_flags"] == ["under_voltage", "throttled"]


def test_cpu_use_is_a_difference_and_clamped(tmp_path: Path) -> None:
    stat = put(tmp_path, "proc/stat", "cpu  100 0 100 800 0 0 0 0\ncpu0 100 0 100 800 0 0 0 0\nintr 5\n")
    one = sampler(tmp_path)
    one.begin(0.0)
    stat.write_text("cpu  150 0 125 900 25 0 0 0\ncpu0 90 0 100 900 0 0 0 0\nintr 9\n")
    one.finish(1.0)
    told = one.summary(1.0)
    assert told["cpu_util_pct_mean"] == 37.5
    assert told["cpu_util_pct_per_core"] == [0.0]


def test_sampling_is_at_most_10_hz_and_missed_periods_are_skipped(tmp_path: Path) -> None:
    one = sampler(tmp_path, hz=1000.0)
    assert one.hz == 10.0
    one.begin(0.0)
    for tick in range(1, 100):
        one.sample_if_due(tick / 100)
    assert one.samples == 10
    one.sample_if_due(50.0)
    one.sample_if_due(50.01)
    assert one.samples == 11


def test_energy_is_a_trapezoid() -> None:
    energy = Energy()
    energy.add(0.0, 10.0)
    assert not energy.known
    energy.add(2.0, 20.0)
    energy.add(1.0, 1000.0)  # time went backwards: skipped
    energy.add(3.0, 20.0)
    assert (energy.joules, energy.seconds) == (50.0, 3.0)
    assert energy.mean_w == pytest.approx(50 / 3)


def test_rapl_counts_over_one_wrap_and_leaves_psys_out(tmp_path: Path) -> None:
    base = "sys/class/powercap/"
    files = {}
    for folder, name in (
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:1", "package-1"),
        ("intel-rapl:2", "psys"),
        ("intel-rapl:0:0", "core"),
        ("intel-rapl:0:1", "dram"),
    ):
        files[folder] = put(tmp_path, f"{base}{folder}/energy_uj", "9000000\n")
        put(tmp_path, f"{base}{folder}/name", name + "\n")
        put(tmp_path, f"{base}{folder}/max_energy_range_uj", "10000000\n")
    one = sampler(tmp_path, power=True)
    one.begin(0.0)
    files["intel-rapl:0"].write_text("1000000")  # wrapped: 2 J
    files["intel-rapl:1"].write_text("9500000")
    files["intel-rapl:0:0"].write_text("9100000")
    files["intel-rapl:0:1"].write_text("9300000")
    files["intel-rapl:2"].write_text("9900000")
    one.finish(2.0)
    told = one.summary(2.0)
    assert told["energy_source"] == "rapl"
    assert told["energy_j"] == pytest.approx(2.0 + 0.5 + 0.3)
    assert told["power_w_mean"] == pytest.approx(1.4)
    assert told["power_w_core"] == pytest.approx(0.05)
    assert told["power_w_dram"] == pytest.approx(0.15)


def test_a_counter_that_falls_without_a_known_end_is_not_believed(tmp_path: Path) -> None:
    file = put(tmp_path, "energy", "500")
    counter = Counter(str(file), None)
    counter.read()
    file.write_text("100")
    counter.read()
    assert not counter.known


def test_no_power_is_read_unless_asked(tmp_path: Path) -> None:
    put(tmp_path, "sys/class/powercap/intel-rapl:0/energy_uj", "1")
    put(tmp_path, "sys/class/powercap/intel-rapl:0/name", "package-0")
    one = sampler(tmp_path)
    one.begin(0.0)
    one.finish(1.0)
    assert "energy_j" not in one.summary(1.0)
    assert RaplMeter(str(tmp_path)).packages


def test_the_power_chip_of_a_pi_by_rails(tmp_path: Path) -> None:
    assert pmic_watts(PMIC) == pytest.approx({"3V3_SYS": 0.165, "VDD_CORE": 1.8, "DDR_VDD2": 0.55})
    meter = PmicMeter(Firmware(pmic_read_adc=PMIC).core(tmp_path))
    meter.sample(0.0)
    assert meter.summary() == {}
    meter.sample(10.0)
    told = meter.summary()
    assert told["energy_j"] == pytest.approx(25.15)
    assert told["power_w_core"] == pytest.approx(1.8)
    assert told["power_w_dram"] == pytest.approx(0.55)
    assert told["energy_source"] == "pmic"


def test_firmware_that_does_not_know_a_question_is_no_answer(tmp_path: Path) -> None:
    core = Firmware(get_throttled="throttled=0x50004").core(tmp_path)
    assert core.command("pmic_read_adc") is None
    assert core.command("get_throttled") == "throttled=0x50004"
    one = sampler(tmp_path, power=True, core=core)
    one.start()
    assert one.throttle_before == 4
    assert VideoCore(str(tmp_path / "nowhere")).command("get_throttled") is None


def test_a_real_run_is_sampled_when_asked(here: Here) -> None:
    raw = here.measure(sh("sleep 0.35", sample_hz=10.0, sample_power=True))
    told = raw.evidence["telemetry"]
    assert told["sample_hz"] == 10.0
    assert 3 <= told["sample_count"] <= 7
    assert 0 <= told["cpu_util_pct_mean"] <= 100
    assert told.get("energy_j") != 0
