"""The error of bad input that checkpoints and their state raise."""

from heterotp_trainer.errors import InputError


def bad_input(message: str) -> InputError:
    """Return the error for a user's mistake: the rank prints its message on one line and ends with exit code 2."""
    return InputError(message)
