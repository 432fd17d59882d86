"""Runs the operator with a wall clock that a file moves: CHAOS_CLOCK names a file that holds seconds."""

import datetime
import os
import runpy
import time
from pathlib import Path

PLACE = Path(os.environ["CHAOS_CLOCK"])
true_time, TrueDatetime = time.time, datetime.datetime


def shift():
    """Return by how many seconds the clock is off now."""
    try:
        return float(PLACE.read_text())
    except (OSError, ValueError):  # just being written
        return 0.0


class ShiftedDatetime(TrueDatetime):
    """A datetime whose now() follows the file."""

    @classmethod
    def now(cls, tz=None):
        """Return the shifted time."""
        return cls.fromtimestamp(time.time(), tz)


time.time = lambda: true_time() + shift()
datetime.datetime = ShiftedDatetime
runpy.run_module("heterotp_operator", run_name="__main__", alter_sys=True)
