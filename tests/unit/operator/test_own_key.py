"""The operator's own key: made once, read by all, and shown nowhere."""

import asyncio
import base64
import logging

import pytest
from heterotp_operator.cluster import ApiError, Conflict, NotFound, Refused
from heterotp_operator.own_key import OwnKey, UnusableKeyError


class ApiServer:
    """An API server with at most one Secret; `fails`: errors of the next calls."""

    def __init__(self):
        self.secret, self.fails, self.made, self.waits = None, [], 0, []

    async def _answer(self):
        await asyncio.sleep(0)
        if self.fails:
            raise self.fails.pop(0)

    async def get(self, resource, namespace, name):
        await self._answer()
        assert (resource.plural, namespace, name) == ("secrets", "system", "key")
        if self.secret is None:
            raise NotFound(404, "NotFound", name)
        return self.secret

    async def create(self, body):
        await self._answer()
        if self.secret is not None:
            raise Conflict(409, "AlreadyExists", "taken")
        self.secret, self.made = body, self.made + 1
        return body

    async def sleep(self, seconds):
        self.waits.append(seconds)

    def holder(self):
        return OwnKey(self, "system", "key", sleep=self.sleep)


async def test_the_key_is_made_once_and_read_after_a_restart():
    server = ApiServer()
    first, second = server.holder(), server.holder()
    assert first.get() is None
    await first.read()
    await second.read()
    assert first.get() == second.get() is not None
    assert len(first.key.value) == 32
    assert (server.made, server.secret["immutable"]) == (1, True)
    assert server.secret["metadata"]["namespace"] == "system"


async def test_replicas_that_start_together_agree():
    server = ApiServer()
    holders = [server.holder() for _ in range(5)]
    await asyncio.gather(*(holder.read() for holder in holders))
    assert server.made == 1
    assert len({holder.key.value for holder in holders}) == 1


async def test_two_clusters_have_two_keys():
    holders = [ApiServer().holder() for _ in range(2)]
    for holder in holders:
        await holder.read()
    assert holders[0].key != holders[1].key


async def test_a_right_that_is_missing_is_waited_for_and_logged_without_what_was_sent(caplog):
    server = ApiServer()
    missing = NotFound(404, "NotFound", "key")
    server.fails = [ApiError(0, "down", ""), Refused(403, "Forbidden", "no"), missing, Refused(403, "Denied", "ECHO")]
    holder = server.holder()
    with caplog.at_level(logging.DEBUG):
        await holder.read()
    assert (server.made, len(server.waits)) == (1, 3)
    assert "Secret system/key: 403 Forbidden" in caplog.text
    shown = caplog.text + repr(holder.key)
    key = server.secret["data"]["key"]
    assert not any(secret in shown for secret in ("ECHO", key, base64.b64decode(key).hex()))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "has 0 bytes: must have 32"),
        ({"key": ""}, "has 0 bytes: must have 32"),
        ({"key": "c2hvcnQ="}, "has 5 bytes: must have 32"),
        ({"key": "%"}, "is not base64"),
    ],
)
async def test_a_secret_that_holds_no_key_is_named_and_not_replaced(data, words):
    server = ApiServer()
    server.secret = {"metadata": {"name": "key"}, "data": data}
    with pytest.raises(UnusableKeyError, match=rf"^Secret system/key: data\.key: {words}; delete the Secret"):
        await server.holder().read()
    assert server.secret["data"] == data
