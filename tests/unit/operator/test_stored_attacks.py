"""What large objects of one namespace take of the operator's memory while all objects are listed."""

import json
import tracemalloc

import pytest
from aiohttp import web
from heterotp_operator.cluster import connect
from heterotp_operator.informers import Informers
from heterotp_operator.metrics import Metrics
from heterotp_operator.resync import Resync
from heterotp_operator.settings import Settings
from heterotp_operator.store import Stores
from kubernetes.aio import client
from support.hoards import configmap, large_job, refused_job

MIB = 1 << 20
COUNT = 6


class Api:
    """An API server that holds objects as text; the pages of a list are made of their texts."""

    def __init__(self, **objects):
        self._objects = {
            plural: [self._text(make, number) for number in range(COUNT)] for plural, make in objects.items()
        }

    def _text(self, make, number):
        body = make(f"o{number}")
        body["metadata"] |= {"namespace": "team", "uid": f"u{number}", "resourceVersion": "1"}
        return json.dumps(body)

    async def answer(self, request):
        found = self._objects.get(request.path.rpartition("/")[2], [])
        limit, at = int(request.query["limit"]), int(request.query.get("continue", "0"))
        more = {"continue": str(at + limit)} if at + limit < len(found) else {}
        head = json.dumps({"resourceVersion": "9", **more})
        page = f'{{"metadata": {head}, "items": [{",".join(found[at : at + limit])}]}}'
        return web.Response(text=page, content_type="application/json")


async def listed(api):
    """List everything once; return the stores and the most memory that was taken meanwhile."""
    app = web.Application()
    app.router.add_get("/{path:.*}", api.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = client.Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    cluster, stores = await connect(configuration, Metrics(), rate=1000.0, timeout=60.0), Stores()
    tracemalloc.start()
    try:
        await Resync(cluster, stores, Informers(stores, lambda kind, key: None), Settings()).once()
        return stores, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        await cluster.close()
        await runner.cleanup()


@pytest.mark.parametrize(
    ("plural", "make", "most"),
    [("heterotpjobs", large_job, 30), ("heterotpjobs", refused_job, 45), ("configmaps", configmap, 18)],
    ids=["valid jobs", "refused jobs", "ConfigMaps"],
)
async def test_a_list_of_large_objects_takes_the_memory_of_a_few(plural, make, most):
    """most: MiB, of which this program's own server takes up to 10; all at once take 50, 61 and 23."""
    stores, taken = await listed(Api(**{plural: make}))
    assert len(stores.jobs) + len(stores.configmaps) == COUNT
    assert taken < most * MIB
