"""The lease of injections: they hold only while an operator polls the job, for only the operator can remove them.

Where ranks have a secret, a poll renews the lease only with a proof for the challenge that rank 0 gave with an answer.
A challenge is accepted once: a poll that was read off the network renews nothing again, and no clock is compared.
"""

import secrets
import time
from collections.abc import Callable, Mapping

from heterotp_api import names, proofs

from heterotp_trainer.launch.door import Key


class Lease:
    """Seconds since the last renewal, by rank 0's own monotonic clock; the status server's thread renews it."""

    def __init__(self, key: Key | None = None, now: Callable[[], float] = time.monotonic) -> None:
        """key: of this job and attempt; None or without a secret: every poll with the lease header renews."""
        self._key = key if key is not None and key.secret else None
        self._now = now
        self._renewed = now()
        self._challenge = secrets.token_hex(16)

    def renew(self) -> None:
        """Restart the count of seconds."""
        self._renewed = self._now()

    def polled(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Renew for a poll of the operator, by the headers of the request; return headers of the answer."""
        if names.LEASE_HEADER not in headers:
            return {}
        if self._key is None:
            self.renew()
            return {}
        if self._is_proved(self._key, headers.get(names.LEASE_PROOF_HEADER, "")):
            self._challenge = secrets.token_hex(16)
            self.renew()
        return {names.LEASE_CHALLENGE_HEADER: self._challenge}

    def _is_proved(self, key: Key, proof: str) -> bool:
        return proofs.is_lease_proof(proof, key.secret, key.job, key.attempt, self._challenge)

    def is_over(self, seconds: float | None) -> bool:
        """Return whether the last renewal is more than `seconds` ago; None: there is no lease, it never ends."""
        return seconds is not None and self._now() - self._renewed > seconds
