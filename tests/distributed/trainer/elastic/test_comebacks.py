"""Ranks that were killed are started again and let in, and training goes on as if they had not been lost."""

import sys

import pytest
from heterotp_api.names import Env
from support.elastic import DYING, ITERATIONS, elastic, losses, without_moves

SECRET = {Env.RENDEZVOUS_SECRET: "a secret of thirty-two characters"}


@pytest.fixture
def dying(launch):
    def start(body, *points):
        without_moves(launch.workdir)
        return launch(body, command=[sys.executable, DYING, *points], **SECRET)

    return start


def test_back(dying):
    run = dying(elastic(3, rejoin=True, iterations=400), "norm:1:20")
    assert run.wait() == 0, run.text()
    print(run.text())
    assert "rank 1 is back" in run.text()
