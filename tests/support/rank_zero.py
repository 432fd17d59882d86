"""Stands for rank 0 of a job without running pods: reads the control document as a kubelet mounts it, applies it."""

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

from heterotp_api import names

HOUR = 3600.0


class RankZero:
    """A status server on the loopback address; `obeys`: whether it applies new control documents."""

    def __init__(self, ranks):
        self.ranks, self.attempt, self.iteration = ranks, 1, 0
        self.document, self.obeys, self.polls = {}, True, []
        self.slow = {}  # rank -> chi that is not asked for
        self.overrides = {}  # fields of the status document that a test sets itself
        self.attack = None  # (stream) -> None: writes what it likes instead of an answer
        self._kube, self._where = None, None
        handler = type("Handler", (_Handler,), {"rank_zero": self})
        self._server = HTTPServer(("127.0.0.1", 0), handler)  # one request at a time, as for one connection
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        if self._kube is not None:
            self._kube.close()

    def follow(self, kube, namespace, job):
        """Read the control document of this job from now on; the connection becomes this server's own."""
        if self._kube is not None:
            self._kube.close()
        self._kube, self._where = kube, (namespace, names.control_name(job))

    def status(self):
        if self._kube is not None and self.obeys:
            configmap = self._kube.get("configmaps", *self._where)
            with suppress(TypeError, KeyError, ValueError):  # damaged: the last good one stays
                self.document = json.loads(configmap["data"][names.CONTROL_FILE])
        self.iteration += 1
        asked = self._asked()
        return {
            "job": self._where[1].removesuffix("-control") if self._where else "job",
            "attempt": self.attempt,
            "state": "running",
            "startedAt": time.time() - HOUR,  # its clock is an hour behind the operator's
            "iteration": self.iteration,
            "iterationSeconds": 0.1,
            "appliedGeneration": self.document.get("generation", 0),
            "controlGeneration": self.document.get("generation", 0),
            "strategy": self.document.get("balancing", {}).get("strategy", "None"),
            "ranks": [self._rank(rank, asked) for rank in range(self.ranks)],
            "injections": [self._injection(each) for each in self.document.get("injections", ())],
            **self.overrides,
        }

    def _active(self, each):
        return not each.get("paused")

    def _asked(self):
        asked = dict.fromkeys(range(self.ranks), 1.0)
        for each in filter(self._active, self.document.get("injections", ())):
            for rank in set(each["ranks"]) & set(asked):  # a job may have become smaller
                asked[rank] = min(1000.0, asked[rank] * each["slowdown"])
        return asked

    def _injection(self, each):
        active = self._active(each)
        return {"uid": each["uid"], "state": "active" if active else "paused", "ranks": each["ranks"] if active else []}

    def _rank(self, rank, asked):
        chi = self.slow.get(rank, asked[rank])
        return {
            "rank": rank,
            "tpRank": rank,
            "device": "cpu",
            "share": 1 / self.ranks,
            "slowdown": chi,
            "relativeSpeed": 1 / chi,
            "injectedSlowdown": asked[rank],
            "measuredSlowdown": 0.97 * asked[rank],
            "straggler": chi > 1.1,
        }


class _Handler(BaseHTTPRequestHandler):
    rank_zero: RankZero

    def do_GET(self):
        self.rank_zero.polls.append(self.headers.get(names.LEASE_HEADER))
        with suppress(ConnectionError):  # the operator hung up
            self._answer() if self.rank_zero.attack is None else self.rank_zero.attack(self.wfile)

    def _answer(self):
        body = json.dumps(self.rank_zero.status()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass
