"""How a rank is slowed on purpose; imports nothing heavy, so that the help of commands is instant."""

from typing import Literal

SlowdownMode = Literal["sleep", "spin", "repeat"]
MOST_SLOWDOWN = 1000  # bound of the product of all injections on one rank
