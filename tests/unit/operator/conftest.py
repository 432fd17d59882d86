import asyncio

import pytest
from heterotp_operator.metrics import Metrics
from heterotp_operator.store import Stores
from support.polled_rank import Rank0


@pytest.fixture
def stores():
    return Stores()


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
async def serve():
    """Start servers; each is a Rank0 with a port."""
    servers, ranks = [], []

    async def start():
        rank0 = Rank0()
        ranks.append(rank0)
        servers.append(await asyncio.start_server(rank0.handle, "127.0.0.1", 0))
        rank0.port = servers[-1].sockets[0].getsockname()[1]
        return rank0

    yield start
    for server in servers:
        server.close()
    tasks = [task for rank0 in ranks for task in rank0.open]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def rank0(serve):
    return await serve()
