"""What is left of a gang when its training is over."""

import sys

from support.launched import Launched, spec
from support.places import RANK_SCRIPTS


def test_no_thread_of_a_process_group_outlives_the_session(tmp_path):
    """A thread of gloo that gives up a tensor while Python ends aborts the process."""
    run = Launched(tmp_path, spec(2), command=[sys.executable, str(RANK_SCRIPTS / "threads_left.py")])
    assert run.wait() == 0, run.text()
    for rank in range(2):
        found = run.read(f"threads-{rank}.json")
        assert found["working"] > 0
        assert found["left"] == 0
