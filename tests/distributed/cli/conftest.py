"""A run directory whose processes do not outlive the test."""

import os
import signal

import pytest
from support.run_processes import processes_of


@pytest.fixture
def workdir(tmp_path):
    place = tmp_path / "run"
    yield place
    for pid in processes_of(place):  # only after a failed test
        os.kill(pid, signal.SIGKILL)
