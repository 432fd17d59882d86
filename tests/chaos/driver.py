"""Carries a schedule out: each fault in a thread of its own; then all settles, then all is deleted."""

import threading
import time
from contextlib import suppress

from chaos.actor import UNREACHABLE, check
from chaos.faults.fault import ANY, Hit
from chaos.faults.registry import BY_KIND
from support.kube import KubeError

END_SECONDS = 240.0  # in which a fault can be ended
CLEAR_SECONDS = 240.0


class Driver:
    """Runs one schedule in one world."""

    def __init__(self, world, recorder):
        self._world, self._recorder = world, recorder
        self._threads = []

    def run(self, planned):
        """Carry out all faults, wait until they have ended, let the jobs settle, delete them."""
        began = time.monotonic()
        for each in planned:
            self._sleep_until(began + each.at)
            thread = threading.Thread(target=self._carry_out, args=(each,), name=each.kind, daemon=True)
            thread.start()
            self._threads.append(thread)
        for thread in self._threads:
            thread.join()
        self._recorder.write("phase", phase="settling")
        self._world.tenant.creating = False
        self._wait(self._world.settled, self._world.settle_seconds)
        self._recorder.write("phase", phase="clearing")
        self._world.clear()
        self._wait(self._world.cleared, CLEAR_SECONDS)
        self._recorder.write("phase", phase="end")

    def _sleep_until(self, moment):
        while (left := moment - time.monotonic()) > 0:
            check(self._world.actors)
            time.sleep(min(left, 0.5))

    def _wait(self, reached, seconds):
        """Wait for a state; whether it was reached is for the checker to say."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            check(self._world.actors)
            with suppress(KubeError, *UNREACHABLE):
                if reached():
                    return
            time.sleep(0.2)

    def _carry_out(self, planned):
        try:
            self._begin_and_end(planned)
        finally:
            self._world.kube.close_own()

    def _begin_and_end(self, planned):
        fault = BY_KIND[planned.kind](planned.arguments)
        hit, facts = self._begin(fault), fault.facts()
        if hit is not None and (hit.jobs == ANY or not hit.shows):
            facts["shows"] = ""
        self._note(planned, "begun" if hit else "skipped", hit, **(facts if hit else {}))
        if hit is None:
            return
        time.sleep(planned.arguments.get("seconds", 0.0))
        self._end(fault)
        self._note(planned, "ended", None)

    def _begin(self, fault):
        """Begin a fault; of one whose request was not answered nobody knows which job it hit."""
        try:
            return fault.begin(self._world)
        except KubeError as error:
            return None if error.code < 500 else Hit(ANY, detail=str(error))
        except UNREACHABLE as error:
            return Hit(ANY, detail=repr(error))

    def _end(self, fault):
        """End a fault, however long the API server does not answer."""
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            with suppress(KubeError, *UNREACHABLE):
                fault.end(self._world)
                return
            time.sleep(0.2)

    def _note(self, planned, state, hit, **facts):
        if hit is not None:
            facts |= {"jobs": list(hit.jobs), "attempt": hit.attempt, "detail": hit.detail}
        self._recorder.write(
            "fault", number=planned.number, kind=planned.kind, state=state, arguments=planned.arguments, **facts
        )
