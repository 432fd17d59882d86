"""What a pod leaves in its container's termination message: one JSON document a line, at most 4096 bytes in all.

Rank 0 leaves its last TrainerStatus, the launcher of a pod that failed a RankFailure.
"""

from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from heterotp_api.base import Model
from heterotp_api.trainer_status import TrainerStatus

MAX_BYTES = 4096  # what a kubelet keeps of a termination message
MAX_FAILURE_BYTES = 1024
Document = TypeVar("Document", bound=BaseModel)


class RankFailure(Model):
    """The rank that explains why a pod failed, its exit code and the last line of its output.

    `ended_at`: unix seconds at which the launcher noticed the end of the rank; None from an older trainer.
    """

    model_config = ConfigDict(**{**Model.model_config, "extra": "ignore"})  # a newer trainer may add fields
    kind: Literal["RankFailure"]
    rank: int = Field(ge=0)
    exit_code: int = Field(ge=1, le=255)
    message: str = Field("", max_length=MAX_FAILURE_BYTES)
    ended_at: float | None = None


def rank_failure_line(rank: int, exit_code: int, message: str, ended_at: float | None = None) -> str:
    """Return a RankFailure as one line of JSON of at most 1024 bytes; a longer message is cut."""
    text = message[:MAX_FAILURE_BYTES]
    while True:
        failure = RankFailure(kind="RankFailure", rank=rank, exit_code=exit_code, message=text, ended_at=ended_at)
        line = failure.model_dump_json(by_alias=True)
        if len(line.encode()) <= MAX_FAILURE_BYTES:
            return line
        text = text[: len(text) * 3 // 4]


def with_failure(left: str, line: str) -> str:
    """Return the termination message `left` with a failure's line after it; without `left` where both are too long."""
    both = f"{left.rstrip()}\n{line}" if left.strip() else line
    return both if len(both.encode()) <= MAX_BYTES else line


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
