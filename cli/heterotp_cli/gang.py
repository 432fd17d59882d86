"""The launcher processes of a local gang: start, watch and stop them, so that none outlives the command."""

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heterotp_api.last_words import RankFailure
from heterotp_api.names import EXIT_STOPPED, VICTIM_EXITS, Env
from heterotp_api.processes import die_with_parent, is_left_behind

from heterotp_cli.logs import LogSorter
from heterotp_cli.pods import PodCommand

ROOT_CAUSE_GRACE_SECONDS = 15.0  # for the peers of a dead rank to notice; longer than the launcher's own grace


@dataclass
class Pod:
    """One launcher and the process group that holds its ranks."""

    command: PodCommand
    process: subprocess.Popen[bytes]


class Gang:
    """All pods of one attempt; every launcher leads its own process group."""

    def __init__(self, commands: Sequence[PodCommand], logs: Path, attempt: int, lock: int | None = None) -> None:
        """Start all launchers; where one cannot start, kill those before it and raise.

        lock: file descriptor of the run directory's lock, which launchers and ranks inherit.
        """
        self.pods: list[Pod] = []
        self._sorters: list[LogSorter] = []
        try:
            for command in commands:
                self.pods.append(Pod(command, _start(command, lock)))
            # threads only after the last fork
            self._sorters = [_sorter(pod, logs, attempt) for pod in self.pods]
        except BaseException:
            self.kill()
            raise

    def exit_codes(self) -> list[int | None]:
        """Return the exit code of each launcher; None while it runs, 128 + n when signal n killed it."""
        return [_shell_code(pod.process.poll()) for pod in self.pods]

    @property
    def alive(self) -> bool:
        """True while a launcher runs."""
        return any(pod.process.poll() is None for pod in self.pods)

    def terminate(self) -> None:
        """Send SIGTERM, upon which all ranks write a last checkpoint; launchers pass it on."""
        for pod in self.pods:
            if pod.process.poll() is None:
                pod.process.terminate()

    def kill(self) -> None:
        """Kill every process group, also of launchers that have ended, and reap the launchers."""
        for pod in self.pods:
            try:
                os.killpg(pod.process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):  # empty group
                continue
        for pod in self.pods:
            pod.process.wait()
            if not self._sorters and pod.process.stdout is not None:
                pod.process.stdout.close()
        for sorter in self._sorters:
            sorter.close()


def _start(command: PodCommand, lock: int | None) -> subprocess.Popen[bytes]:
    inherited = {} if lock is None else {Env.RUN_LOCK: str(lock)}
    return subprocess.Popen(
        command.arguments,
        env={**command.environment, **inherited},
        pass_fds=() if lock is None else (lock,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C of the terminal reaches the CLI alone
        preexec_fn=die_with_parent(signal.SIGTERM),
    )


def _sorter(pod: Pod, logs: Path, attempt: int) -> LogSorter:
    assert pod.process.stdout is not None
    return LogSorter(pod.process.stdout, logs, pod.command.name, pod.command.ranks, attempt)


def _shell_code(code: int | None) -> int | None:
    return 128 - code if code is not None and code < 0 else code


@dataclass(frozen=True)
class Order:
    """The next action: `terminate` and `kill` act on the gang, `done` ends the watch."""

    terminate: bool = False
    kill: bool = False
    done: bool = False


@dataclass
class Watch:
    """Decisions by exit codes, interrupts, the loss of the run directory and a clock (seconds). Pure.

    elastic: the other pods go on without one that failed, or end by themselves; where one has reached the end, those
    that are left hang.
    """

    elastic: bool = False
    interrupts: int = 0
    workdir_lost: bool = False
    failed_at: float | None = None
    terminated_at: float | None = None
    ended_at: float | None = None  # of the first launcher; elastic: of the first that was not lost while others went on
    lost: int = 0  # launchers that had ended when the gang was to stop

    def decide(self, codes: Sequence[int | None], now: float) -> Order:
        """Return the next order; a failed pod ends the gang after a grace, a second interrupt at once.

        A launcher that still runs after an interrupt and a grace, though others have ended, is killed: it hangs.
        Without a run directory the gang is stopped, because nothing that it writes would be found.
        """
        if all(code is not None for code in codes):
            return Order(done=True)
        if self.interrupts >= 2:
            return Order(kill=True, done=True)
        over = any(code in (0, EXIT_STOPPED) for code in codes) if self.elastic else has_failed(codes)
        ended = sum(code is not None for code in codes)
        if self.elastic and not over and self.terminated_at is None:
            self.lost = ended
        if self.ended_at is None and ended > self.lost:
            self.ended_at = now
        if self.failed_at is None and (over or self.workdir_lost):
            self.failed_at = now
        if self.terminated_at is None and (self.interrupts or self.workdir_lost or self._grace_is_over(now)):
            self.terminated_at = now
            return Order(terminate=True)
        ended_at = self.failed_at if self.workdir_lost else self.ended_at
        overdue = is_left_behind(now, self.terminated_at, ended_at)
        return Order(kill=overdue, done=overdue)

    def _grace_is_over(self, now: float) -> bool:
        return self.failed_at is not None and now - self.failed_at > ROOT_CAUSE_GRACE_SECONDS


def has_failed(codes: Sequence[int | None]) -> bool:
    """Return whether a launcher ended with a failure; codes: None while it runs."""
    return any(code not in (None, 0, EXIT_STOPPED) for code in codes)


def root_cause(codes: Sequence[int | None], failures: Sequence[RankFailure | None]) -> int | None:
    """Return the index of the pod that failed first; None where none failed.

    failures: the document that each pod's launcher left. First come pods that lost no peer, then pods that hang (code
    None) while others lost a peer, then those others; within each the earliest end. A launcher that left no document
    was killed or did not start its ranks, for which no peer is the cause: it comes before those with a document.
    """

    def end(index: int) -> float:
        failure = failures[index]
        return failure.ended_at or 0.0 if failure is not None else 0.0

    victims = [i for i, code in enumerate(codes) if code in VICTIM_EXITS]
    causes = [i for i, code in enumerate(codes) if code not in (None, 0, EXIT_STOPPED, *VICTIM_EXITS)]
    hanging = [i for i, code in enumerate(codes) if code is None and victims]
    return next(iter([*sorted(causes, key=end), *hanging, *sorted(victims, key=end)]), None)
