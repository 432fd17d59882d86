"""Threads that do one step after another until they are told to stop, whatever the API server is doing."""

import http.client
import threading
from abc import ABC, abstractmethod
from contextlib import suppress

from support.kube import Kube, KubeError

UNREACHABLE = (OSError, http.client.HTTPException)


class OwnKube:
    """A client of the API server for each thread that uses it."""

    def __init__(self, kubeconfig):
        self._kubeconfig, self._local, self._made = kubeconfig, threading.local(), []

    def __getattr__(self, name):
        kube = getattr(self._local, "kube", None)
        if kube is None:
            kube = self._local.kube = Kube(self._kubeconfig)
            self._made.append(kube)
        return getattr(kube, name)

    def close_own(self):
        """Close the connection of this thread, which is about to end."""
        kube = getattr(self._local, "kube", None)
        if kube is not None:
            kube.close()
            self._made.remove(kube)
            self._local.kube = None

    def close_all(self):
        """Close the connections of all threads, which have ended."""
        for kube in self._made:
            kube.close()


class Actor(ABC):
    """Calls step() every `every` seconds in a thread of its own; errors of the API server are waited out."""

    every = 0.2

    def __init__(self):
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self.failure = None  # an error of our own, which ends the run

    @abstractmethod
    def step(self):
        """Do one step."""

    def start(self):
        self._thread.start()
        return self

    def ask_to_stop(self):
        self._stopped.set()

    def stop(self):
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(60)

    def _run(self):
        while not self._stopped.is_set():
            try:
                with suppress(KubeError, *UNREACHABLE):
                    self.step()
            except Exception as error:
                self.failure = error
                raise
            self._stopped.wait(self.every)


def check(actors):
    """Raise the error of an actor that failed: then the run proves nothing."""
    for actor in actors:
        if actor.failure is not None:
            raise AssertionError(f"{type(actor).__name__} failed") from actor.failure
