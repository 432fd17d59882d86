import pytest
from support.balancer_world import World


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)
