"""What is left of a gang when its training is over, and a script that ends without its session."""

import sys

import pytest
from heterotp_api.names import EXIT_BAD_INPUT
from support.launched import Launched, spec
from support.places import RANK_SCRIPTS

SCRIPT = RANK_SCRIPTS / "direct_session.py"


def test_no_thread_of_a_process_group_outlives_the_session(tmp_path):
    """A thread of gloo that gives up a tensor while Python ends aborts the process."""
    run = Launched(tmp_path, spec(2), command=[sys.executable, str(RANK_SCRIPTS / "threads_left.py")])
    assert run.wait() == 0, run.text()
    for rank in range(2):
        found = run.read(f"threads-{rank}.json")
        assert found["working"] > 0
        assert found["left"] == 0


@pytest.fixture
def direct(launch):
    """Start a script that makes its Session itself."""
    return lambda end, **more: launch(spec(2), command=[sys.executable, str(SCRIPT), end], **more)


def test_a_session_that_is_never_finished_fails_and_says_so(direct):
    run = direct("nothing")
    assert run.wait() == EXIT_BAD_INPUT, run.text()
    line = "error: the script returned without session.finish(): the last checkpoint and the report are missing"
    assert {f"[rank {rank}] {line}" for rank in range(2)} <= set(run.text().splitlines())
    status = run.read("status.json")
    assert (status["state"], status["iteration"]) == ("failed", 5)


def test_an_error_of_a_script_with_a_session_of_its_own_keeps_its_exit_code(direct):
    run = direct("an error")
    assert run.wait() == 1, run.text()
    assert 'int("three")' in run.text() and "session.finish()" not in run.text()


def test_a_finished_session_ends_well_also_where_it_continues_at_its_end(direct):
    for attempt in (1, 2):
        run = direct("finish", attempt=attempt)
        assert run.wait() == 0, run.text()
        assert run.read("report.json")["iterations"] == 5
