"""Why a checkpoint cannot be used or written."""

from errno import (
    EACCES,
    EEXIST,
    EINVAL,
    EISDIR,
    ELOOP,
    ENAMETOOLONG,
    ENOENT,
    ENOTDIR,
    EPERM,
    EROFS,
)

# of the path or of rights to it: trying again does not help; a full disk or a server that is away may be gone next time
LASTING = frozenset({EACCES, EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM, EROFS})


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used, or a directory that cannot be written; it is bad input, unless a subclass."""


class WriteError(CheckpointError):
    """A checkpoint that could not be written (a full disk); the one before stays valid."""


class NotFiniteError(WriteError):
    """Parameters or optimizer state are not finite: a checkpoint of them would lead nowhere.

    again: whether the checkpoint before was refused for the same reason.
    """

    again = False


class OwnerError(CheckpointError):
    """A newer attempt, or another job, owns the directory."""


def storage_error(what: str, error: OSError) -> CheckpointError:
    """Return the error of a call to the storage: a WriteError, after which the gang restarts, unless it is LASTING."""
    kind = CheckpointError if error.errno in LASTING else WriteError
    return kind(f"{what}: {error.strerror or error}")
