"""The CPUs of a container: its affinity and its limit, by both versions of cgroups."""

import os

import pytest
from heterotp_trainer.launch.cpus import usable_cpus


@pytest.fixture
def eight_cpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.mark.parametrize(
    ("limit", "cpus"),
    [("max 100000", 8), ("400000 100000", 4), ("250000 100000", 3), ("50000 100000", 1), ("1600000 100000", 8)],
)
def test_the_limit_of_version_2(eight_cpus, tmp_path, limit, cpus):
    (tmp_path / "cpu.max").write_text(f"{limit}\n")
    assert usable_cpus(tmp_path) == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("-1", 8), ("200000", 2)])
def test_the_limit_of_version_1(eight_cpus, tmp_path, quota, cpus):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cpus(tmp_path) == cpus


@pytest.mark.parametrize("text", ["", "max", "some 100000", "400000 0", "1 2 3"])
def test_what_is_no_limit_is_none(eight_cpus, tmp_path, text):
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cpus(tmp_path) == 8
    assert usable_cpus(tmp_path / "absent") == 8
