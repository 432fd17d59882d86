"""Sends to all ranks where this one is, beside the collectives, and ends a gang that stalls for too long.

Every rank writes its place into a store, once a second, from a thread; rank 0's thread reads all places and decides
(stall.py). Past the deadline rank 0 writes the stall into the store, and every rank ends itself.
"""

import atexit
import faulthandler
import json
import os
import signal
import socket
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from heterotp_api import stacks
from heterotp_api.names import EXIT_NO_PROGRESS, EXIT_PEER_LOST, EXIT_STOPPED
from torch.distributed import Store  # type: ignore[attr-defined]

from heterotp_trainer.boundary.stall import ANY, HeartbeatsSeen, Place, Seen, Stall, hopeless, stall_of
from heterotp_trainer.devices.phase_clock import Clock
from heterotp_trainer.devices.whereabouts import Whereabouts

EVERY_SECONDS = 1.0
SOON_SECONDS = 0.2  # the same once a stop was asked for, which somebody waits for
JOIN_SECONDS = 5.0  # for a call of the store that is on its way
REPLY_SECONDS = 3.0  # in which rank 0's reason for an end by force arrives
UNSEEN_SECONDS = 30.0  # since this thread last looked at all places: they are not known any more
RECENT = 20  # iterations whose seconds count
OVERDUE = "overdue"  # the key under which rank 0 writes a stall past its deadline
_followed = False  # whether this process follows signals


def _leave_signals_to_the_parent() -> None:
    """In a forked child: a signal to it, as to a worker of a pool, must not stop the rank, and must end the child."""
    if _followed:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_leave_signals_to_the_parent)


