"""What a poll of rank 0 returned. Of an answer that cannot be used only that fact is kept.

Its text and its kind would tell a job's owner what else answers at an address.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from heterotp_api import names
from heterotp_api.trainer_news import PLACE_HEADER, Place, place_of, token_of
from heterotp_api.trainer_status import TrainerStatus

from heterotp_operator.bounded_request import UnusableAnswerError, answer_of
from heterotp_operator.kept_connection import Head
from heterotp_operator.reconcile.observed import PollFailure
from heterotp_operator.renewals import challenge_of

LONG_BYTES = 16 << 10  # an answer of so many bytes is parsed by another thread


@dataclass(frozen=True)
class Answer:
    """What a poll returned: a status, or a kind of failure; challenge: see renewals.py.

    token: of the document, by ranks that answer a later poll with it by 304 where there are no news. unchanged: that
    was the answer, and only the status' place is newer. connected: without an answer, whether a connection was made.
    """

    status: TrainerStatus | None
    failure: PollFailure = ""
    challenge: str = ""
    connected: bool = False
    token: str = ""
    unchanged: bool = False


BAD = Answer(None, "BadAnswer")


async def understood_soon(received: bytes) -> Answer:
    """Do the same as `understood`, by another thread where it would hold the others up."""
    return understood(received) if len(received) < LONG_BYTES else await asyncio.to_thread(understood, received)


def understood(received: bytes) -> Answer:
    """Return the status document among all bytes that a connection brought, or that there is none."""
    try:
        body, headers = answer_of(received)
    except UnusableAnswerError:
        return BAD
    return _whole(body, {name.lower(): str(value) for name, value in headers.items()})


async def understood_kept(head: Head, body: bytes, known: TrainerStatus | None) -> Answer:
    """Return the status of an answer on a kept connection; known: the document whose token the poll named."""
    if head.status == 304:
        return _unchanged(head, known)
    return _whole(body, head.headers) if len(body) < LONG_BYTES else await asyncio.to_thread(_whole, body, head.headers)


def _whole(body: bytes, headers: Mapping[str, str]) -> Answer:
    try:
        status = TrainerStatus.model_validate_json(body)
    except (ValueError, RecursionError):
        return BAD
    return Answer(status, challenge=_challenge(headers), token=token_of(headers.get("etag")))


def _unchanged(head: Head, known: TrainerStatus | None) -> Answer:
    """Return the known status at the place that its rank has reached; a poll that named none asked for a whole one."""
    if known is None:
        return BAD
    place = place_of(head.headers.get(PLACE_HEADER.lower())) or Place(known.epoch, known.iteration)
    status = known.model_copy(update=place._asdict())
    return Answer(status, challenge=_challenge(head.headers), unchanged=True)


def _challenge(headers: Mapping[str, str]) -> str:
    return challenge_of(headers.get(names.LEASE_CHALLENGE_HEADER.lower()))
