"""Choices and bounds of injections that the command line also shows; imports nothing heavy: its help is instant."""

from typing import Literal

SlowdownMode = Literal["sleep", "spin", "repeat"]
MOST_SLOWDOWN = 1000  # of all injections on one rank together, too
