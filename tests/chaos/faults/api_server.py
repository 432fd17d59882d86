"""Faults between the operator and the API server: outages, watches, refusals, slow writes."""

import threading

from chaos.faults.fault import Fault, Hit
from chaos.faults.operators import REQUESTS, matches

PLURALS = ("heterotpjobs", "pods", "services", "configmaps", "balancingpolicies", "stragglerinjections")


class ApiServerStopped(Fault):
    """SIGSTOP: connections stay open and nothing answers."""

    kind = "API server stopped"
    ends_operator = True
    outage = True

    @staticmethod
    def draw(random):
        return {"seconds": random.choice([3, 10, 60])}

    def begin(self, world):
        world.api_server.freeze()
        return Hit()

    def end(self, world):
        world.api_server.thaw()


class ApiServerKilled(Fault):
    """Killed and started again after a while: connections break, its watch cache is gone."""

    kind = "API server killed"
    ends_operator = True
    outage = True

    @staticmethod
    def draw(random):
        return {"seconds": random.choice([1, 10, 30])}

    def begin(self, world):
        world.api_server.kill()
        return Hit()

    def end(self, world):
        world.api_server.start()


class WatchFault(Fault):
    code = None

    @staticmethod
    def draw(random):
        return {"plural": random.choice(PLURALS)}

    def begin(self, world):
        if not world.proxy.watched(self.arguments["plural"]):
            return None
        world.proxy.end_watches(self.arguments["plural"], self.code)
        return Hit(detail=self.arguments["plural"])


class WatchCut(WatchFault):
    kind = "watch cut"
    shows = "watch opened again"


class WatchExpired(WatchFault):
    kind = "watch 410"
    code = 410
    shows = "watch opened again"


class WatchFailed(WatchFault):
    kind = "watch 500"
    code = 500
    ends_operator = True


class WatchEventsLost(Fault):
    """Events get lost for a while; then the watch ends by 410, as it does after a gap."""

    kind = "watch events lost"

    @staticmethod
    def draw(random):
        return {"seconds": random.uniform(1, 10), "plural": random.choice(PLURALS)}

    outage = True

    def begin(self, world):
        world.proxy.mute.add(self.arguments["plural"])
        return Hit()

    def end(self, world):
        world.proxy.mute.discard(self.arguments["plural"])
        world.proxy.end_watches(self.arguments["plural"], 410)


class Refused(Fault):
    """Some of the next requests of a class, watches included where it is `watch`, are answered by an error."""

    code = 0
    ends_operator = True
    outage = True  # its back-off

    @staticmethod
    def draw(random):
        which = random.choice([*REQUESTS, "watch"])
        return {"seconds": random.uniform(2, 15), "which": which, "times": random.randint(1, 8)}

    def begin(self, world):
        self._left, self._lock = self.arguments["times"], threading.Lock()
        world.requests.add(self._fault)
        return Hit()

    def end(self, world):
        world.requests.remove(self._fault)

    def _fault(self, method, path):
        which = self.arguments["which"]
        if not ("watch=true" in path if which == "watch" else matches(which, method, path)):
            return None
        with self._lock:
            self._left -= 1
            return self.code if self._left >= 0 else None


def refused(number):
    """Return the kind of fault that answers with this code."""
    return type(f"Refused{number}", (Refused,), {"kind": f"refused {number}", "code": number})


class SlowStatusWrites(Fault):
    kind = "slow status writes"

    @staticmethod
    def draw(random):
        return {"seconds": random.uniform(5, 20), "delay": random.uniform(0.2, 1.5)}

    def begin(self, world):
        world.proxy.delay = self.arguments["delay"]
        return Hit()

    def end(self, world):
        world.proxy.delay = 0.0


KINDS = (
    *(ApiServerStopped, ApiServerKilled, WatchCut, WatchExpired, WatchFailed, WatchEventsLost, SlowStatusWrites),
    *map(refused, (401, 409, 422, 429, 500)),
)
