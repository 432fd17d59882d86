"""How the survivors of a lost rank agree on the next generation.

Each tells all others what it holds (`Left`). The lowest live rank waits until all live ranks have, opens a store of its
own, and decides. Where it is lost meanwhile, the next one does the same. A decision holds for a rank only if it follows
from the last thing that this rank has said; who says something new gives up the generation of an older decision, so
that none stays in one that others never enter.
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from heterotp_trainer.membership.errors import AloneError, LeftOutError
from heterotp_trainer.membership.peers import Decision, Peers
from heterotp_trainer.membership.survivors import Left, needs_lease, problem

LOOK_SECONDS = 1.0


def open_store(host: str, port: int, ranks: int, timeout: timedelta, *, serve: bool = False) -> TCPStore:
    """Return a client of a generation's store, which this rank serves if asked."""
    return TCPStore(
        host,
        port,
        ranks,
        is_master=serve,
        timeout=timeout,
        wait_for_workers=False,
        use_libuv=False,  # Debian's torch is built without it
    )


class Lease:
    """What only one half of a gang can get: a file of this generation that is made once."""

    def __init__(self, folder: Path | None, attempt: int) -> None:
        """folder: that all ranks reach; None: there is none, and no half gets a lease."""
        self._folder, self._attempt = folder, attempt

    def taken(self, generation: int, rank: int) -> bool:
        """Take the lease of the generation after `generation`; return whether this rank has it."""
        if self._folder is None:
            return False
        path = self._folder / f".generation-{self._attempt}-{generation + 1}"
        try:
            path.touch(exist_ok=False)
            path.write_text(str(rank), encoding="utf-8")
        except FileExistsError:
            return path.read_text(encoding="utf-8") == str(rank)
        except OSError:
            return False
        return True


class Meeting:
    """One rank's part in an agreement; least: spec.runPolicy.elastic.minRanks."""

    def __init__(self, peers: Peers, lease: Lease, least: int, timeout: timedelta) -> None:
        self._peers, self._lease, self._least, self._timeout = peers, lease, least, timeout

    def agree(self, own: Left, before: Sequence[int], speeds: Sequence[float]) -> tuple[Decision, TCPStore | None]:
        """Return the next generation, and its store where this rank serves it (all survivors).

        before: members of the generation that was given up. Raises AloneError where the survivors must not go on, or
        go on without this rank.
        """
        peers = self._peers
        own = replace(own, dead=tuple(sorted(set(own.dead) | (set(before) & set(peers.dead)))))
        peers.say(own)
        waited = 0.0
        while waited < self._timeout.total_seconds():
            live = [rank for rank in before if rank not in peers.dead]
            self._refuse_alone(own, before, live)
            if live[0] == own.rank:
                lefts = [own if rank == own.rank else peers.said_since(rank) for rank in live]
                if all(left is not None for left in lefts):
                    return self._decided(own, before, live, [left for left in lefts if left is not None], speeds)
            elif (found := self._decision_of(live[0], own)) is not None:
                return found, None
            known = len(peers.dead), dict(peers.lefts), peers.decision
            changed = peers.wait(lambda: (len(peers.dead), peers.lefts, peers.decision) != known, LOOK_SECONDS)  # noqa: B023
            waited += 0.0 if changed else LOOK_SECONDS
        raise AloneError(f"the survivors did not agree within {self._timeout.total_seconds():.0f} s")

    def _refuse_alone(self, own: Left, before: Sequence[int], live: Sequence[int]) -> None:
        for rank in live:
            said = self._peers.said_since(rank) if rank != own.rank else None
            if said is not None and own.rank in said.dead:
                raise LeftOutError(f"rank {rank} goes on without rank {own.rank}, which was silent or cut off")
        if len(live) < len(before) and (why := problem(before, live, self._least, leased=True)):
            raise AloneError(f"{why}: {self._lost(before)}")

    def _lost(self, before: Sequence[int]) -> str:
        return ", ".join(f"rank {rank} {self._peers.dead[rank]}" for rank in before if rank in self._peers.dead)

    def _decision_of(self, rank: int, own: Left) -> Decision | None:
        """Return the decision of the lowest live rank, if it follows from what this rank has said last."""
        found = self._peers.decision
        if found is None or found.members[0] != rank:
            return None
        return found if any(left.rank == own.rank and left.number == own.number for left in found.lefts) else None

    def _decided(
        self, own: Left, before: Sequence[int], live: Sequence[int], lefts: Sequence[Left], speeds: Sequence[float]
    ) -> tuple[Decision, TCPStore]:
        newest = max(left.generation for left in lefts)
        leased = not needs_lease(before, live) or self._lease.taken(newest, own.rank)
        failed_to_admit = len(live) == len(before) and any(left.admitting for left in lefts)
        if not failed_to_admit and (why := problem(before, live, self._least, leased=leased)):
            raise AloneError(f"{why}: {self._lost(before)}" if self._lost(before) else why)
        store = open_store(self._peers.host, 0, len(live), self._timeout, serve=True)
        decision = Decision(
            newest + 1, tuple(live), self._peers.host, store.port, secrets.token_hex(16), tuple(lefts), tuple(speeds)
        )
        self._peers.decide(decision)
        return decision, store
