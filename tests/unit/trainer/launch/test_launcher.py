"""The per-pod launcher: environments, root causes, real processes."""

import os
import select
import signal
import subprocess
import sys
import threading
import time

import pytest
from heterotp_api import processes, stacks
from heterotp_api.last_words import MAX_BYTES, rank_failure
from heterotp_api.names import EXIT_NAME_UNRESOLVED, EXIT_PEER_LOST, Env
from heterotp_trainer.launch import launcher
from heterotp_trainer.launch.launcher import ALLOCATOR, Launcher, is_elastic, rank_environments, root_cause, run_lock


@pytest.mark.parametrize(
    ("codes", "cause"),
    [
        ([0, 0], ("", 0)),
        ([0, 1], ("b", 1)),
        ([EXIT_PEER_LOST, 3, EXIT_PEER_LOST], ("b", 3)),
        ([EXIT_PEER_LOST, EXIT_PEER_LOST], ("a", EXIT_PEER_LOST)),
        ([EXIT_NAME_UNRESOLVED, EXIT_PEER_LOST, 4], ("c", 4)),
        ([-9, EXIT_PEER_LOST], ("a", 137)),
        ([143, 1], ("a", 143)),
    ],
)
def test_the_root_cause_is_never_a_victim(codes, cause):
    assert root_cause(list(zip("abc", codes, strict=False))) == cause


def test_ranks_count_on_from_the_pods_first():
    ranks = rank_environments({Env.FIRST_RANK: "3", Env.PROCESSES: "2", "KEPT": "yes"})
    assert [(r[Env.RANK], r[Env.LOCAL_RANK], r[Env.TP_RANK]) for r in ranks] == [("3", "0", "3"), ("4", "1", "4")]
    assert {r[Env.LOCAL_WORLD_SIZE] for r in ranks} == {"2"}
    assert all(r["KEPT"] == "yes" for r in ranks)


def test_ranks_keep_freed_memory_unless_the_environment_sets_otherwise():
    (kept,), (given,) = rank_environments({}), rank_environments({"MALLOC_MMAP_MAX_": "65536"})
    assert ALLOCATOR.items() <= kept.items()
    assert (given["MALLOC_MMAP_MAX_"], given["MALLOC_TRIM_THRESHOLD_"]) == ("65536", kept["MALLOC_TRIM_THRESHOLD_"])


def test_torch_logs_errors_only_unless_the_environment_sets_otherwise():
    (quiet,), (given,) = rank_environments({}), rank_environments({"TORCH_CPP_LOG_LEVEL": "INFO"})
    assert (quiet["TORCH_CPP_LOG_LEVEL"], given["TORCH_CPP_LOG_LEVEL"]) == ("ERROR", "INFO")


def test_a_bad_variable_is_named():
    with pytest.raises(ValueError, match="HETEROTP_PROCESSES: 'many'"):
        rank_environments({Env.PROCESSES: "many"})


def start(code, processes=2, stderr=None, **variables):
    environ = {**os.environ, Env.FIRST_RANK: "4", Env.PROCESSES: str(processes), **variables}
    command = [sys.executable, "-m", "heterotp_trainer.launch", "--", sys.executable, "-c", code]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=stderr, text=True)


def test_every_line_names_its_rank():
    with start("import os; print('I am', os.environ['RANK'])") as launcher:
        output, _ = launcher.communicate(timeout=60)
    assert sorted(output.splitlines()) == ["[rank 4] I am 4", "[rank 5] I am 5"]
    assert launcher.returncode == 0


FAILS = """
import os, sys, time
if os.environ["LOCAL_RANK"] == "1":
    print("ValueError: what went wrong", flush=True)
    sys.exit(7)
time.sleep(1)
print("a peer is lost", flush=True)
sys.exit(%d)
"""


def test_the_exit_code_is_the_failed_ranks_and_the_last_line_names_the_rank():
    with start(FAILS % EXIT_PEER_LOST, stderr=subprocess.STDOUT) as launcher:
        output, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 7
    last = "heterotp launcher: rank 5 ended with exit code 7: ValueError: what went wrong"
    assert output.splitlines()[-1] == last


def test_a_failure_is_written_as_a_document_after_that_of_rank_0(tmp_path):
    left = tmp_path / "termination-log"
    left.write_text('{"of": "rank 0"}')
    started = time.time()
    with start(FAILS % EXIT_PEER_LOST, stderr=subprocess.STDOUT, **{Env.LAST_WORDS: str(left)}) as launcher:
        launcher.communicate(timeout=60)
    text = left.read_text()
    failure = rank_failure(text)
    assert (failure.rank, failure.exit_code, failure.message) == (5, 7, "ValueError: what went wrong")
    assert started <= failure.ended_at <= time.time()
    assert text.splitlines()[0] == '{"of": "rank 0"}'


