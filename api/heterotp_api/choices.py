"""The values of fields that a command line also offers; imports nothing heavy, so that its help is instant."""

from typing import Literal

Strategy = Literal["None", "ZERO", "MIG", "SEMI", "RESHARD", "AUTO"]
SlowdownMode = Literal["sleep", "spin", "repeat"]
MOST_SLOWDOWN = 1000  # of all injections on one rank together, too
