"""The thread of every rank that sends where it is, and ends the gang past the deadline or after a stop in vain."""

import os
import signal
import socket
import time
from types import SimpleNamespace

import pytest
from heterotp_api.names import EXIT_NO_PROGRESS, EXIT_PEER_LOST, EXIT_STOPPED
from heterotp_trainer.boundary import heartbeat, stall
from heterotp_trainer.boundary.heartbeat import Heartbeat
from heterotp_trainer.boundary.stall import Place
from heterotp_trainer.devices.whereabouts import Whereabouts
from support.patience import COMPUTING_SECONDS
from torch.distributed import HashStore


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(heartbeat, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr(heartbeat, "SOON_SECONDS", 0.01)
    monkeypatch.setattr(heartbeat, "REPLY_SECONDS", 0.2)
    monkeypatch.setattr(stall, "LEAST_SECONDS", 0.1)
    monkeypatch.setattr(stall, "UNKNOWN_SECONDS", 0.1)


@pytest.fixture
def gang(monkeypatch):
    """Return a function that makes the heartbeats of a gang in this process; what they do is noted."""
    made = []
    monkeypatch.setattr(heartbeat.atexit, "register", lambda function: None)
    monkeypatch.setattr(heartbeat.atexit, "unregister", lambda function: None)
    monkeypatch.setattr(heartbeat.faulthandler, "dump_traceback", lambda *args, **more: None)

    def make(ranks=2, deadline=None):
        store = HashStore()
        for rank in range(ranks):
            notes = SimpleNamespace(ends=[], shown=[], where=Whereabouts(), store=store)
            beating = Heartbeat(
                store,
                rank,
                ranks,
                notes.where,
                SimpleNamespace(current="data"),
                lambda message, code, notes=notes: ending(notes, message, code),
                notes.shown.append,
                deadline,
            )
            notes.beating = beating
            made.append(notes)
        return made

    def ending(notes, message, code):  # of the process, where the thread ends with it
        notes.ends.append((message, code))
        notes.beating.stop()

    yield make
    for notes in made:
        notes.beating.stop()


def until(condition):
    deadline = time.monotonic() + COMPUTING_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found


def start(ranks):
    for notes in ranks:
        notes.beating.start()


def test_every_rank_sends_its_place(gang):
    _, second = gang()
    start([second])
    second.where.reason = "a checkpoint is written"
    with second.where.waiting("the sum of fc2"):
        key = "place/1"
        until(lambda: second.store.check([key]))
        found = until(lambda: (p := Place.from_json(second.store.get(key).decode())).reason and p)
    assert (found.phase, found.waits_for, found.reason) == ("data", "the sum of fc2", "a checkpoint is written")
    second.beating.iteration_ended()
    assert until(lambda: Place.from_json(second.store.get(key).decode()).iteration == 1)


def test_rank_0_shows_a_stall_until_an_iteration_ends(gang):
    first, second = gang()
    start([first, second])
    with first.where.waiting("the sum of fc2"):
        seen = until(lambda: next((s for s in first.shown if s is not None and s.culprits == (1,)), None))
    assert "rank 1 is still computing (data, since " in seen.where
    until(lambda: first.beating.iteration_ended() or first.shown[-1] is None)
    assert second.shown == [] and first.ends == second.ends == []


def test_progress_that_is_no_iteration_is_no_stall(gang):
    first, second = gang()
    start([first, second])
    until(lambda: first.beating.stall is not None)
    until(lambda: first.beating.progress() or first.beating.stall is None)
    assert first.where.iteration == 0


def test_idle_seconds_count_on_when_the_thread_has_ended_and_hold_no_known_reason(gang, monkeypatch):
    first, second = gang()
    assert first.beating.idle_seconds() < COMPUTING_SECONDS
    start([first, second])
    second.where.reason = "a checkpoint is written"
    until(lambda: first.beating.idle_seconds() is None)
    first.beating.stop()
    monkeypatch.setattr(heartbeat, "UNSEEN_SECONDS", 0.01)
    before = until(first.beating.idle_seconds)
    until(lambda: first.beating.idle_seconds() > before)
    with first.where.busy("a checkpoint"):
        assert first.beating.idle_seconds() is None


def test_past_the_deadline_every_rank_ends_with_the_message_and_the_hanging_one_with_its_own_code(gang):
    first, second, third = gang(3, deadline=0.5)
    start([first, second, third])
    waits = [notes.where.waiting("the sum of fc2") for notes in (first, third)]
    for each in waits:
        each.__enter__()
    until(lambda: first.ends and second.ends and third.ends)
    ((text, code),) = first.ends
    assert text.startswith("no iteration for ") and "rank 1 is still computing" in text
    assert (second.ends, third.ends, code) == ([(text, EXIT_NO_PROGRESS)], [(text, EXIT_PEER_LOST)], EXIT_PEER_LOST)


def test_rank_0_waits_until_the_others_have_read_why(gang, monkeypatch):
    first, second = gang(deadline=0.2)
    monkeypatch.setattr(heartbeat, "REPLY_SECONDS", COMPUTING_SECONDS)
    start([first])
    until(lambda: first.store.check(["ends/0"]))  # it is about to end
    assert not first.ends
    start([second])
    until(lambda: first.ends and second.ends)


def test_the_training_loop_gives_way_while_the_gang_is_ended(gang, monkeypatch):
    """The others end first, which the loop of rank 0 takes for lost peers."""
    first, second = gang(deadline=0.2)
    monkeypatch.setattr(heartbeat, "REPLY_SECONDS", COMPUTING_SECONDS)
    first.beating.give_way()  # nothing ends: returns at once
    start([first])
    until(lambda: first.store.check(["ends/0"]))
    start([second])
    first.beating.give_way()
    assert first.ends


def test_rank_0_ends_without_an_answer_of_a_silent_rank(gang):
    first, _ = gang(deadline=0.2)
    start([first])
    ((text, code),) = until(lambda: first.ends)
    assert "rank 1 has sent no heartbeat" in text and code == EXIT_NO_PROGRESS


@pytest.fixture
def signals():
    """Return a function that makes a rank follow signals; the wake-up of Python is put back."""
    before = signal.set_wakeup_fd(-1)
    handler = signal.signal(signal.SIGTERM, lambda number, frame: None)
    yield
    signal.signal(signal.SIGTERM, handler)
    signal.set_wakeup_fd(before)


def test_a_stop_ends_a_gang_whose_stall_is_shown_also_where_all_ranks_compute(gang, signals, monkeypatch):
    monkeypatch.setattr(stall, "STOP_SECONDS", 0.2)
    first, second = gang()
    first.beating.follow_signals()
    start([first, second])
    signal.raise_signal(signal.SIGTERM)
    until(lambda: first.ends and second.ends)
    (text, code), *_ = first.ends
    assert "rank 0 is still computing" in text and "rank 1 is still computing" in text and code == EXIT_STOPPED


def test_a_stop_in_vain_ends_the_gang(gang, signals, monkeypatch):
    monkeypatch.setattr(stall, "COMPUTING_STOP_SECONDS", 0.2)
    monkeypatch.setattr(stall, "UNKNOWN_SECONDS", 2 * COMPUTING_SECONDS)
    first, second = gang()
    first.beating.follow_signals()
    start([first, second])
    signal.raise_signal(signal.SIGTERM)
    until(lambda: first.ends and second.ends)
    (text, code), *_ = first.ends
    assert text.startswith("stopped without a last checkpoint: ") and code == EXIT_STOPPED
    assert second.ends == [(text, EXIT_STOPPED)]


def test_a_stop_that_an_iteration_carries_out_ends_nothing(gang, signals, monkeypatch):
    monkeypatch.setattr(stall, "COMPUTING_STOP_SECONDS", 0.2)
    first, _ = gang()
    first.beating.follow_signals()
    start([first])
    signal.raise_signal(signal.SIGTERM)
    until(lambda: first.beating._stop_asked is not None)
    first.beating.iteration_ended()
    asked = time.monotonic()
    until(lambda: first.beating.iteration_ended() or time.monotonic() > asked + 0.5)
    assert not first.ends


def test_a_rank_whose_rank_0_hangs_too_ends_itself(gang, signals, monkeypatch):
    monkeypatch.setattr(stall, "STOP_SECONDS", 0.1)
    _, second = gang()
    second.beating.follow_signals()
    start([second])
    signal.raise_signal(signal.SIGTERM)
    (text, code), *_ = until(lambda: second.ends)
    assert text.startswith("stopped without a last checkpoint: no iteration in ") and code == EXIT_STOPPED


def test_a_stop_waits_for_a_checkpoint_of_rank_0(gang, signals, monkeypatch):
    """Another rank has left the checkpoint and waits; only rank 0's place shows why."""
    monkeypatch.setattr(stall, "COMPUTING_STOP_SECONDS", 0.1)
    monkeypatch.setattr(stall, "STOP_SECONDS", 0.1)
    first, second = gang()
    second.beating.follow_signals()
    with first.where.busy("a checkpoint"):
        start([first])
        until(lambda: first.store.check(["place/0"]))
        start([second])
        signal.raise_signal(signal.SIGTERM)
        until(lambda: second.beating._stop_asked is not None)
        asked = time.monotonic()
        until(lambda: time.monotonic() > asked + 0.6)
        assert not second.ends and not first.ends
    until(lambda: second.ends)


def test_a_signal_to_a_forked_child_is_not_the_ranks(gang, signals):
    """As `Pool.terminate()` sends to its workers."""
    first, _ = gang()
    first.beating.follow_signals()
    start([first])
    ready, told = os.pipe()
    child = os.fork()
    if not child:
        os.write(told, b"x")
        signal.pause()
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM
    beats = first.beating._beat
    until(lambda: first.beating._beat > beats + 2)
    assert first.beating._stop_asked is None


def test_a_collective_without_a_name_is_waited_for_too(gang):
    first, _ = gang()
    first.beating._clock.current = "wait"
    assert first.beating._place().waits_for == "a collective"


def test_a_rank_ends_where_its_stacks_cannot_be_written(gang, monkeypatch):
    def full(*arguments, **more):
        raise OSError(28, "No space left on device")

    first, _ = gang(deadline=0.2)
    monkeypatch.setattr(heartbeat.faulthandler, "dump_traceback", full)
    start([first])
    until(lambda: first.ends)


def test_a_heartbeat_that_ended_is_forgotten(monkeypatch):
    registered = []
    monkeypatch.setattr(heartbeat.atexit, "register", registered.append)
    monkeypatch.setattr(heartbeat.atexit, "unregister", registered.remove)
    beating = Heartbeat(HashStore(), 0, 1, Whereabouts(), SimpleNamespace(current=""), print, print)
    beating.start()
    assert registered
    beating.stop()
    assert not registered


def test_a_store_that_is_gone_ends_the_thread_and_not_the_rank(gang, monkeypatch):
    first, _ = gang()

    def gone(*_):
        raise RuntimeError("connection reset")

    first.beating._store = SimpleNamespace(set=gone)
    start([first])
    first.beating._thread.join(COMPUTING_SECONDS)
    assert not first.beating._thread.is_alive() and not first.ends


def test_a_stopped_heartbeat_gives_pythons_wake_up_back(gang, signals):
    first, _ = gang()
    first.beating.follow_signals()
    start([first])
    first.beating.stop()
    assert not first.beating._thread.is_alive()
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    assert signal.set_wakeup_fd(writer.fileno()) == -1
    signal.set_wakeup_fd(-1)
    reader.close()
    writer.close()