RAISES = """
import os, time
if os.environ["LOCAL_RANK"] == "1":
    raise ValueError("what went wrong")
time.sleep(1)
print("output of another rank", flush=True)
"""


def test_the_document_carries_the_traceback_of_the_failed_rank(tmp_path):
    left = tmp_path / "termination-log"
    with start(RAISES, stderr=subprocess.STDOUT, **{Env.LAST_WORDS: str(left)}) as launcher:
        launcher.communicate(timeout=60)
    tail = rank_failure(left.read_text()).tail
    assert tail[0] == "Traceback (most recent call last):"
    assert tail[1].startswith('  File "<string>", line 4')
    assert tail[-1] == "ValueError: what went wrong"


MANY = """
for number in range(1000):
    print(number, "x" * 5000)
raise SystemExit(3)
"""


def test_lines_of_a_tail_are_cut(tmp_path):
    left = tmp_path / "termination-log"
    with start(MANY, processes=1, stderr=subprocess.STDOUT, **{Env.LAST_WORDS: str(left)}) as launcher:
        launcher.communicate(timeout=60)
    assert left.stat().st_size <= MAX_BYTES
    tail = rank_failure(left.read_text()).tail
    assert [line.split()[0] for line in tail] == ["997", "998", "999"] and {len(line) for line in tail} == {1000}


def test_a_stop_is_no_failure_and_a_file_that_cannot_be_written_changes_no_exit_code(tmp_path):
    left = tmp_path / "termination-log"
    for code, path in ((143, left), (3, tmp_path / "missing" / "log")):
        with start(f"raise SystemExit({code})", stderr=subprocess.STDOUT, **{Env.LAST_WORDS: str(path)}) as launcher:
            launcher.communicate(timeout=60)
        assert (launcher.returncode, path.exists()) == (code, False)


WAITS = """
import os, signal, sys, threading
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: (print("stopping", flush=True), sys.exit(143)))
print(os.getpid(), flush=True)
stop.wait()
"""


def pids(launcher, count=2):
    return [int(launcher.stdout.readline().split("] ")[1]) for _ in range(count)]


def test_a_signal_reaches_every_rank():
    with start(WAITS) as launcher:
        pids(launcher)
        launcher.send_signal(signal.SIGTERM)
        output, _ = launcher.communicate(timeout=60)
    assert output.count("stopping") == 2
    assert launcher.returncode == 143


def test_ranks_do_not_outlive_a_killed_launcher():
    with start(WAITS) as launcher:
        handles = [os.pidfd_open(pid) for pid in pids(launcher)]
        launcher.kill()
        for handle in handles:
            assert select.select([handle], [], [], 30)[0]
            os.close(handle)


TALKS_AT_THE_END = """
import os, signal, sys, threading
def stop(*_):
    for _ in range(10_000):
        print("x" * 100)
    sys.stdout.flush()
    os._exit(3)
signal.signal(signal.SIGTERM, stop)
print(os.getpid(), flush=True)
threading.Event().wait()
"""


def test_a_rank_does_not_block_on_output_that_nobody_reads():
    with start(TALKS_AT_THE_END, processes=1, stderr=subprocess.DEVNULL) as launcher:
        pids(launcher, 1)
        launcher.stdout.close()
        launcher.send_signal(signal.SIGTERM)
        try:
            assert launcher.wait(timeout=60) == 3
        finally:
            launcher.kill()


def test_ranks_inherit_the_lock_of_a_local_run(tmp_path):
    assert run_lock({}) == run_lock({Env.RUN_LOCK: "no"}) == run_lock({Env.RUN_LOCK: "99999"}) == ()
    with (tmp_path / "run.lock").open("w") as lock:
        assert run_lock({Env.RUN_LOCK: str(lock.fileno())}) == (lock.fileno(),)


def test_the_launcher_needs_no_torch():
    code = "import sys, heterotp_trainer.launch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


HOLDS = """
import ctypes, signal
from heterotp_api import stacks

def hold_interpreter():
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    print("holding", flush=True)
    library.pthread_mutex_lock(mutex)

signal.signal(signal.SIGTERM, lambda *_: None)
stacks.answer()
hold_interpreter()
"""


def held(lines):
    return [line for line in lines if line.endswith(" in hold_interpreter")]


