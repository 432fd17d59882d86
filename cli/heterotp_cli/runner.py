"""Runs one attempt of a gang on this machine and shows its status."""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from heterotp_api.last_words import RankFailure
from heterotp_api.names import EXIT_STOPPED, VICTIM_EXITS
from heterotp_api.report import RunState
from heterotp_api.trainer_status import TrainerStatus

from heterotp_cli.follow import read_failure, read_status
from heterotp_cli.gang import Gang, Watch, root_cause
from heterotp_cli.live import View
from heterotp_cli.pods import PodCommand
from heterotp_cli.run_lock import is_in
from heterotp_cli.workdir import LOGS

POLL_SECONDS = 0.2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended.

    codes: of the launchers, None for one that had to be killed. blamed: the index of the pod that failed first, None
    where none failed. failure: the document that its launcher left, None without one. workdir_lost: whether the run
    directory was removed or replaced meanwhile.
    """

    state: RunState  # succeeded, stopped or failed
    codes: tuple[int | None, ...]
    blamed: int | None
    failure: RankFailure | None
    status: TrainerStatus | None
    elapsed_seconds: float
    workdir_lost: bool = False


def train(
    commands: Sequence[PodCommand], workdir: Path, attempt: int, view: View, lock: int, *, elastic: bool = False
) -> Outcome:
    """Start the gang and follow it to its end; no process of it is left.

    lock: file descriptor of the run directory's lock. elastic: see Watch.
    """
    watch, wake = Watch(elastic=elastic), threading.Event()
    started = time.monotonic()
    status: TrainerStatus | None = None
    with _interrupts(watch, wake, view):
        gang = Gang(commands, workdir / LOGS, attempt, lock)
        try:
            while True:
                watch.workdir_lost |= not is_in(workdir, lock)
                codes = gang.exit_codes()  # read before the status, so that after the end the last status is read
                status = read_status(workdir, attempt) or status
                if status is not None:
                    with suppress(OSError):  # a closed terminal must not end the training
                        view.show(status)
                order = watch.decide(codes, time.monotonic())
                if order.terminate:
                    gang.terminate()
                if order.done:
                    break
                wake.wait(POLL_SECONDS)
                wake.clear()
        finally:
            gang.kill()
    failures = [read_failure(workdir, command.name) for command in commands]
    blamed = root_cause(codes, failures)
    failure = None if blamed is None else failures[blamed]
    lost = watch.workdir_lost or not is_in(workdir, lock)
    state: RunState = "failed" if lost else state_of(codes, watch.interrupts, elastic=elastic)
    return Outcome(state, tuple(codes), blamed, failure, status, time.monotonic() - started, lost)


def state_of(codes: Sequence[int | None], interrupts: int, *, elastic: bool = False) -> RunState:
    """Return how the attempt ended, from the launchers' exit codes (None: killed as overdue) and the interrupts.

    elastic: where some pods have reached the end, the gang has, without those that were lost.
    """
    if elastic:
        codes = [code for code in codes if code in (0, EXIT_STOPPED)] or codes
    if all(code == 0 for code in codes):
        return "succeeded"
    well: set[int | None] = {0, EXIT_STOPPED}
    if interrupts:
        well |= {None, *VICTIM_EXITS}  # of a rank that was stopped before it could do so together with the others
    return "stopped" if all(code in well for code in codes) else "failed"


@contextmanager
def _interrupts(watch: Watch, wake: threading.Event, view: View) -> Iterator[None]:
    """Count Ctrl-C (and SIGTERM, SIGHUP), which then do not end this process."""

    def count(number: int, frame: FrameType | None) -> None:
        watch.interrupts += 1
        wake.set()
        action = "killing all ranks" if watch.interrupts > 1 else "stopping after a last checkpoint; Ctrl-C again kills"
        with suppress(OSError):
            view.note(action)

    before = {number: signal.signal(number, count) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