class Heartbeat:
    """One rank's thread. end: called with a message and an exit code; it ends the process."""

    def __init__(
        self,
        store: Store,
        rank: int,
        ranks: int,
        where: Whereabouts,
        clock: Clock,
        end: Callable[[str, int], None],
        show: Callable[[Stall | None], None],
        deadline: float | None = None,
    ) -> None:
        """show: called on rank 0 with the stall of now. deadline: in seconds, see stall_of."""
        self._store, self._rank, self._ranks = store, rank, ranks
        self._where, self._clock, self._end, self._show, self._deadline = where, clock, end, show, deadline
        self._seen, self._beat = HeartbeatsSeen(ranks), 0
        self._places: list[Place] = []  # rank 0: of all ranks, newest
        self._looked_at = float("-inf")
        self._iterations: deque[float] = deque(maxlen=RECENT)
        self._ended_at = time.monotonic()  # of the last iteration
        self._stop_asked: float | None = None
        self._signals: socket.socket | None = None
        self._over = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self.stall: Stall | None = None  # rank 0: that of now

    def start(self) -> None:
        """Start the thread."""
        atexit.register(self.stop)  # a thread that is inside of the store when Python ends aborts the process
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a heartbeat that is on its way still arrives."""
        self._over.set()
        if threading.current_thread() is not threading.main_thread():
            return
        if self._thread.is_alive():
            self._thread.join(JOIN_SECONDS)
        atexit.unregister(self.stop)
        if self._signals is not None:
            signal.set_wakeup_fd(-1)
            self._signals.close()
            self._sender.close()
            self._signals = None

    def abandon(self) -> None:
        """End the thread without waiting for it: the rank that serves its store may be lost."""
        self._over.set()
        atexit.unregister(self.stop)
        if self._signals is not None:
            signal.set_wakeup_fd(-1)

    def give_way(self) -> None:
        """Return at once, or block while the thread ends this process: its reason is the one to be shown."""
        if self._ending.is_set() and threading.current_thread() is not self._thread:
            self._thread.join(REPLY_SECONDS + JOIN_SECONDS)

    def iteration_ended(self) -> None:
        """Count an iteration; called by the training loop."""
        now = time.monotonic()
        self._iterations.append(now - self._ended_at)
        self._ended_at, self._where.iteration = now, self._where.iteration + 1

    def progress(self) -> None:
        """Count progress that is no iteration: a batch of an evaluation; called by the training loop."""
        self._ended_at = time.monotonic()

    def idle_seconds(self) -> float | None:
        """Return the seconds since this rank's last progress; None while a reason for none is known.

        Called by any thread, also when this one has ended: the operator then acts on a gang that hangs.
        """
        now = time.monotonic()
        others = self._places if now - self._looked_at <= UNSEEN_SECONDS else []
        if self._where.reason or any(place.reason for place in others):
            return None
        return now - self._ended_at

    def follow_signals(self) -> None:
        """Notice SIGTERM also while the training loop hangs in a collective, where Python runs no handler.

        Called by the main thread. The rank then ends by force unless an iteration ends soon, which carries out a stop.
        Where no thread runs Python any more, the launcher still gets its stacks.
        """
        stacks.answer()
        global _followed
        _followed = True
        self._signals, sender = socket.socketpair()
        self._signals.setblocking(False)
        sender.setblocking(False)
        self._sender = sender  # kept open
        signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)

    def _read_signals(self) -> None:
        with suppress(BlockingIOError):
            if self._signals is not None and signal.SIGTERM in self._signals.recv(4096):
                self._stop_asked = self._stop_asked or time.monotonic()

    def _run(self) -> None:
        while not self._over.wait(EVERY_SECONDS if self._stop_asked is None else SOON_SECONDS):
            try:
                self._send()
                if self._rank == 0:
                    self._watch()
                self._read_signals()
                self._stop_by_force()
                overdue = self._store.check([OVERDUE])
            except RuntimeError:  # the store is gone with rank 0: the collectives end this rank
                return
            if overdue and not self._over.is_set():
                self._end_gang(json.loads(self._store.get(OVERDUE)))

    def _send(self) -> None:
        self._beat += 1
        self._store.set(f"place/{self._rank}", self._place().to_json())

    def _place(self) -> Place:
        what, seconds = self._where.now
        current = self._clock.current
        what = what or (ANY if current == "wait" else "")
        return Place(self._beat, self._where.iteration, current, what, self._where.reason, round(seconds, 3))

    def _watch(self) -> None:
        keys = {rank: f"place/{rank}" for rank in range(self._ranks)}
        texts = {
            rank: self._store.get(key).decode("utf-8", "replace")
            for rank, key in keys.items()
            if self._store.check([key])
        }
        now = time.monotonic()
        seen, idle = self._seen.take(texts, now), now - self._ended_at
        self._looked_at = now
        self._places = [each.place for each in seen if each.place is not None and not each.silent]
        self.stall = stall_of(seen, idle, self._median(), time.time(), self._deadline)
        self._show(self.stall)
        if self.stall is not None and self.stall.overdue:
            able = [rank for rank in self.stall.culprits if not seen[rank].silent]  # to say so themselves
            self._announce({"text": self.stall.text, "ranks": able or [0]})

    def _rank_0_and_own(self) -> list[Seen]:
        """Return what this rank, which is not rank 0, knows of rank 0 and of itself."""
        known = {self._rank: self._place().to_json()}
        if self._store.check(["place/0"]):
            known[0] = self._store.get("place/0").decode("utf-8", "replace")
        seen = self._seen.take(known, time.monotonic())
        return [seen[0], seen[self._rank]]

    def _median(self) -> float | None:
        return statistics.median(list(self._iterations)) if self._iterations else None

    def _announce(self, overdue: dict[str, object]) -> None:
        """Have all ranks end themselves; what follows from that is no failure of its own."""
        self._ending.set()
        self._store.set(OVERDUE, json.dumps(overdue))

    def _end_gang(self, overdue: dict[str, object]) -> None:
        """Write all stacks, and end this rank with the message that rank 0 wrote."""
        self._ending.set()
        with suppress(OSError, ValueError):  # no file behind it, or a full disk
            faulthandler.dump_traceback(sys.stderr, all_threads=True)
        self._agree_to_end()
        ranks = overdue["ranks"]
        code = EXIT_STOPPED if overdue.get("stopped") else EXIT_PEER_LOST
        self._end(str(overdue["text"]), EXIT_NO_PROGRESS if isinstance(ranks, list) and self._rank in ranks else code)

    def _agree_to_end(self) -> None:
        """Rank 0, which serves the store, ends last: when all others have read why, or after REPLY_SECONDS."""
        with suppress(RuntimeError):
            self._store.set(f"ends/{self._rank}", "")
            until = time.monotonic() + REPLY_SECONDS
            others = [f"ends/{rank}" for rank in range(1, self._ranks)]
            while self._rank == 0 and time.monotonic() < until and others and not self._store.check(others):
                time.sleep(0.1)

    def _stop_by_force(self) -> None:
        if self._stop_asked is None or self._ended_at > self._stop_asked:
            return
        waited = time.monotonic() - self._stop_asked
        if self._rank:
            self._stop_without_rank_0(waited - REPLY_SECONDS)
        elif hopeless(self._places, waited, self._median(), stalled=self.stall is not None):
            why = self.stall.text if self.stall is not None else f"no iteration ended within {waited:.0f} s"
            found = {"text": f"stopped without a last checkpoint: {why}", "ranks": [], "stopped": True}
            self._announce(found)

    def _stop_without_rank_0(self, waited: float) -> None:
        """End this rank where rank 0 hangs, too: it would have ended the gang before."""
        seen, median = self._rank_0_and_own(), self._median()
        stall = stall_of(seen, time.monotonic() - self._ended_at, median, time.time(), self._deadline)
        places = [each.place for each in seen if each.place is not None and not each.silent]
        if hopeless(places, waited, median, stalled=stall is not None):
            text = f"stopped without a last checkpoint: no iteration in {waited + REPLY_SECONDS:.0f} s"
            self._end_gang({"text": text, "ranks": [], "stopped": True})
