"""A fork of the rank server behaves as the Python process that it replaces."""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support.forking import forkable, rank_of
from support.launched import Launched, spec
from support.rank_server import RankServer, rank_server

SECONDS = 60.0


def forked(folder, code, *arguments, **environ):
    """Start a script; return the process and the file of its output."""
    (folder / "script.py").write_text(code)
    with (folder / "output").open("wb") as output:
        process = rank_server().start(
            [str(folder / "script.py"), *arguments], {**os.environ, **environ}, output.fileno()
        )
    return process, folder / "output"


@pytest.mark.parametrize(
    ("code", "ends", "last_line"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('why')", 1, "why"),
        ("raise ValueError('why')", 1, "ValueError: why"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
        ("import atexit; atexit.register(print, 'at the end')", 0, "at the end"),
        ("import sys, os; print(sys.argv[1:], os.environ['MINE'], __name__)", 0, "['a', 'b'] value __main__"),
        ("import helper_beside", 0, "imported"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_output_and_exit_code_are_those_of_a_started_process(tmp_path, code, ends, last_line):
    (tmp_path / "helper_beside.py").write_text("print('imported')")
    process, output = forked(tmp_path, code, "a", "b", MINE="value")
    assert process.wait(SECONDS) == ends
    assert (output.read_text().splitlines() or [""])[-1] == last_line


def test_forks_share_no_state(tmp_path):
    code = (
        "import os, heterotp_trainer as module; assert not hasattr(module, 'mark'); module.mark = os.environ['A'] = '1'"
    )
    for _ in range(2):
        process, output = forked(tmp_path, code)
        assert process.wait(SECONDS) == 0, output.read_text()


def test_a_process_that_does_not_end_can_be_waited_for_and_killed(tmp_path):
    process, _ = forked(tmp_path, "import time; time.sleep(600)", RANK="7")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    deadline = time.monotonic() + SECONDS
    while rank_of(process.pid) != 7:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    assert process.wait(SECONDS) == -signal.SIGKILL


def test_forks_end_with_their_server(tmp_path):
    server = RankServer()
    (tmp_path / "script.py").write_text("import time; time.sleep(600)")
    with (tmp_path / "output").open("wb") as output:
        process = server.start([str(tmp_path / "script.py")], os.environ, output.fileno())
    handle = os.pidfd_open(process.pid)
    server.close()
    assert select.select([handle], [], [], SECONDS)[0], "a fork outlived its server"
    os.close(handle)
    with pytest.raises(AssertionError, match="the rank server ended before"):
        process.wait(SECONDS)


OPEN = """
import os
kept = {}
for name in os.listdir('/proc/self/fd'):
    try:
        kept[int(name)] = os.readlink(f'/proc/self/fd/{name}')
    except FileNotFoundError:
        pass  # the listing's own
print(sorted(target for number, target in kept.items() if number > 2 and target.startswith(('socket:', 'pipe:'))))
"""


def test_a_fork_holds_no_socket_or_pipe_of_the_server_or_of_other_forks(tmp_path):
    (tmp_path / "first").mkdir()
    first, _ = forked(tmp_path / "first", "import time; time.sleep(600)")
    second, output = forked(tmp_path, OPEN)
    try:
        assert second.wait(SECONDS) == 0, output.read_text()
        assert output.read_text() == "[]\n"
    finally:
        first.kill()
        first.wait(SECONDS)


def test_a_request_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a request of \d+ bytes; the rank server receives at most 200000"):
        forked(tmp_path, "pass", LONG="x" * 200_000)


def test_kill_reaches_no_other_process_with_the_same_number(tmp_path):
    process, _ = forked(tmp_path, "import time; time.sleep(600)")
    other, _ = forked(tmp_path, "import time; time.sleep(600)")
    own, process.pid = process.pid, other.pid  # as after the end of the first and the start of the second
    process.kill()
    assert process.wait(SECONDS) == -signal.SIGKILL and own != other.pid
    assert other.poll() is None
    other.kill()
    assert other.wait(SECONDS) == -signal.SIGKILL


def test_only_what_a_fork_can_stand_for_is_forked():
    one = {"OMP_NUM_THREADS": "1"}
    python = sys.executable
    assert forkable([python, "-P", "-m", "heterotp_trainer"], one)
    assert forkable([python, "-m", "heterotp_trainer.launch", "--", "any"], one)
    assert forkable([python, "script.py", "argument"], one)
    assert not forkable([python, "-m", "torch.distributed.run"], one)
    assert not forkable([python, "-c", "pass"], one)
    assert not forkable(["/bin/true"], one)
    assert not forkable([python, "script.py"], {"OMP_NUM_THREADS": "2"})


def names_of(pids):
    """Return the names of those processes that are still there."""
    found = []
    for pid in pids:
        with suppress(OSError):
            found.append(Path(f"/proc/{pid}/comm").read_text())
    return found


@pytest.mark.parametrize("started", [True, False], ids=["started", "forked"])
def test_a_launched_gang_is_the_same_either_way(tmp_path, started):
    run = Launched(tmp_path, spec(2, iterations=4), forked=not started)
    names = run.until("both ranks are there", lambda: len(found := names_of(run.ranks())) == 2 and found)
    assert all(name.startswith("rank-") is not started for name in names)
    assert run.wait() == 0, run.text()
    assert len(run.history()) == 4
