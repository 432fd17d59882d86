"""Who is left of a gang that may lose ranks, since when, and who came back; kept by all ranks, shown by one.

Ranks have the numbers here that they started with.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from heterotp_api.trainer_status import LostRank, TrainerGang


class Roster:
    """The losses of a run. started: ranks that it began with."""

    def __init__(self, started: int) -> None:
        self._started, self._comebacks = started, 0
        self._lost: dict[int, LostRank] = {}

    def lose(self, ranks: Sequence[int], iteration: int, why: Mapping[int, str]) -> None:
        """Note ranks that were lost; training goes on after `iteration`."""
        for rank in ranks:
            self._lost[rank] = LostRank(rank=rank, iteration=iteration, why=why.get(rank, ""))

    def back(self, rank: int) -> None:
        """Note a rank that came back."""
        self._lost.pop(rank, None)
        self._comebacks += 1

    def gang(self, members: Sequence[int], *, mirrored: bool) -> TrainerGang:
        """Return what is shown; members: that live, by their rank of now; mirrored: whether all units exist twice."""
        return TrainerGang(
            started=self._started,
            live=len(members),
            members=tuple(members),
            lost=tuple(self._lost[rank] for rank in sorted(self._lost)),
            unprotected=0 if mirrored else len(members),
            comebacks=self._comebacks,
        )

    def state(self) -> dict[str, Any]:
        """Return what a rank that comes back must know, ready for JSON."""
        return {"comebacks": self._comebacks, "lost": [each.model_dump(mode="json") for each in self._lost.values()]}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue with what `state` returned on another rank."""
        self._comebacks = int(state["comebacks"])
        self._lost = {each.rank: each for each in map(LostRank.model_validate, state["lost"])}
