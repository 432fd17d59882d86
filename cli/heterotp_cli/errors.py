"""Errors that end a command: shown without a traceback, each with its exit code.

BadInput  exit 2  the user's manifest, option or directory cannot be used; one line
Failed    exit 1  the run itself failed
"""

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # what a shell reports after Ctrl-C


class BadInput(Exception):
    """One line: the option or field, its value, and what would be right."""


class Failed(Exception):
    """The cause, possibly with the last lines of a log."""
