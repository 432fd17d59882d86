"""Answers to polls of the status document: the whole of it, or that it holds no news to who names the one it has."""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from heterotp_api.trainer_news import Place, is_news
from heterotp_api.trainer_status import TrainerStatus

MOST_GIVEN = 4  # documents that are kept to compare with: of operators that take over from each other


@dataclass(frozen=True)
class Polled:
    """The answer to a poll: `body` is None where the document with this token holds all news."""

    token: str
    place: Place
    body: str | None


class ConditionalStatus:
    """The documents that were given last, by their tokens; used by the status server's thread alone."""

    def __init__(self, status: Callable[[], TrainerStatus]) -> None:
        self._status = status
        self._given: OrderedDict[str, TrainerStatus] = OrderedDict()

    def text(self) -> str:
        """Return the whole document, for who asks without a condition."""
        return _json(self._status())

    def polled(self, token: str | None) -> Polled:
        """Answer a poll of the operator; token: of the document that it has."""
        status = self._status()
        place = Place(status.epoch, status.iteration)
        known = self._given.get(token) if token else None
        if token and known is not None and not is_news(known, status):
            return Polled(token, place, None)
        token = f'W/"{secrets.token_hex(16)}"'
        self._given[token] = status
        while len(self._given) > MOST_GIVEN:
            self._given.popitem(last=False)
        return Polled(token, place, _json(status))


def _json(status: TrainerStatus) -> str:
    return status.model_dump_json(by_alias=True)
