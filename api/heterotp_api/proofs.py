"""Proofs that a process has the secret of a job and attempt: made by ranks and by the operator, compared by ranks."""

import hmac
import json


def proof(secret: str, job: str, attempt: int, *parts: object) -> str:
    """Return the HMAC-SHA256 of job, attempt and `parts`, of which the first says what for, as hexadecimal digits."""
    text = json.dumps([job, attempt, *map(str, parts)])
    return hmac.new(secret.encode(), text.encode(), "sha256").hexdigest()


def proves(given: str, secret: str, job: str, attempt: int, *parts: object) -> bool:
    """Return whether a given proof is right; it may be any text."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), proof(secret, job, attempt, *parts).encode())


def lease_proof(secret: str, job: str, attempt: int, challenge: str) -> str:
    """Return the proof by which the operator renews the lease of a job's injections; a challenge is answered once."""
    return proof(secret, job, attempt, "lease", challenge)


def is_lease_proof(given: str, secret: str, job: str, attempt: int, challenge: str) -> bool:
    """Return whether a given text is the proof for this challenge."""
    return proves(given, secret, job, attempt, "lease", challenge)
