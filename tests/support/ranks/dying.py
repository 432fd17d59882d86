"""A rank of the built-in trainer that is killed at a chosen place: POINT:RANK:CALL arguments, e.g. norm:1:20.

CALL counts the calls of the place's function on that rank; POINT late:1:20 lets rank 1 miss that the sum of the norm
was complete, as a rank does whose neighbour dies while it passes the sum on. await:0:20 has rank 0 wait in its 20th
boundary until a rank has come back or waits at its door. POINT:RANK:CALL:START is of a rank that was started again so
often; without it, of its first start.
"""

import os
import signal
import sys
import threading
import time
from dataclasses import replace

from heterotp_api.names import Env
from heterotp_trainer import watched
from heterotp_trainer.boundary.exchange import ADMIT, BoundaryExchange
from heterotp_trainer.checkpoint.contents import Contents
from heterotp_trainer.launch import admission as launch_admission
from heterotp_trainer.launch.knock import Door
from heterotp_trainer.membership.errors import GoneError
from heterotp_trainer.protection import replica
from heterotp_trainer.protection.guard import Guard
from heterotp_trainer.protection.mirrors import Mirrors
from heterotp_trainer.resharding.unit_mover import UnitMover
from heterotp_trainer.run_rank import run_rank
from heterotp_trainer.session import Session
from heterotp_trainer.session_parts import admission as session_admission
from heterotp_trainer.session_parts import succession
from heterotp_trainer.training.builtin import main
from heterotp_trainer.training.vision import Vision

WAITED_SECONDS = 120.0  # less than the gang's collectives wait; a rank that comes back imports PyTorch first
POINTS = {
    "gradients": (Mirrors, "receive"),
    "norm": (watched, "gradient_norm"),
    "committed": (watched.Watched, "_apply"),
    "updated": (Guard, "_note"),
    "boundary": (BoundaryExchange, "post"),
    "move": (UnitMover, "_move_layer"),
    "refresh": (Mirrors, "refresh"),
    "save": (Contents, "gather"),
    "evaluation": (Vision, "evaluate"),
    "door": (Door, "next"),
    "knocked": (launch_admission, "_called"),
    "connected": (launch_admission, "_enter"),
    "entered": (launch_admission, "_prove"),
    "state": (replica, "_receive"),
    "giving": (replica, "_send"),
    "sharing": (session_admission, "_share_out"),
    "moved": (watched.Watched, "mirrors"),
    "back": (Session, "_renew"),
    "agreement": (succession, "next_gang"),
    "takeover": (succession, "_take_over"),
}


def die(point):
    print(f"dies at {point}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def arrange(point, call):
    """Have this rank die when it calls the point's function the call-th time."""
    owner, name = POINTS[point]
    real, calls = getattr(owner, name), []

    def wrapped(*arguments, **options):
        calls.append(1)
        if len(calls) == call:
            die(point)
        return real(*arguments, **options)

    setattr(owner, name, wrapped)


def arrange_late(call):
    """Have this rank wait for the loss of another one after its call-th sum of the norm, and not know the sum."""
    real, calls = watched.gradient_norm, []

    def wrapped(parameters, tp, loss=None):
        norm = real(parameters, tp, loss)
        calls.append(1)
        if len(calls) == call:
            tp.group._generation.in_thread(threading.Event().wait)  # until it is given up
            raise GoneError("not reached")
        return norm

    watched.gradient_norm = wrapped


def arrange_waiting(call):
    """Have this rank begin its call-th boundary only when a rank that comes back waits at its door, or has come."""
    opened, came, calls = [], [], []
    real_init, real_next, real_post = Door.__init__, Door.next, BoundaryExchange.post

    def init(door, *arguments, **options):
        real_init(door, *arguments, **options)
        opened.append(door)

    def next_one(door):
        came.append(1)
        return real_next(door)

    def post(exchange, report):
        calls.append(1)
        deadline = time.monotonic() + WAITED_SECONDS
        while len(calls) == call and not came and time.monotonic() < deadline:
            if opened[-1].waiting:
                return real_post(exchange, replace(report, flags=report.flags | ADMIT))
            time.sleep(0.02)
        return real_post(exchange, report)

    Door.__init__, Door.next, BoundaryExchange.post = init, next_one, post


OTHERS = {"late": arrange_late, "await": arrange_waiting}

if __name__ == "__main__":
    for argument in sys.argv[1:]:
        point, rank, call, *start = argument.split(":")
        if rank == os.environ["RANK"] and (start or ["0"])[0] == os.environ.get(Env.COMEBACK, "0"):
            OTHERS[point](int(call)) if point in OTHERS else arrange(point, int(call))
    run_rank(main)
