"""Whose turn it is: ready keys of many namespaces, taken in rotation, so that no namespace holds the others up.

A namespace may hold as many workers as are idle, and no more (the dynamic threshold of shared switch buffers): one
alone gets half of them, the next half of the rest. Whatever its keys wait for, the others find an idle worker.
"""

import math
from collections import Counter, OrderedDict, deque

Key = tuple[str, str]  # (namespace, name)


class FairTurns:
    """Ready keys by namespace; `workers`: how many take them, None: there is no bound."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers
        self._ready: OrderedDict[str, deque[Key]] = OrderedDict()  # the next namespace first
        self._held: Counter[str] = Counter()  # workers by namespace

    def __len__(self) -> int:
        """Return how many keys are ready."""
        return sum(map(len, self._ready.values()))

    def add(self, key: Key) -> None:
        """Put a key behind those of its namespace."""
        self._ready.setdefault(key[0], deque()).append(key)

    def take(self) -> Key | None:
        """Return the next key and count its worker; None: no key is ready whose namespace may hold one more."""
        idle = math.inf if self._workers is None else self._workers - self._held.total()
        if not idle:
            return None
        namespace = next((each for each in self._ready if self._held[each] < idle), None)
        if namespace is None:
            return None
        keys = self._ready.pop(namespace)
        key = keys.popleft()
        if keys:
            self._ready[namespace] = keys  # behind all others
        self._held[namespace] += 1
        return key

    def done(self, key: Key) -> None:
        """Count a worker as idle again."""
        self._held[key[0]] -= 1
        if not self._held[key[0]]:
            del self._held[key[0]]
