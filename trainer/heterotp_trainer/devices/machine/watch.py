"""A thread of a rank that reads what its machine says, every few seconds, off the training loop."""

import threading
import time
from collections import deque
from collections.abc import Callable

from heterotp_trainer.devices.machine.files import MachineFiles
from heterotp_trainer.devices.machine.gpu import Gpu
from heterotp_trainer.devices.machine.reading import NO_READING, WINDOW_SECONDS, Counters, Reading, reading

EVERY_SECONDS = 3.0
JOIN_SECONDS = 5.0


class MachineWatch:
    """The newest reading of this rank; `newest` is read by the training loop."""

    def __init__(self, take: Callable[[], Counters], every: float = EVERY_SECONDS) -> None:
        """take: returns the counters of now; every: seconds between two calls."""
        self._take, self._every = take, every
        self._taken: deque[Counters] = deque()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="machine", daemon=True)
        self.newest: Reading = NO_READING

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(JOIN_SECONDS)

    def sample(self) -> None:
        """Read the counters now, and make a reading of those of the last WINDOW_SECONDS."""
        self._taken.append(self._take())
        while len(self._taken) > 2 and self._taken[-1].at - self._taken[0].at > WINDOW_SECONDS:
            self._taken.popleft()
        self.newest = reading(tuple(self._taken))

    def _run(self) -> None:
        self.sample()
        while not self._over.wait(self._every):
            self.sample()


def watch_of(uuid: str) -> MachineWatch:
    """Return the watch of this process's machine; uuid: of its GPU, empty where it has none."""
    files = MachineFiles()
    gpu: list[Gpu] = []  # opened by the thread: a driver may take its time

    def take() -> Counters:
        if not gpu:
            gpu.append(Gpu(uuid))
        return files.counters(time.monotonic(), gpu[0].state())

    return MachineWatch(take)
