"""Errors in what a user gave (a manifest, an environment, a script), and the place in a script where one came up."""

import sysconfig
import traceback
from pathlib import Path

LIBRARIES = tuple(
    str(Path(path)) + "/" for path in {*(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))}
)
OURS = str(Path(__file__).parent) + "/"


class InputError(ValueError):
    """Input that cannot work; the message names it and what would be right. A rank ends with exit code 2."""


def place_of(error: BaseException) -> str:
    """Return FILE:LINE in FUNCTION, the innermost line of the user's own code that led to an error.

    Empty where no code of a user took part.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    if frames:
        return f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}"
    return place_of(error.__cause__) if error.__cause__ is not None else ""


def _is_users(path: str) -> bool:
    return not path.startswith((*LIBRARIES, OURS, "<"))


def with_place(error: BaseException) -> str:
    """Return the error's message, with the place in the user's code where there is one."""
    place = place_of(error)
    return f"{error} ({place})" if place else str(error)
