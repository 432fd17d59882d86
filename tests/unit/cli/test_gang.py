"""When a gang is stopped, which pod failed first, and that no process is left."""

import os
import sys
import time

import pytest
from heterotp_api.last_words import RankFailure, with_failure
from heterotp_api.processes import LEFT_BEHIND_SECONDS, TERM_GRACE_SECONDS
from heterotp_api.ranks import PodPlace
from heterotp_cli.blame import NO_DOCUMENT, failure_text, reason
from heterotp_cli.follow import read_failure
from heterotp_cli.gang import ROOT_CAUSE_GRACE_SECONDS, Gang, Order, Watch, root_cause
from heterotp_cli.logs import pod_log, rank_log, sort_line
from heterotp_cli.pods import PodCommand
from heterotp_cli.run_command import refusal
from heterotp_cli.runner import Outcome, state_of
from heterotp_cli.workdir import last_words_file, prepare


@pytest.mark.parametrize(
    ("codes", "index"),
    [([None, 0], None), ([75, 1], 1), ([75, None], 1), ([75, 75], 0), ([0, 143], None), ([137, 75], 0)],
    ids=["well", "victim first", "hanging", "victims alone", "stopped", "killed"],
)
def test_root_cause_is_a_failure_before_its_victims(codes, index):
    assert root_cause(codes, [None] * len(codes)) == index


def failed(rank, code=1, at=None, message=""):
    return RankFailure(kind="RankFailure", rank=rank, exit_code=code, message=message, ended_at=at)


@pytest.mark.parametrize(
    ("codes", "failures", "index"),
    [
        ([134, 1], [failed(0, 134, 20.0), failed(1, 1, 10.0)], 1),
        ([75, 75], [failed(0, 75, 20.0), failed(1, 75, 10.0)], 1),
        ([75, 1], [failed(0, 75, 10.0), failed(1, 1, 20.0)], 1),
        ([1, 137], [failed(0, 1, 10.0), None], 1),
        ([1, 2], [failed(0), failed(1)], 0),
    ],
    ids=["first to end", "first victim to end", "victim ended first", "killed launcher", "order"],
)
def test_root_cause_of_several_failed_pods(codes, failures, index):
    assert root_cause(codes, failures) == index


@pytest.mark.parametrize(
    ("codes", "interrupts", "state"),
    [
        ([0, 0], 0, "succeeded"),
        ([0, 0], 1, "succeeded"),
        ([143, 143], 0, "stopped"),
        ([143, None], 2, "stopped"),
        ([143, None, 143], 1, "stopped"),  # the hanging one was killed
        ([75, None], 0, "failed"),
        ([143, 75], 1, "stopped"),
        ([1, 75], 0, "failed"),
        ([1, 75], 1, "failed"),  # the last checkpoint could not be written
        ([137, 143], 1, "failed"),  # killed before the user stopped the rest
    ],
)
def test_state_of(codes, interrupts, state):
    assert state_of(codes, interrupts) == state


def test_a_failed_pod_takes_the_gang_down_after_its_grace():
    watch, codes = Watch(), [1, None]
    assert watch.decide(codes, 100.0) == Order()
    assert watch.decide(codes, 100.0 + ROOT_CAUSE_GRACE_SECONDS) == Order()
    after = 100.1 + ROOT_CAUSE_GRACE_SECONDS
    assert watch.decide(codes, after) == Order(terminate=True)
    assert watch.decide(codes, after + TERM_GRACE_SECONDS) == Order()
    assert watch.decide(codes, after + TERM_GRACE_SECONDS + 0.1) == Order(kill=True, done=True)


def test_an_interrupt_terminates_once_and_waits_for_the_checkpoint():
    watch = Watch(interrupts=1)
    assert watch.decide([None, None], 0.0) == Order(terminate=True)
    assert watch.decide([None, None], 1e6) == Order()
    watch.interrupts = 2
    assert watch.decide([None, None], 1e6) == Order(kill=True, done=True)


def test_a_launcher_that_hangs_after_an_interrupt_is_killed_once_others_have_ended():
    watch = Watch(interrupts=1)
    assert watch.decide([None, None, None], 0.0) == Order(terminate=True)
    assert watch.decide([143, None, None], 5.0) == Order()
    assert watch.decide([143, None, 143], TERM_GRACE_SECONDS) == Order()
    assert watch.decide([143, None, 143], TERM_GRACE_SECONDS + 0.1) == Order(kill=True, done=True)


def test_a_gang_that_ends_long_after_an_interrupt_has_time_to_end_together():
    watch, checkpoint = Watch(interrupts=1), 300.0
    assert watch.decide([None, None], 0.0) == Order(terminate=True)
    assert watch.decide([None, 143], checkpoint) == Order()
    assert watch.decide([None, 143], checkpoint + LEFT_BEHIND_SECONDS) == Order()
    assert watch.decide([143, 143], checkpoint + LEFT_BEHIND_SECONDS) == Order(done=True)
    assert watch.decide([None, 143], checkpoint + LEFT_BEHIND_SECONDS + 0.1) == Order(kill=True, done=True)


