"""Which GPUs each pod of a local gang sees."""

import pytest
from heterotp_api.load import parse_object
from heterotp_cli.gpus import deal, visible
from support.manifest_table import manifest


def job(*groups):
    """Return a job of groups (device type, processes)."""
    body = [
        {
            "name": f"g{index}",
            "processesPerPod": count,
            "device": {"type": kind, **({"teraflops": 1} if kind == "emulated" else {})},
        }
        for index, (kind, count) in enumerate(groups)
    ]
    degree = sum(count for _, count in groups)
    return parse_object(manifest({"patch": {"spec": {"tensorParallelDegree": degree, "workerGroups": body}}}))


def test_every_rank_gets_its_own_gpu():
    assert deal(job(("auto", 2), ("cuda", 1), ("emulated", 1)), ["a", "b", "c"]) == (["a,b", "c", ""], "")


def test_without_gpus_nothing_is_set():
    assert deal(job(("auto", 2), ("cpu", 1)), None) == ([None, None], "")


def test_too_few_gpus_for_auto_use_the_cpu_with_a_note():
    dealt, note = deal(job(("auto", 2), ("cuda", 1)), ["0", "1"])
    assert dealt == ["", "0"]
    assert note == "2 GPUs for 3 ranks: those of device type auto compute on the CPU"


def test_too_few_gpus_for_cuda_are_an_error():
    with pytest.raises(ValueError, match=r"spec\.workerGroups: device\.type cuda on 3 ranks: this machine has 1 GPUs"):
        deal(job(("cuda", 3)), ["0"])


def test_the_users_own_choice_is_respected(tmp_path):
    (tmp_path / "nvidia0").touch()
    (tmp_path / "nvidia1").touch()
    (tmp_path / "nvidiactl").touch()
    assert visible({}, tmp_path) == ["0", "1"]
    assert visible({"CUDA_VISIBLE_DEVICES": "GPU-1, 3"}, tmp_path) == ["GPU-1", "3"]
    assert visible({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == []
    assert visible({"CUDA_VISIBLE_DEVICES": "1,-1,2"}, tmp_path) == ["1"]
    assert visible({}, tmp_path / "nothing") is None
