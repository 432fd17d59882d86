"""What a poll carries so that it renews the lease of a job's injections: the proof for rank 0's last challenge."""

import re
from collections.abc import Callable

from heterotp_api import names
from heterotp_api.proofs import lease_proof

from heterotp_operator.queue import Key
from heterotp_operator.reconcile.gang_secret import OperatorKey
from heterotp_operator.store import Json

KeyReader = Callable[[], OperatorKey | None]


class Renewals:
    """The last challenge of each rank 0. After a restart the first poll asks for one, and the second renews.

    A rank without a secret, or of an earlier version, gives no challenge: the header alone renews its lease.
    """

    def __init__(self, identity: str, key: KeyReader) -> None:
        self._identity, self._key = identity, key
        self._challenges: dict[Key, tuple[str, str]] = {}

    def headers(self, key: Key, job: Json, pod_uid: str) -> dict[str, str]:
        """Return the headers of the next poll of a job's rank 0."""
        out = {names.LEASE_HEADER: self._identity}
        asked, challenge = self._challenges.get(key, ("", ""))
        operator_key = self._key()
        if operator_key is not None and challenge and asked == pod_uid:
            attempt = int(job["status"]["attempt"])
            secret = operator_key.secret(job["metadata"]["uid"], attempt)
            out[names.LEASE_PROOF_HEADER] = lease_proof(secret, key[1], attempt, challenge)
        return out

    def take(self, key: Key, pod_uid: str, challenge: str) -> bool:
        """Keep the challenge of an answer; return whether it is the first one of this pod."""
        if not challenge:
            return False
        first = self._challenges.get(key, ("", ""))[0] != pod_uid
        self._challenges[key] = pod_uid, challenge
        return first

    def forget(self, key: Key) -> None:
        """Drop what is known of a job that is gone."""
        self._challenges.pop(key, None)


def challenge_of(text: str | None) -> str:
    """Return the challenge that a header holds, empty where it holds none: it is a stranger's."""
    return text if text is not None and re.fullmatch(names.LEASE_CHALLENGE, text) else ""
