"""One rank from its start to its exit code, which the launcher, `heterotp run` and failureRules act on.

0    trained to the end        76   a newer attempt, or another job, owns the checkpoints
1    failed                    77   a victim: the name of rank 0's pod does not resolve
2    bad input                 78   loss or gradients are not finite
75   a victim: a peer died     79   no iteration within runPolicy.progressDeadlineSeconds
     or hangs                  80   a victim: the others go on without this rank, which may come back
                               81   asked to leave alone, the others go on
                               143  stopped, after a last checkpoint
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from heterotp_api.names import (
    EXIT_BAD_INPUT,
    EXIT_CHECKPOINT_OWNER,
    EXIT_LEFT,
    EXIT_NAME_UNRESOLVED,
    EXIT_NON_FINITE,
    EXIT_NOT_LET_IN,
    EXIT_PEER_LOST,
    EXIT_STOPPED,
)

from heterotp_trainer.boundary.exchange import MismatchError
from heterotp_trainer.boundary.finite_guard import NonFiniteError
from heterotp_trainer.checkpoint.errors import CheckpointError, NotFiniteError, OwnerError, WriteError
from heterotp_trainer.errors import InputError, place_of, with_place
from heterotp_trainer.launch.rendezvous import NameUnresolvedError, NotLetInError, lost_peer
from heterotp_trainer.membership.errors import AskedToLeaveError
from heterotp_trainer.membership.groups import left_any
from heterotp_trainer.session import Precision, Session
from heterotp_trainer.session_parts.ending import UNFINISHED


def run_rank(
    main: Callable[[Session], None], *, telemetry: bool = True, precision: Precision | None = None
) -> NoReturn:
    """Join the gang, call main(session), which ends with session.finish(), and exit with the code of its end.

    An InputError is printed on one line; an error of the user's own code keeps its traceback. telemetry,
    precision: see Session.
    """
    session: Session | None = None
    try:
        session = Session.from_environment(telemetry=telemetry, precision=precision)
        _call(main, session)
    except Exception as error:
        found = explain(error)
        if found is None:
            _show(session, f"{type(error).__name__}: {with_place(error)}")
            sys.excepthook(type(error), error, error.__traceback__)
            _end(1)
        _leave(None if isinstance(error, AskedToLeaveError) else session, *found)  # the run has not failed
    code = EXIT_STOPPED if session.ended == "stopped" else 0
    if left_any():  # threads may still wait for ranks that are gone
        _end(code)
    sys.exit(code)


def _call(main: Callable[[Session], None], session: Session) -> None:
    """Call main(session); raises InputError where it ends without session.finish()."""
    try:
        main(session)
    except SystemExit as end:
        if end.code:
            _show(session, f"the script exited with code {end.code} ({place_of(end)})")
            raise
        if session.ended is None:
            raise InputError("the script exited before session.finish(): the other ranks wait for this one") from end
    if session.ended is None:
        raise InputError(UNFINISHED)


def explain(error: Exception) -> tuple[str, int] | None:
    """Return the message and exit code of an error that needs no traceback, else None."""
    if isinstance(error, OwnerError):
        return str(error), EXIT_CHECKPOINT_OWNER
    if isinstance(error, (NonFiniteError, NotFiniteError)):
        return str(error), EXIT_NON_FINITE
    if isinstance(error, (MismatchError, WriteError)):
        return str(error), 1
    if isinstance(error, (InputError, CheckpointError)):
        return with_place(error), EXIT_BAD_INPUT
    if isinstance(error, AskedToLeaveError):
        return str(error), EXIT_LEFT
    if isinstance(error, NotLetInError):
        return f"a peer died or hangs: {error}", EXIT_NOT_LET_IN
    if isinstance(error, NameUnresolvedError):
        return str(error), EXIT_NAME_UNRESOLVED
    if lost_peer(error):
        return f"a peer died or hangs: {str(error).strip().splitlines()[0]}", EXIT_PEER_LOST
    return None


def _show(session: Session | None, message: str) -> None:
    """Show a failure in the status; where that fails, too (a full disk), a line says so and nothing else changes."""
    try:
        if session is not None:
            session.fail(message)
    except Exception as error:
        with suppress(OSError):
            text = f"the failure is not in the status: {type(error).__name__}: {error}"
            print(text, file=sys.stderr, flush=True)


def _leave(session: Session | None, message: str, code: int) -> NoReturn:
    """Show the reason in the status, print it on one line, and exit without waiting for other ranks."""
    try:
        print(f"error: {message}", file=sys.stderr, flush=True)
        _show(session, message)
    finally:
        _end(code)


def _end(code: int) -> NoReturn:
    """End the process at once: threads of a broken collective must not hold it, or abort it while Python ends."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
