"""A gang admits only ranks that have the secret of its job and attempt."""

from contextlib import contextmanager

import pytest
from heterotp_api.names import EXIT_BAD_INPUT, EXIT_PEER_LOST, Env
from support.launched import Launched, spec

SECRET = "the secret of this attempt"


@contextmanager
def rank(folder, number, port=None, secret=SECRET, timeout=60, attempt=2):
    """Start one of the two ranks of a job; port: of a rank 0 that runs."""
    body = spec(2, iterations=4, collectiveTimeoutSeconds=timeout)
    place = {Env.FIRST_RANK: str(number), Env.PROCESSES: "1"}
    ports = {} if port is None else {Env.MASTER_PORT: str(port), Env.STATUS_PORT: str(port + 5 + number)}
    run = Launched(folder, body, attempt, **place, **ports, **({Env.RENDEZVOUS_SECRET: secret} if secret else {}))
    try:
        yield run
    finally:
        run.kill()


@pytest.mark.parametrize(
    ("secret", "attempt"),
    [(None, 2), ("another secret of 16", 2), ("the secret of attempt 1", 1)],
    ids=["none", "another", "an earlier attempt's"],
)
def test_a_stranger_is_turned_away_by_name_and_the_gang_goes_on(tmp_path, secret, attempt):
    with rank(tmp_path / "0", 0) as first:
        with rank(tmp_path / "stranger", 1, first.port, secret, attempt=attempt) as stranger:
            assert stranger.wait() == EXIT_BAD_INPUT, stranger.text()
            assert f"error: {Env.RENDEZVOUS_SECRET}: " in stranger.text()
        first.until("the stranger is named", lambda: "that joined as rank 1 does not have the secret" in first.text())
        with rank(tmp_path / "1", 1, first.port) as second:
            assert (first.wait(), second.wait()) == (0, 0), first.text() + second.text()


def test_a_rank_with_a_secret_does_not_join_one_without(tmp_path):
    with rank(tmp_path / "0", 0, secret=None, timeout=8) as first:
        with rank(tmp_path / "1", 1, first.port) as second:
            assert second.wait() == EXIT_BAD_INPUT, second.text()
        assert first.wait() == EXIT_PEER_LOST, first.text()


def test_rank_0_names_the_ranks_that_showed_no_secret(tmp_path):
    with rank(tmp_path / "0", 0, timeout=2) as first:
        assert first.wait() == EXIT_PEER_LOST
        assert "rank 1 did not show the secret of this job within 2 s" in first.text()


def test_ranks_prove_the_secret_over_the_connections_that_they_use(gang):
    words = "{} did not prove to have the secret of this job"
    found = [words.format("rank 1"), words.format("ranks 0 and 2"), words.format("rank 1")]
    assert gang("door_checks.py", 3) == [{"same": "", "other": each, "none": ""} for each in found]