def test_without_its_directory_the_gang_is_stopped_at_once_and_killed_after_a_grace():
    watch = Watch(workdir_lost=True)
    assert watch.decide([None, 0], 100.0) == Order(terminate=True)
    assert watch.decide([None, 0], 100.0 + TERM_GRACE_SECONDS) == Order()
    assert watch.decide([None, 0], 100.1 + TERM_GRACE_SECONDS) == Order(kill=True, done=True)


def test_the_watch_ends_when_all_launchers_ended():
    assert Watch().decide([0, 1], 0.0) == Order(done=True)


def pod(code, *, first=0, processes=1):
    place = PodPlace("a", 0, first, first, processes)
    return PodCommand(place, (sys.executable, "-c", code), dict(os.environ))


def until(condition, seconds=240.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_kill_ends_children_of_launchers_that_have_ended(tmp_path):
    code = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        "print(f'[rank 0] {child.pid}', flush=True)"
    )
    gang = Gang([pod(code)], tmp_path, 1)
    try:
        until(lambda: not gang.alive)
    finally:
        gang.kill()
    child = int(rank_log(tmp_path, 0).read_text().split()[-1])
    until(lambda: is_gone(child))
    assert gang.exit_codes() == [0]


def test_terminate_reaches_the_launcher(tmp_path):
    gang = Gang([pod("import time; print('up', flush=True); time.sleep(600)")], tmp_path, 1)
    gang.terminate()
    try:
        until(lambda: not gang.alive)
    finally:
        gang.kill()
    assert gang.exit_codes() == [143]


def test_a_launcher_that_cannot_start_ends_the_others(tmp_path):
    broken = PodCommand(PodPlace("b", 1, 0, 1, 1), ("/no/such/python",), {})
    with pytest.raises(FileNotFoundError):
        Gang([pod("import time; time.sleep(600)"), broken], tmp_path, 1)


def test_lines_are_sorted_by_rank():
    assert sort_line(b"[rank 12] hello\n") == (12, b"hello\n")
    assert sort_line(b"launcher line\n") == (None, b"launcher line\n")


ADVICE = "continue with --resume"


def test_failure_text_takes_rank_and_code_from_the_document(tmp_path):
    for rank, text in enumerate(["lost peer\n", "--- attempt 1\nboom\n--- attempt 2\nbang\n"]):
        rank_log(tmp_path, rank).write_text(text)
    text = failure_text("a-0", [0, 1], 137, failed(1, 137), tmp_path, ADVICE)
    assert text.startswith("rank 1 (pod a-0) was killed by SIGKILL; continue with --resume")
    assert "| bang" in text
    assert "boom" not in text


def test_failure_text_shows_the_message_where_the_rank_has_no_log(tmp_path):
    assert "| no such file" in failure_text("a-0", [0, 1], 3, failed(1, 3, message="no such file"), tmp_path, ADVICE)


def test_failure_text_without_a_document_names_the_pod(tmp_path):
    pod_log(tmp_path, "a-0").write_text("no memory\n")
    text = failure_text("a-0", [2, 3], 137, None, tmp_path, ADVICE)
    assert text.startswith(f"pod a-0 (ranks 2 and 3) was killed by SIGKILL; {NO_DOCUMENT}; continue with --resume")
    assert "| no memory" in text


def test_failure_text_of_a_hanging_pod_names_its_only_rank(tmp_path):
    text = failure_text("a-0", [2], None, None, tmp_path, ADVICE)
    assert text.startswith("rank 2 (pod a-0) was killed: it did not end after its peers had failed; continue")


def test_a_document_of_an_earlier_attempt_is_not_read(tmp_path):
    prepare(tmp_path, "demo", 1, {})
    assert read_failure(tmp_path, "a-0") is None
    last_words_file(tmp_path, "a-0").write_text(with_failure("", 3, 7, ["bang"], 5.0) + "\n")
    assert read_failure(tmp_path, "a-0") == failed(3, 7, 5.0, "bang").model_copy(update={"tail": ("bang",)})
    prepare(tmp_path, "demo", 2, {})
    assert read_failure(tmp_path, "a-0") is None


@pytest.mark.parametrize(
    ("state", "failure", "refused"),
    [
        ("failed", failed(1, 2), True),
        ("failed", failed(1, 1), False),
        ("failed", None, False),
        ("stopped", failed(1, 2), False),
    ],
    ids=["refused", "failed", "no document", "stopped"],
)
def test_refusal_is_exit_code_2_of_a_rank(state, failure, refused):
    assert refusal(Outcome(state, (2,), 0, failure, None, 1.0)) == (failure if refused else None)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1, "exit code 1"),
        (75, "lost a peer"),
        (76, "newer attempt"),
        (78, "not finite"),
        (79, "no iteration"),
        (None, "did not end"),
    ],
)
def test_reasons(code, text):
    assert text in reason(code)
