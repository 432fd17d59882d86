"""The secret of a gang: a pure function of the operator's key, the job's uid and the attempt.

It is the same after a restart of the operator, and nobody without the key can tell the secret of another job or
attempt. The pods of a gang carry which key their secret is of, so that no gang is made with two.
"""

import hmac
import json
from dataclasses import dataclass, field

KEY_BYTES = 32


@dataclass(frozen=True)
class OperatorKey:
    """The operator's own key, which only the operator has. Raises ValueError for a key of another length."""

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.value) != KEY_BYTES:
            raise ValueError(f"has {len(self.value)} bytes: must have {KEY_BYTES}")

    @property
    def id(self) -> str:
        """What tells this key from another one, and nothing else about it."""
        return self._derive("id")[:16]

    def secret(self, job_uid: str, attempt: int) -> str:
        """Return the secret of one job and attempt."""
        return self._derive("rendezvous", job_uid, attempt)

    def _derive(self, *parts: str | int) -> str:
        return hmac.new(self.value, json.dumps(parts).encode(), "sha256").hexdigest()
