"""Errors of a gang that may lose ranks."""


class GoneError(RuntimeError):
    """A rank of this generation is gone: whatever the others waited for is given up."""


class AloneError(RuntimeError):
    """The ranks that are left cannot go on without a restart; the message says why."""


class AskedToLeaveError(RuntimeError):
    """This rank was asked to leave, and does so; the others go on."""


class LeftOutError(AloneError):
    """The others go on without this rank."""
