"""Which lost ranks are started again, and when; the launcher that does it."""

import json
import os
import subprocess
import sys

import pytest
from heterotp_api.names import EXIT_NOT_LET_IN, EXIT_PEER_LOST, EXIT_STOPPED, Env
from heterotp_trainer.launch.comebacks import LIVED_SECONDS, LONGEST_DELAY_SECONDS, Comebacks
from heterotp_trainer.launch.launcher import comebacks_of


def spec(**elastic):
    policy = {"elastic": {"minRanks": 1, **elastic}, "backoffLimit": 2}
    return {Env.SPEC: json.dumps({"runPolicy": policy}), Env.RENDEZVOUS_SECRET: "a secret"}


@pytest.mark.parametrize("code", [0, 1, 2, EXIT_PEER_LOST, EXIT_STOPPED])
def test_a_rank_that_ended_by_itself_is_not_started_again(code):
    assert Comebacks(3).due(0, code, 0.0, 1.0) is None


@pytest.mark.parametrize("code", [-9, -15, EXIT_NOT_LET_IN])
def test_a_rank_that_was_killed_or_left_out_is_started_again_at_once(code):
    assert Comebacks(3).due(0, code, 0.0, 7.0) == 7.0


def test_each_further_start_waits_twice_as_long_up_to_a_limit():
    found = Comebacks(10)
    delays = [found.due(0, -9, 0.0, 0.0) for _ in range(11)]
    assert delays[:4] == [0.0, 1.0, 2.0, 4.0]
    assert delays[8:] == [LONGEST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, None]
    assert found.number == {0: 10}
    assert found.due(1, -9, 0.0, 0.0) == 0.0  # each rank has its own count


def test_a_rank_that_has_lived_for_long_is_counted_anew():
    found = Comebacks(1)
    assert found.due(0, -9, 0.0, 0.0) == 0.0
    assert found.due(0, -9, 0.0, 1.0) is None
    assert found.due(0, -9, 0.0, LIVED_SECONDS + 1.0) == LIVED_SECONDS + 1.0


def test_the_spec_decides_whether_ranks_come_back():
    assert comebacks_of({}) is None
    assert comebacks_of({Env.SPEC: "no JSON"}) is None
    assert comebacks_of({Env.SPEC: "[]"}) is None
    assert comebacks_of(spec(rejoin=False)) is None
    assert comebacks_of({**spec(), Env.RENDEZVOUS_SECRET: ""}) is None
    found = comebacks_of(spec())
    assert found is not None
    assert [found.due(0, -9, 0.0, 0.0) is None for _ in range(3)] == [False, False, True]


def launched(code, **variables):
    environ = {**os.environ, Env.FIRST_RANK: "0", Env.PROCESSES: "1", **variables}
    command = [sys.executable, "-m", "heterotp_trainer.launch", "--", sys.executable, "-c", code]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_the_launcher_starts_a_killed_rank_again_and_says_how_often():
    code = f"import os, signal; os.environ.get('{Env.COMEBACK}') == '1' or os.kill(os.getpid(), signal.SIGKILL)"
    run = launched(code, **spec())
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("rank 0 is started again") == 1


def test_a_rank_that_dies_at_once_each_time_is_given_up():
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    run = launched(code, **spec())
    assert run.returncode == 137
    assert run.stderr.count("rank 0 is started again") == 2
