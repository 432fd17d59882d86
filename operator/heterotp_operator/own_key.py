"""The operator's own key: 32 random bytes in a Secret of its namespace, made once by whichever replica is first."""

import asyncio
import base64
import binascii
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Protocol

from heterotp_api import names

from heterotp_operator.cluster import SECRETS, ApiError, Conflict, NotFound, Resource
from heterotp_operator.reconcile.gang_secret import KEY_BYTES, OperatorKey
from heterotp_operator.store import Json

logger = logging.getLogger(__name__)
FIELD = "key"
RETRY_SECONDS = 2.0


class UnusableKeyError(Exception):
    """The Secret holds no key; the message names it."""


class SecretClient(Protocol):
    """The calls to the API server that the key needs."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        """Return the Secret. Raises NotFound."""

    async def create(self, body: Json) -> Json:
        """Create the Secret. Raises Conflict."""


class OwnKey:
    """Holds the operator's key once it is read."""

    def __init__(
        self,
        cluster: SecretClient,
        namespace: str,
        name: str,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        new: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._cluster, self._namespace, self._name, self._sleep, self._new = cluster, namespace, name, sleep, new
        self.key: OperatorKey | None = None

    def get(self) -> OperatorKey | None:
        """Return the key; None before it is read."""
        return self.key

    async def read(self) -> None:
        """Read the key, or make it where there is none; try again until the API server lets it.

        Raises UnusableKeyError naming the Secret where it holds no key: a new one would disturb the gangs that run.
        """
        while self.key is None:
            try:
                self.key = self._key_of(await self._find_or_make())
            except ApiError as error:  # without its message, which may repeat what was sent
                logger.warning(
                    "Secret %s/%s: %s %s; trying again: the operator works when it may get and create it",
                    *(self._namespace, self._name, error.code, error.reason),
                )
                await self._sleep(RETRY_SECONDS)

    async def _find_or_make(self) -> Json:
        try:
            return await self._cluster.get(SECRETS, self._namespace, self._name)
        except NotFound:
            pass
        try:
            return await self._cluster.create(self._body())
        except Conflict:  # another replica was faster
            return await self._cluster.get(SECRETS, self._namespace, self._name)

    def _body(self) -> Json:
        key = base64.b64encode(self._new(KEY_BYTES)).decode()
        labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
        metadata = {"name": self._name, "namespace": self._namespace, "labels": labels}
        head = {"apiVersion": SECRETS.api_version, "kind": SECRETS.kind, "metadata": metadata}
        return {**head, "type": "Opaque", "immutable": True, "data": {FIELD: key}}

    def _key_of(self, secret: Json) -> OperatorKey:
        where = f"Secret {self._namespace}/{self._name}: data.{FIELD}"
        try:
            return OperatorKey(base64.b64decode((secret.get("data") or {}).get(FIELD) or "", validate=True))
        except binascii.Error:
            raise UnusableKeyError(f"{where}: is not base64; delete the Secret for a new key") from None
        except ValueError as error:
            raise UnusableKeyError(f"{where}: {error}; delete the Secret for a new key") from None
