"""kopf's lists against a small API server: pages are bounded in bytes, and no object is missed."""

import json

import pytest
from aiohttp import web
from heterotp_operator import login
from heterotp_operator.cluster import JOBS
from heterotp_operator.handlers import kopf_settings
from heterotp_operator.metrics import Metrics
from heterotp_operator.page_size import FIRST, MOST_BYTES
from heterotp_operator.settings import Settings
from kopf._cogs.clients.auth import vault_var
from kopf._cogs.clients.fetching import fetch_objs
from kopf._cogs.structs.credentials import Vault
from kopf._cogs.structs.references import Resource
from kubernetes.aio import client


class Api:
    """Serves a list of objects by pages, as the API server does; `sizes`: bytes of each object."""

    def __init__(self, sizes):
        self.items = [{"metadata": {"name": str(number)}, "x": "x" * size} for number, size in enumerate(sizes)]
        self.limits = []

    async def answer(self, request):
        limit, at = int(request.query["limit"]), int(request.query.get("continue", "0"))
        self.limits.append(limit)
        more = {"continue": str(at + limit)} if at + limit < len(self.items) else {}
        page = {"metadata": {"resourceVersion": "9", **more}, "items": self.items[at : at + limit]}
        return web.Response(text=json.dumps(page), content_type="application/json")


async def listed(api):
    """Return the names of all objects that kopf finds, by pages."""
    app = web.Application()
    app.router.add_get("/{path:.*}", api.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = client.Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    session = login.session(configuration, login.WatchTrace(Metrics(), {}))
    try:
        return await pages_of(session)
    finally:
        await session.aiohttp_session.close()
        await runner.cleanup()


async def pages_of(session):
    group, _, version = JOBS.api_version.rpartition("/")
    resource = Resource(group, version, JOBS.plural, namespaced=True)
    vault_var.set(Vault({"k": session}))
    pages = fetch_objs(settings=kopf_settings(Settings()), resource=resource, namespace=None, logger=None)
    return [[item["metadata"]["name"] for item in items] async for items, _ in pages]


@pytest.mark.parametrize("size", [1_500_000, 3_000_000], ids=["1.5 MB", "3 MB"])
async def test_large_objects_come_one_by_one(size):
    api = Api([size] * 4)
    assert await listed(api) == [["0"], ["1"], ["2"], ["3"]]
    assert api.limits == [25, 5, 1, 1, 1, 1]


async def test_small_objects_come_by_many():
    api = Api([10] * 60)
    assert [len(page) for page in await listed(api)] == [FIRST, 35]


async def test_a_page_within_the_bound_is_taken_as_it_is():
    api = Api([MOST_BYTES // 30] * 50)
    assert [len(page) for page in await listed(api)] == [25, 25]
