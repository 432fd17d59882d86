"""The error of bad input that checkpoints and their state raise."""


def bad_input(message: str) -> ValueError:
    """Return the error for a user's mistake: the rank prints its message on one line and ends with exit code 2."""
    return ValueError(message)
