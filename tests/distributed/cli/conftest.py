"""A run directory whose processes do not outlive the test, and a job of two ranks that trains until it is stopped."""

import os
import signal

import pytest
import yaml
from support.run_processes import processes_of

JOB = {
    "apiVersion": "heterotp.io/v1alpha1",
    "kind": "HeteroTPJob",
    "metadata": {"name": "small"},
    "spec": {
        "tensorParallelDegree": 2,
        "workerGroups": [{"name": "all", "processesPerPod": 2}],
        "training": {"model": {"hiddenSize": 32, "depth": 1, "heads": 4, "patchSize": 4}, "iterations": 100_000},
    },
}


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB))
    return path


@pytest.fixture
def workdir(tmp_path):
    place = tmp_path / "run"
    yield place
    for pid in processes_of(place):  # only after a failed test
        os.kill(pid, signal.SIGKILL)
