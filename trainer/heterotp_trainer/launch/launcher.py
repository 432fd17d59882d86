"""The per-pod launcher: `python -m heterotp_trainer.launch [-- COMMAND ...]`.

Starts this pod's ranks (the built-in trainer, or the given command), each with torchrun's variables, forwards
signals to them, prefixes every line of output with its rank, and ends with the exit code of the root cause. It does not
import torch.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

from heterotp_api import stacks
from heterotp_api.names import EXIT_BAD_INPUT, EXIT_STOPPED, RANK_LINE_PREFIX, VICTIM_EXITS, Env
from heterotp_api.processes import die_with_parent, is_left_behind

from heterotp_trainer.launch.comebacks import Comebacks
from heterotp_trainer.launch.cpus import usable_cpus

ORPHAN_GRACE_SECONDS = 10.0  # time for a last checkpoint after the command line was killed
PEER_GRACE_SECONDS = 10.0  # time in which the other ranks detect that a rank died
KILL_GRACE_SECONDS = 5.0
STACKS_SECONDS = 20.0  # from a stop, after which a rank that still runs shows where: a kubelet kills it after 30
POLL_SECONDS = 0.05
STARTS_AGAIN = 3  # of a lost rank in a row, where runPolicy.backoffLimit is absent
TAIL_LINES = 80  # of a rank's output that are kept for the file of last words
TAIL_LINE_CHARACTERS = 1000
# glibc keeps freed memory: every iteration allocates the same sizes, and zeroed pages cost as much as copying columns
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**33)}
# torch reads this when it loads. Below ERROR, c10d prints a C++ stack of 14 lines in each rank whose peer has ended, in
# front of the line that names the cause
TORCH_LOG = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
BUILT_IN = [sys.executable, "-P", "-m", "heterotp_trainer"]  # -P: imports nothing from the current directory


def rank_environments(environ: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the environment of each local rank; raises ValueError naming a variable that is missing or wrong."""
    first, count = _whole(environ, Env.FIRST_RANK, 0), _whole(environ, Env.PROCESSES, 1)
    threads = max(1, usable_cpus() // max(1, count))
    return [
        {
            "OMP_NUM_THREADS": str(threads),  # torch's own default is all CPUs of the node, for every rank
            **ALLOCATOR,
            **TORCH_LOG,
            **environ,
            Env.RANK: str(first + local),
            Env.LOCAL_RANK: str(local),
            Env.LOCAL_WORLD_SIZE: str(count),
            Env.TP_RANK: str(first + local),  # one TP group: rank and tpRank are the same
            Env.TP_GROUP: "0",
        }
        for local in range(count)
    ]


def _whole(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, str(default))
    if not text.isdigit():
        raise ValueError(f"{name}: {text!r} must be a whole number")
    return int(text)


def is_elastic(environ: Mapping[str, str]) -> bool:
    """Return whether the job's ranks go on without those that are lost; a spec that is no JSON: they refuse it."""
    try:
        return bool((json.loads(environ.get(Env.SPEC, "{}")).get("runPolicy") or {}).get("elastic"))
    except (ValueError, AttributeError):
        return False


def comebacks_of(environ: Mapping[str, str]) -> Comebacks | None:
    """Return how lost ranks are started again, as the job's spec has it; None: they are not."""
    try:
        policy = json.loads(environ.get(Env.SPEC, "{}")).get("runPolicy") or {}
        if not policy.get("elastic") or policy["elastic"].get("rejoin") is False:
            return None
        if not environ.get(Env.RENDEZVOUS_SECRET):  # without it nobody is let in
            return None
        return Comebacks(int(policy.get("backoffLimit", STARTS_AGAIN)))
    except (ValueError, TypeError, AttributeError):
        return None


def root_cause(ends: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """Return rank and exit code of the root cause of a pod's end; ends: in the order in which the ranks ended.

    The code -N of a signal becomes 128 + N. A victim of a lost peer is the root cause only without another failure.
    """
    bad = [(rank, 128 - code if code < 0 else code) for rank, code in ends if code]
    return next((end for end in bad if end[1] not in VICTIM_EXITS), bad[0] if bad else ("", 0))


def run_lock(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return the open file descriptors that ranks inherit: of a local run's lock, where there is one."""
    text = environ.get(Env.RUN_LOCK, "")
    try:
        os.fstat(int(text))
    except (ValueError, OSError):  # none, or a command in between has closed it
        return ()
    return (int(text),)


class Launcher:
    """The local ranks of one pod."""

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        *,
        elastic: bool = False,
        comebacks: Comebacks | None = None,
    ) -> None:
        """elastic: the other ranks go on without one that is lost, or end by themselves.

        comebacks: how lost ranks are started again.
        """
        self._elastic, self._comebacks = elastic, comebacks
        self._command, self._environments = command, environments
        self._due: dict[int, float] = {}  # monotonic seconds at which the rank of this index is started again
        self._started: dict[int, float] = {}  # monotonic seconds
        self._stopped_at: float | None = None  # monotonic seconds
        self._parent = os.getppid()
        self._orphaned_at: float | None = None  # monotonic seconds
        self._children: list[subprocess.Popen[str]] = []
        self._ranks = [environment[Env.RANK] for environment in environments]
        self._output: dict[str, deque[str]] = {rank: deque(maxlen=TAIL_LINES) for rank in self._ranks}
        self._ended_at: dict[str, float] = {}  # unix seconds
        self._readers: list[threading.Thread] = []
        self._asked: set[int] = set()  # indexes of ranks that were asked for their stacks
        self._shown: set[int] = set()  # and that wrote them
        path = environments[0].get(Env.LAST_WORDS) if environments else None
        self._last_words = Path(path) if path else None
        for index, environment in enumerate(environments):
            self._children.append(self._start(index, environment))

    def _start(self, index: int, environment: Mapping[str, str]) -> "subprocess.Popen[str]":
        """Return the process of a rank, whose output is read from now on."""
        child = subprocess.Popen(
            self._command,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=run_lock(environment),
            preexec_fn=die_with_parent(signal.SIGKILL),  # no orphans, however the launcher ends
        )
        assert child.stdout is not None
        reader = threading.Thread(target=self._forward, args=(child.stdout, environment[Env.RANK]), daemon=True)
        reader.start()
        self._readers.append(reader)
        self._started[index] = time.monotonic()
        return child

    def _start_again(self, now: float, *, over: bool) -> set[int]:
        """Start lost ranks whose time has come; return their indexes. over: the gang ends, nobody comes back."""
        if over or self._stopped_at is not None:
            self._due.clear()
        ready = {index for index, due in self._due.items() if due <= now}
        for index in ready:
            del self._due[index]
            assert self._comebacks is not None
            number = self._comebacks.number[index]
            rank = self._ranks[index]
            with suppress(OSError):  # the command line was killed
                print(f"heterotp launcher: rank {rank} is started again", file=sys.stderr, flush=True)
            self._children[index] = self._start(index, {**self._environments[index], Env.COMEBACK: str(number)})
            if self._stopped_at is not None:  # meanwhile
                self._children[index].send_signal(signal.SIGTERM)
        return ready

    def _plan_comebacks(self, ended: Iterable[int], now: float) -> None:
        for index in ended if self._comebacks is not None else ():
            assert self._comebacks is not None
            due = self._comebacks.due(index, self._children[index].returncode, self._started[index], now)
            if due is not None:
                self._due[index] = due

    def signal(self, number: int, frame: FrameType | None = None) -> None:
        """Forward a signal to all ranks that run."""
        self._stopped_at = self._stopped_at or time.monotonic()
        for child in self._children:
            if child.poll() is None:
                child.send_signal(number)

    def wait(self) -> int:
        """Return the exit code when all ranks have ended; after a failure the other ranks are ended after a grace."""
        ends = self._ends()
        if self._elastic:  # where some rank has reached the end, the gang has, without those that were lost
            ends = [end for end in ends if end[1] in (0, EXIT_STOPPED)] or ends
        for reader in self._readers:
            reader.join(timeout=KILL_GRACE_SECONDS)
        for index in self._shown:  # behind the stacks, which must not stand for what the rank has said last
            self._output[self._ranks[index]].append("it did not end by itself; the lines above are its stacks")
        rank, code = root_cause(ends)
        if code:
            last_line = self._output[rank][-1].strip() if self._output[rank] else "it wrote no output"
            with suppress(OSError):  # the command line was killed
                print(f"heterotp launcher: rank {rank} ended with exit code {code}: {last_line}", file=sys.stderr)
            self._leave_failure(rank, code)
        if self._orphaned_at is not None:
            self._kill()  # what the ranks have started
        return code

    def _ends(self) -> list[tuple[str, int]]:
        """Wait for the end of all ranks; return rank and exit code of each, in the order in which they ended."""
        ends: list[tuple[str, int]] = []
        running = set(range(len(self._children)))
        deadline: float | None = None
        first_end: float | None = None  # monotonic seconds, as the deadline
        while running or self._due:
            ended = [index for index in running if self._children[index].poll() is not None]
            ends += [(self._ranks[index], self._children[index].returncode) for index in ended]
            self._ended_at |= {self._ranks[index]: time.time() for index in ended}
            running -= set(ended)
            now = time.monotonic()
            self._plan_comebacks(ended, now)
            over = any(code in (0, EXIT_STOPPED) if self._elastic else code for _, code in ends)
            if ended and first_end is None and (over or not self._elastic or self._stopped_at is not None):
                first_end = now  # a rank that was lost while the others went on says nothing about a later stop
            if deadline is None and over and self._stopped_at is None:
                deadline = now + PEER_GRACE_SECONDS
            if deadline is not None and now > deadline:
                self._end(running)
            running |= self._start_again(now, over=over)
            if running and is_left_behind(now, self._stopped_at, first_end):
                return ends + self._kill_left_behind(running)
            if self._stopped_at is not None and now - self._stopped_at > STACKS_SECONDS:
                self._show_stacks(running)
            self._end_as_orphan(now)
            time.sleep(POLL_SECONDS)
        return ends

    def _kill_left_behind(self, running: Iterable[int]) -> list[tuple[str, int]]:
        """Kill the ranks that hang after a stop; return them as stopped, for the others' ends explain more."""
        self._show_stacks(running)
        for index in running:
            self._children[index].kill()
            with suppress(subprocess.TimeoutExpired):  # it is inside of a device's driver
                self._children[index].wait(KILL_GRACE_SECONDS)
            rank = self._ranks[index]
            self._ended_at[rank] = time.time()
            with suppress(OSError):  # the command line was killed
                print(f"heterotp launcher: rank {rank} did not end after the stop and was killed", file=sys.stderr)
        return [(self._ranks[index], EXIT_STOPPED) for index in running]

    def _show_stacks(self, running: Iterable[int]) -> None:
        """Have ranks write where all their threads are, once each, also those that run no Python any more."""
        asked = {index: stacks.ask(self._children[index].pid) for index in running if index not in self._asked}
        self._asked |= set(asked)
        stacks.wait_written([pid for pids in asked.values() for pid in pids])
        self._shown |= {index for index, pids in asked.items() if pids and not any(map(stacks.is_busy, pids))}

    def _leave_failure(self, rank: str, code: int) -> None:
        """Add a RankFailure to the file of last words, which the operator and `heterotp run` read."""
        if self._last_words is None or code == EXIT_STOPPED:
            return
        from heterotp_api.last_words import with_failure  # pydantic: not at every start

        try:
            left = self._last_words.read_text("utf-8", "replace") if self._last_words.exists() else ""
            text = with_failure(left, int(rank), code, list(self._output[rank]), self._ended_at[rank])
            self._last_words.write_text(text, encoding="utf-8")
        except OSError as error:  # the exit code still reports the failure
            print(f"heterotp launcher: {self._last_words}: {error}", file=sys.stderr)

    def _end_as_orphan(self, now: float) -> None:
        """Kill what is left a grace after the command line was killed, upon which the kernel has sent SIGTERM."""
        if self._orphaned_at is None and self._stopped_at is not None and os.getppid() != self._parent:
            self._orphaned_at = now
        if self._orphaned_at is not None and now > self._orphaned_at + ORPHAN_GRACE_SECONDS:
            self._kill()

    def _kill(self) -> None:
        """Kill all ranks; where this launcher leads its process group, also itself and what the ranks have started."""
        for child in self._children:
            child.kill()
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpgrp(), signal.SIGKILL)

    def _end(self, running: Iterable[int]) -> None:
        self._show_stacks(running)
        children = [self._children[index] for index in running]
        for child in children:
            child.terminate()
        limit = time.monotonic() + KILL_GRACE_SECONDS
        for child in children:
            try:
                child.wait(max(0.0, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()

    def _forward(self, stream: IO[str], rank: str) -> None:
        prefix = RANK_LINE_PREFIX.format(rank)
        for line in stream:
            with suppress(OSError):  # the command line was killed: a rank must not block on a pipe that is not read
                sys.stdout.write(prefix + line)
                sys.stdout.flush()
            if line.strip():
                self._output[rank].append(line.rstrip()[:TAIL_LINE_CHARACTERS])


def main(arguments: Sequence[str]) -> int:
    """Start the ranks and wait for them; return the pod's exit code."""
    command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    try:
        environments = rank_environments(os.environ)
        launcher = Launcher(
            command or BUILT_IN, environments, elastic=is_elastic(os.environ), comebacks=comebacks_of(os.environ)
        )
    except (ValueError, OSError) as error:
        print(f"heterotp launcher: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: launcher.signal(signal.SIGTERM))
    return launcher.wait()