@pytest.fixture
def launched():
    """A function that makes a launcher in this process; its ranks are killed at the end."""
    made = []

    def make(code, ranks=1, shell="", elastic=False):
        command = [sys.executable, "-c", code]
        command = ["sh", "-c", f'{shell}; "$@"; exit $?', "sh", *command] if shell else command
        environments = rank_environments({**os.environ, Env.PROCESSES: str(ranks)})
        made.append(Launcher(command, environments, elastic=elastic))
        return made[-1]

    yield make
    for each in made:
        for child, reader in zip(each._children, each._readers, strict=True):
            child.kill()
            child.wait()
            reader.join(60)
            child.stdout.close()


def until(holds, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("shell", ["", "trap '' TERM"])
def test_a_rank_that_runs_long_after_a_stop_shows_its_stacks_once(launched, monkeypatch, shell):
    monkeypatch.setattr(launcher, "STACKS_SECONDS", 0.2)
    hanging = launched(HOLDS, shell=shell)
    until(lambda: "holding" in hanging._output["0"])
    hanging.signal(signal.SIGTERM)
    watched = threading.Thread(target=hanging.wait)
    watched.start()
    until(lambda: held(hanging._output["0"]) and hanging._shown)
    (asked,) = stacks.ask(hanging._children[0].pid)  # again, to know that the launcher asks no more
    until(lambda: len(held(hanging._output["0"])) == 2)
    assert hanging._children[0].poll() is None, "it is not the launcher that ends it"
    os.kill(asked, signal.SIGKILL)
    watched.join(60)
    assert len(held(hanging._output["0"])) == 2


ONE_FAILS = """
import os
if os.environ["LOCAL_RANK"] == "0":
    raise SystemExit(75)
"""


def test_a_rank_that_hangs_after_its_peer_shows_its_stacks_and_a_line_behind_them(launched, monkeypatch, capsys):
    monkeypatch.setattr(launcher, "PEER_GRACE_SECONDS", 0.0)
    monkeypatch.setattr(launcher, "KILL_GRACE_SECONDS", 0.5)
    hanging = launched(ONE_FAILS + HOLDS, ranks=2)
    monkeypatch.setattr(
        hanging, "_end", lambda running, end=hanging._end: "holding" in hanging._output["1"] and end(running)
    )
    assert hanging.wait() == 128 + signal.SIGKILL
    output = capsys.readouterr()
    assert len(held(output.out.splitlines())) == 1
    words = "rank 1 ended with exit code 137: it did not end by itself; the lines above are its stacks"
    assert output.err == f"heterotp launcher: {words}\n"


def test_a_process_that_does_not_answer_is_not_asked():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as silent:
        assert stacks.ask(silent.pid) == []
        silent.stdin.close()
        assert silent.wait(60) == 1, "no signal has ended it"
    assert stacks.ask(silent.pid) == []


LOST = """
import os, signal, time
if os.environ["LOCAL_RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0.5)
"""


@pytest.mark.parametrize(("policy", "code"), [("{}", 137), ('{"elastic": {"minRanks": 1}}', 0)])
def test_the_end_of_the_others_counts_where_they_go_on_without_a_rank(policy, code):
    with start(LOST, **{Env.SPEC: f'{{"runPolicy": {policy}}}'}) as launcher:
        launcher.communicate(timeout=60)
    assert launcher.returncode == code


SAVES = """
import os, signal, sys, time
if os.environ["LOCAL_RANK"] == "1":
    raise SystemExit(81)
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), print("saved", flush=True), sys.exit(143)))
print("trains", flush=True)
while True:
    time.sleep(0.05)
"""


def test_a_rank_that_was_lost_before_a_stop_gives_the_others_no_deadline_for_their_last_checkpoint(
    launched, monkeypatch
):
    monkeypatch.setattr(processes, "TERM_GRACE_SECONDS", 0.0)
    monkeypatch.setattr(processes, "LEFT_BEHIND_SECONDS", 0.0)
    stopped = launched(SAVES, ranks=2, elastic=True)
    watched = threading.Thread(target=stopped.wait)
    watched.start()
    until(lambda: "1" in stopped._ended_at and "trains" in stopped._output["0"])
    stopped.signal(signal.SIGTERM)
    watched.join(60)
    assert stopped._children[0].returncode == 143 and "saved" in stopped._output["0"]


@pytest.mark.parametrize(
    ("spec", "found"),
    [('{"runPolicy": {"elastic": {"minRanks": 1}}}', True), ('{"runPolicy": {}}', False), ("no JSON", False)],
)
def test_whether_ranks_go_on_without_others_is_in_the_spec(spec, found):
    assert is_elastic({Env.SPEC: spec}) == found
