"""Who may join a gang: ranks that have the secret of this job and attempt. Others are turned away by name.

Rank 0's store answers everybody who reaches its port. What the gang exchanges there lies below a prefix that follows
from the secret; below the public prefix, which is that of all jobs, lies only what a stranger may see: also a rank of
another job or of an earlier attempt finds the door, and is turned away by name.

| prefix | key             | written by                                                            |
|--------|-----------------|-----------------------------------------------------------------------|
| public | door            | rank 0: whether a secret is needed                                    |
| public | stranger/NUMBER | a rank without the secret: its rank and host, for rank 0's log        |
| secret | challenge       | rank 0: a nonce, and the proof that it has the secret                 |
| secret | member/RANK     | every other rank: the proof that it has the secret, for this nonce    |

Without a secret (ranks that were started by hand) the door is open, and the gang's prefix is that of job and attempt.
"""

import json
import secrets
import socket
import time
from dataclasses import dataclass, field

import torch.distributed as dist
from heterotp_api import proofs
from heterotp_api.formatting import ranks_listed
from heterotp_api.names import Env
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from heterotp_trainer.errors import InputError
from heterotp_trainer.launch.environment import RankEnvironment
from heterotp_trainer.launch.json_messages import gather_json

OPEN, CLOSED = "open", "closed"
PUBLIC = "heterotp/door"  # the prefix that strangers know
POLL_SECONDS = 0.05
CHALLENGE_SECONDS = 5.0  # from the open door to rank 0's challenge, which it writes before
MOST_NAMED = 20  # strangers
MOST_HOST = 100  # characters of a stranger's host


class TurnedAwayError(RuntimeError):
    """Ranks of this gang did not prove that they have its secret in time."""


@dataclass(frozen=True)
class Key:
    """The secret of a job and attempt."""

    secret: str = field(repr=False)
    job: str
    attempt: int

    def proof(self, *parts: object) -> str:
        """Return the HMAC of what is proved, as hexadecimal digits."""
        return proofs.proof(self.secret, self.job, self.attempt, *parts)

    def proves(self, proof: str, *parts: object) -> bool:
        """Return whether a proof is right."""
        return proofs.proves(proof, self.secret, self.job, self.attempt, *parts)

    @property
    def prefix(self) -> str:
        """The prefix of what the gang exchanges."""
        return f"heterotp/{self.proof('prefix')}" if self.secret else f"heterotp/{self.job}/{self.attempt}"


def key_of(environment: RankEnvironment) -> Key:
    """Return the key of this rank's job and attempt; its secret is empty where the ranks have none."""
    return Key(environment.secret, environment.job, environment.attempt)


def enter(store: Store, key: Key, rank: int, ranks: int, seconds: float) -> None:
    """Show that this rank belongs to the gang, and wait on rank 0 until all others have (all ranks).

    Raises InputError on a rank without the gang's secret; TurnedAwayError on rank 0 where a rank does not show it
    within `seconds`; the store's error where rank 0 does not answer.
    """
    public, inner = PrefixStore(PUBLIC, store), PrefixStore(key.prefix, store)
    if rank == 0:
        nonce = secrets.token_hex(16)
        inner.set("challenge", f"{nonce} {key.proof('challenge', nonce)}")  # before the door: see CHALLENGE_SECONDS
        public.set("door", CLOSED if key.secret else OPEN)
        if key.secret:
            _admit(public, inner, key, nonce, ranks, seconds)
        return
    closed = public.get("door") == CLOSED.encode()
    if not key.secret and closed:
        _announce(public, rank)
        raise InputError(f"{Env.RENDEZVOUS_SECRET}: is missing: rank 0 of job {key.job} admits no rank without it")
    if key.secret:
        inner.set(f"member/{rank}", key.proof("member", _challenge(public, inner, key, rank), rank))


def _challenge(public: Store, inner: Store, key: Key, rank: int) -> str:
    """Return rank 0's nonce; raise InputError where rank 0 has another secret or none."""
    deadline = time.monotonic() + CHALLENGE_SECONDS
    while not inner.check(["challenge"]):
        if time.monotonic() > deadline:
            _announce(public, rank)
            raise InputError(f"{Env.RENDEZVOUS_SECRET}: rank 0 of job {key.job}, attempt {key.attempt} has another one")
        time.sleep(POLL_SECONDS)
    nonce, _, proof = inner.get("challenge").decode("utf-8", "replace").partition(" ")
    if not key.proves(proof, "challenge", nonce):
        raise InputError(f"{Env.RENDEZVOUS_SECRET}: rank 0 of job {key.job} cannot prove that it has it")
    return nonce


def _announce(public: Store, rank: int) -> None:
    number = public.add("strangers", 1)
    public.set(f"stranger/{number}", json.dumps([rank, socket.gethostname()]))


def _admit(public: Store, inner: Store, key: Key, nonce: str, ranks: int, seconds: float) -> None:
    """Wait for the proofs of all other ranks; name strangers in the log."""
    deadline = time.monotonic() + seconds
    missing, named = list(range(1, ranks)), 0
    while True:
        if named < MOST_NAMED and public.check([f"stranger/{named + 1}"]):
            named += 1
            print(_named(public.get(f"stranger/{named}")), flush=True)
            continue
        if not missing or inner.check([f"member/{rank}" for rank in missing]):
            missing = _unproved(inner, key, nonce, missing)
        if not missing:
            return
        if time.monotonic() > deadline:
            missing = [rank for rank in missing if not inner.check([f"member/{rank}"])] or missing
            raise TurnedAwayError(f"{ranks_listed(missing)} did not show the secret of this job within {seconds:.0f} s")
        time.sleep(POLL_SECONDS)


def _unproved(inner: Store, key: Key, nonce: str, ranks: list[int]) -> list[int]:
    """Return the ranks whose proof is wrong, after it is deleted: the right one may still come."""
    proofs = inner.multi_get([f"member/{rank}" for rank in ranks]) if ranks else []
    given = [proof.decode("utf-8", "replace") for proof in proofs]
    wrong = [rank for rank, proof in zip(ranks, given, strict=True) if not key.proves(proof, "member", nonce, rank)]
    for rank in wrong:
        print(f"rank {rank} was turned away: its proof of the secret of this job is wrong", flush=True)
        inner.delete_key(f"member/{rank}")
    return wrong


def _named(text: bytes) -> str:
    """Return the line about a stranger, of whose text nothing is believed."""
    try:
        rank, host = json.loads(text)
        who = f"a process at {str(host)[:MOST_HOST]!r} that joined as rank {int(rank)}"
    except (ValueError, TypeError, RecursionError):
        who = "a process"
    return f"turned away: {who} does not have the secret of this job and attempt"


def prove_to_all(key: Key, rank: int, ranks: int, group: dist.ProcessGroup) -> None:
    """Prove over the gang's own connections that every rank has the secret (all ranks).

    Raises TurnedAwayError naming the ranks that cannot: they came in by the store, whose keys a stranger may list.
    """
    if not key.secret:
        return
    nonces = gather_json(secrets.token_hex(16), str, ranks, group)
    proofs = gather_json(key.proof("gang", rank, nonces), str, ranks, group)
    wrong = [other for other, proof in enumerate(proofs) if not key.proves(proof, "gang", other, nonces)]
    if wrong:
        raise TurnedAwayError(f"{ranks_listed(wrong)} did not prove to have the secret of this job")
