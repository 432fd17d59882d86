"""What a pod leaves in its container's termination message: one JSON document a line, at most 4096 bytes in all.

Rank 0 leaves its last TrainerStatus, the launcher of a pod that failed a RankFailure.
"""

from collections.abc import Sequence
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from heterotp_api.base import Model
from heterotp_api.trainer_status import TrainerStatus

MAX_BYTES = 4096  # what a kubelet keeps of a termination message
MAX_MESSAGE_BYTES = 1024
MAX_FAILURE_BYTES = 1024  # of a RankFailure without its tail
Document = TypeVar("Document", bound=BaseModel)


class RankFailure(Model):
    """The rank that explains why a pod failed, its exit code and the end of its output.

    `message`: the last line; `tail`: the last lines, e.g. a traceback, oldest first.
    `ended_at`: unix seconds at which the launcher noticed the end of the rank; None from an older trainer.
    """

    model_config = ConfigDict(**{**Model.model_config, "extra": "ignore"})  # a newer trainer may add fields
    kind: Literal["RankFailure"]
    rank: int = Field(ge=0)
    exit_code: int = Field(ge=1, le=255)
    message: str = Field("", max_length=MAX_MESSAGE_BYTES)
    ended_at: float | None = None
    tail: tuple[str, ...] = ()


def with_failure(left: str, rank: int, exit_code: int, output: Sequence[str], ended_at: float | None = None) -> str:
    """Return the termination message `left` with a RankFailure after it, at most 4096 bytes in all.

    output: the last lines of the rank, oldest first; those that do not fit are left out, from the oldest on. `left` is
    dropped where it leaves no room for the rest of the document.
    """
    message = output[-1].strip()[:MAX_MESSAGE_BYTES] if output else ""
    failure = RankFailure(kind="RankFailure", rank=rank, exit_code=exit_code, message=message, ended_at=ended_at)
    while len(_line(failure).encode()) > MAX_FAILURE_BYTES:
        failure = failure.model_copy(update={"message": failure.message[: len(failure.message) * 3 // 4]})
    kept = f"{left.rstrip()}\n" if left.strip() else ""
    if len((kept + _line(failure)).encode()) > MAX_BYTES:
        kept = ""
    return kept + _line(_with_tail(failure, output, MAX_BYTES - len(kept.encode())))


def _with_tail(failure: RankFailure, output: Sequence[str], max_bytes: int) -> RankFailure:
    """Return the failure with as many of the last lines of `output` as fit."""
    for line in reversed(output):
        longer = failure.model_copy(update={"tail": (line, *failure.tail)})
        if len(_line(longer).encode()) > max_bytes:
            break
        failure = longer
    return failure


def _line(failure: RankFailure) -> str:
    return failure.model_dump_json(by_alias=True)


def rank_failure(message: str) -> RankFailure | None:
    """Return the last RankFailure of a termination message; None without one."""
    return _last(RankFailure, message)


def trainer_status(message: str) -> TrainerStatus | None:
    """Return the last TrainerStatus of a termination message; None without one."""
    return _last(TrainerStatus, message)


def _last(model: type[Document], message: str) -> Document | None:
    for line in reversed(message.splitlines()):
        try:
            return model.model_validate_json(line)
        except ValidationError:  # another document, or a command's own output
            continue
    return None
