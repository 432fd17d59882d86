"""Why a checkpoint cannot be used or written."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used, or a directory that cannot be written."""


class WriteError(CheckpointError):
    """A checkpoint that could not be written (a full disk); the one before stays valid."""


class NotFiniteError(WriteError):
    """Parameters or optimizer state are not finite: a checkpoint of them would lead nowhere.

    again: whether the checkpoint before was refused for the same reason.
    """

    again = False


class OwnerError(CheckpointError):
    """A newer attempt, or another job, owns the directory."""
