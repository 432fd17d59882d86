"""An applier of one job against a client that records calls."""

import pytest
from heterotp_operator.apply import Applier
from heterotp_operator.store import Stores
from support.recording_client import JOB, Client


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def stores():
    stores = Stores()
    stores.jobs.upsert(JOB)
    return stores


@pytest.fixture
def applier(client, stores):
    return Applier(client, stores, JOB)
