"""Faults of the operator's process."""

import os
import signal
import threading

from chaos.faults.fault import Fault, Hit
from support.proxy import WRITES, Strike

MOMENTS = ("before", "during", "after")
REQUESTS = ("any", "read", "write", "lease", "status", "pods")


def matches(which, method, path):
    """Return whether a request is one of a class; watches last for minutes and are no requests here."""
    if "watch=true" in path:
        return False
    return {
        "any": True,
        "read": method == "GET",
        "write": method in WRITES and "/leases" not in path,
        "lease": "/leases" in path,
        "status": method in WRITES and path.partition("?")[0].endswith("/status"),
        "pods": "/pods" in path,
    }[which]


class OperatorKilled(Fault):
    kind = "operator killed"
    ends_operator = True

    def begin(self, world):
        world.operators.signal(signal.SIGKILL)
        return Hit()


class OperatorStopped(Fault):
    """SIGTERM, as at a rollout."""

    kind = "operator stopped"
    ends_operator = True

    def begin(self, world):
        world.operators.signal(signal.SIGTERM)
        return Hit()


class OperatorFrozen(Fault):
    """The process loses its Lease in its sleep."""

    kind = "operator frozen"
    ends_operator = True
    outage = True

    @staticmethod
    def draw(random):
        return {"seconds": random.choice([1, 5, 12])}

    def begin(self, world):
        self.pid = world.operators.signal(signal.SIGSTOP)
        return Hit()

    def end(self, world):
        if self.pid is not None:
            world.operators.signal(signal.SIGCONT, self.pid)


class TwoOperators(Fault):
    kind = "two operators"
    ends_operator = True

    @staticmethod
    def draw(random):
        return {"seconds": random.uniform(5, 40)}

    def begin(self, world):
        world.operators.add_second()
        return Hit()

    def end(self, world):
        world.operators.remove_second()


class ClockOff(Fault):
    """The operator's clock jumps by ten minutes and, at the end, back."""

    kind = "clock off"

    @staticmethod
    def draw(random):
        return {"seconds": random.uniform(5, 60), "by": random.choice([-600, 600])}

    def begin(self, world):
        world.operators.set_clock(self.arguments["by"])
        return Hit()

    def end(self, world):
        world.operators.set_clock(0)


class AtRequest(Fault):
    """The operator is struck at one of its next requests; the fault lasts until then, or until its time is over."""

    moment = ""

    @staticmethod
    def draw(random):
        return {"seconds": 20, "which": random.choice(REQUESTS), "nth": random.randint(1, 8)}

    def begin(self, world):
        self._left, self._lock = self.arguments["nth"], threading.Lock()
        self._strike = Strike(self.moment, lambda: self.strike(world))
        world.requests.add(self._fault)
        return Hit()

    def end(self, world):
        world.requests.remove(self._fault)

    def _fault(self, method, path):
        if not matches(self.arguments["which"], method, path):
            return None
        with self._lock:
            self._left -= 1
            return self._strike if self._left == 0 else None

    def strike(self, world):
        """Do it."""


class KilledAtRequest(AtRequest):
    ends_operator = True

    def strike(self, world):
        pid = world.operators.leader_pid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)


class KilledBeforeRequest(KilledAtRequest):
    kind = "killed before request"
    moment = "before"


class KilledDuringRequest(KilledAtRequest):
    """The API server did what was asked, and nobody learns of it."""

    kind = "killed during request"
    moment = "during"


class KilledAfterRequest(KilledAtRequest):
    kind = "killed after request"
    moment = "after"


class ResponseLost(AtRequest):
    """The operator lives, and learns only that the connection is gone."""

    kind = "response lost"
    moment = "during"
    ends_operator = True  # kopf ends it when a watch cannot be opened


class RequestLost(AtRequest):
    kind = "request lost"
    moment = "before"
    ends_operator = True


KINDS = (
    *(OperatorKilled, OperatorStopped, OperatorFrozen, TwoOperators, ClockOff),
    *(KilledBeforeRequest, KilledDuringRequest, KilledAfterRequest, ResponseLost, RequestLost),
)
