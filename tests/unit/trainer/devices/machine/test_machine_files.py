"""Counters of the kernel, read from written files of both versions of cgroups."""

import os
from types import SimpleNamespace

import pytest
from heterotp_trainer.devices.machine import texts
from heterotp_trainer.devices.machine.files import MachineFiles
from heterotp_trainer.devices.machine.gpu import Gpu
from heterotp_trainer.devices.machine.reading import GpuState

PRESSURE = "some avg10=1.00 avg60=0.50 avg300=0.10 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
TOTALS = {"cpu": 5_000_000, "memory": 6_000_000, "io": 7_000_000}  # microseconds
V2_STAT = "usage_usec 9000000\nuser_usec 1\nnr_periods 400\nnr_throttled 300\nthrottled_usec 25000000\n"
V1_STAT = "nr_periods 400\nnr_throttled 300\nthrottled_time 25000000000\n"
SELF_STAT = "7 (a ) (b) 1) R 1 7 7 0 -1 4194304 102 0 42 0 5 6 0 0 20 0 1 0 181362 3133440 388\n"
SNMP = "Tcp: RtoMin OutSegs RetransSegs\nTcp: 200 5000 40\nUdp: InDatagrams\nUdp: 3\n"


def files(root, **contents):
    """Write files; `__` stands for a slash, and names of cgroup files are given in full."""
    for name, text in contents.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return MachineFiles(root)


def put(root, at, names):
    return files(root, **{f"{at}/{name}": text for name, text in names.items()})


def test_version_2_of_the_own_cgroup(tmp_path):
    files(tmp_path, proc__self__cgroup="0::/pods/one\n", proc__pressure__cpu=PRESSURE.format(1))
    own = {"cpu.stat": V2_STAT, "cpu.max": "50000 100000\n", "memory.events": "low 0\noom 3\noom_kill 2\n"}
    own |= {f"{name}.pressure": PRESSURE.format(total) for name, total in TOTALS.items()}
    found = put(tmp_path, "sys/fs/cgroup/pods/one", own).counters(3.0, GpuState(power=True))
    assert (found.at, found.gpu.power) == (3.0, True)
    assert (found.periods, found.throttled_periods, found.throttled, found.cpu_limit) == (400, 300, 25.0, 0.5)
    assert (found.cpu_pressure, found.memory_pressure, found.io_pressure) == (5.0, 6.0, 7.0)
    assert found.oom_kills == 2


@pytest.mark.parametrize(
    "place", ["cpu,cpuacct/pods/one", "cpu/pods/one", "cpu"], ids=["together", "alone", "container"]
)
def test_version_1_by_its_path_or_as_a_container_sees_it(tmp_path, place):
    own = {"cpu.stat": V1_STAT, "cpu.cfs_quota_us": "25000\n", "cpu.cfs_period_us": "100000\n"}
    put(tmp_path, f"sys/fs/cgroup/{place}", own)
    put(tmp_path, "sys/fs/cgroup/memory", {"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"})
    machine = files(
        tmp_path,
        proc__self__cgroup="4:memory:/pods/one\n2:cpu,cpuacct:/pods/one\n0::/pods/one\n",
        proc__pressure__cpu=PRESSURE.format(8000000),
    )
    found = machine.counters(0.0, GpuState())
    assert (found.periods, found.throttled_periods, found.throttled, found.cpu_limit) == (400, 300, 25.0, 0.25)
    assert (found.oom_kills, found.cpu_pressure, found.io_pressure) == (1, 8.0, None)


def test_a_process_that_is_moved_is_followed(tmp_path):
    put(tmp_path, "sys/fs/cgroup/one", {"cpu.stat": V2_STAT})
    put(tmp_path, "sys/fs/cgroup/two", {"cpu.stat": "nr_periods 1\nnr_throttled 1\nthrottled_usec 5\n"})
    machine = files(tmp_path, proc__self__cgroup="0::/one\n")
    assert machine.counters(0.0, GpuState()).periods == 400
    files(tmp_path, proc__self__cgroup="0::/two\n")
    assert machine.counters(0.0, GpuState()).periods == 1


def test_files_of_the_process_and_the_node(tmp_path):
    machine = files(
        tmp_path,
        proc__self__stat=SELF_STAT,
        proc__self__schedstat="45085264 2000000000 45\n",
        proc__stat="cpu  10 20 30 40 50 60 70 80 9 9\ncpu0 1 1 1 1 1 1 1 1 0 0\n",
        proc__net__snmp=SNMP,
    )
    found = machine.counters(0.0, GpuState())
    assert (found.faults, found.delayed) == (42, 2.0)
    assert (found.stolen, found.segments) == ((80, 360), (40, 5000))


def test_a_machine_without_any_file_says_nothing(tmp_path):
    found = MachineFiles(tmp_path).counters(1.0, GpuState())
    assert all(value is None for name, value in vars(found).items() if name not in ("at", "gpu"))


@pytest.mark.parametrize(
    "text", ["", "\n", "\x00", "cpu", "some total=x", "a b c d e", "Tcp:\nTcp:\n", "max 100000", "-1 0"]
)
@pytest.mark.parametrize(
    "parse",
    [
        texts.cpu_limit,
        texts.pressure_seconds,
        texts.stolen_ticks,
        texts.major_faults,
        texts.delayed_seconds,
        texts.segments,
    ],
)
def test_a_text_of_another_kind_is_not_known(parse, text):
    assert parse(text) is None


def test_no_limit_has_no_number():
    assert texts.cpu_limit("-1", "100000") is None
    assert texts.cpu_limit("1", "0") is None
    assert texts.cpu_limit("150000", "100000") == 1.5


def test_this_machine_is_read():
    found = MachineFiles().counters(0.0, GpuState())
    assert found.stolen is not None and found.faults is not None


# -- the GPU ----------------------------------------------------------------------------------------------


def nvml_of(why=0, pids=(), errors=0):
    """Return a library with the functions that are used of nvidia-ml-py."""

    def ecc(handle, kind, counter):
        if errors is None:
            raise RuntimeError("not supported")
        return errors

    return SimpleNamespace(
        nvmlClocksThrottleReasonSwPowerCap=4,
        nvmlClocksThrottleReasonHwThermalSlowdown=64,
        nvmlDeviceGetHandleByUUID=lambda name: name,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: why,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [SimpleNamespace(pid=pid) for pid in pids],
        nvmlDeviceGetTotalEccErrors=ecc,
    )


def test_a_gpu_says_why_its_clock_is_low_and_who_else_is_there():
    state = Gpu("12", lambda: nvml_of(4, (os.getpid(), 1, 2), 3)).state()
    assert state == GpuState(power=True, thermal=False, others=2, errors=3)
    assert Gpu("12", lambda: nvml_of(64)).state().thermal is True


def test_in_a_container_one_of_the_pids_is_this_process():
    assert Gpu("12", lambda: nvml_of(pids=(-1, -2))).state().others == 1
    assert Gpu("12", lambda: nvml_of(pids=())).state().others == 0


def test_what_a_gpu_does_not_answer_is_not_known():
    assert Gpu("12", lambda: nvml_of(errors=None)).state() == GpuState(False, False, 0, None)
    assert Gpu("12", lambda: None).state() == GpuState()
    assert Gpu("", lambda: pytest.fail("a rank without a GPU asks no library")).state() == GpuState()
    assert Gpu("12", lambda: SimpleNamespace()).state() == GpuState()
