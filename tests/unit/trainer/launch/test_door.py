"""The door of a gang against what strangers write into its store."""

import json
import threading

import pytest
import torch.distributed as dist
from heterotp_trainer.errors import InputError
from heterotp_trainer.launch import door
from heterotp_trainer.launch.door import Key, TurnedAwayError, enter
from torch.distributed import PrefixStore

KEY = Key("the secret of this attempt", "job", 3)


@pytest.fixture
def store():
    return dist.HashStore()


def together(store, *ranks, seconds=5.0):
    """Let rank 0 and others enter at once; return what each of them raised, by rank."""
    found = {}

    def one(rank, key):
        try:
            enter(store, key, rank, len(ranks), seconds)
            found[rank] = None
        except (InputError, TurnedAwayError) as error:
            found[rank] = error

    threads = [threading.Thread(target=one, args=each) for each in enumerate(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize(
    "other",
    [
        Key("secret of attempt two", "job", 2),
        Key("secret of another", "other", 1),
        Key("", "job", 2),
        Key("", "other", 1),
    ],
    ids=["an earlier attempt", "another job", "an earlier one without", "another job without"],
)
def test_ranks_of_other_attempts_and_jobs_are_turned_away_by_name(store, other, monkeypatch, capfd):
    monkeypatch.setattr(door, "CHALLENGE_SECONDS", 0.2)
    found = together(store, KEY, other, seconds=1.5)
    assert isinstance(found[1], InputError) and isinstance(found[0], TurnedAwayError)
    assert "that joined as rank 1 does not have the secret" in capfd.readouterr().out


def test_ranks_with_the_secret_enter(store):
    assert together(store, KEY, KEY, KEY) == {0: None, 1: None, 2: None}


@pytest.mark.parametrize(
    "other", [Key(KEY.secret, "job", 2), Key(KEY.secret, "other", 3), Key("x" * 16, "job", 3)], ids=str
)
def test_the_secret_s_prefix_is_of_one_job_and_attempt(other):
    assert other.prefix != KEY.prefix and other.proof("member", "n", 1) != KEY.proof("member", "n", 1)
    assert KEY.secret not in KEY.prefix and KEY.job not in KEY.prefix


LIES = {
    "its state": ("door", "open"),
    "no list": ("stranger/1", "{"),
    "nested": ("stranger/1", "[" * 100_000),
    "control characters": ("stranger/1", json.dumps([1, "\x1b[2J\n" + "x" * 10_000])),
}


@pytest.mark.parametrize(("key", "text"), LIES.values(), ids=LIES)
def test_what_a_stranger_writes_at_the_door_changes_nothing(store, key, text, capfd):
    PrefixStore(door.PUBLIC, store).set(key, text)
    assert together(store, KEY, KEY) == {0: None, 1: None}
    out = capfd.readouterr().out
    assert "\x1b" not in out and len(out) < 1000 and out.count("\n") <= 1


def test_a_forged_proof_is_refused_by_name(store, monkeypatch, capfd):
    monkeypatch.setattr(door, "CHALLENGE_SECONDS", 0.2)
    PrefixStore(KEY.prefix, store).set("member/1", "f" * 64)  # by one who lists the keys of the store
    with pytest.raises(TurnedAwayError, match="rank 1 did not show the secret"):
        enter(store, KEY, 0, 2, 0.3)
    assert "rank 1 was turned away: its proof" in capfd.readouterr().out


def test_a_rank_0_that_cannot_prove_the_secret_is_refused(store):
    PrefixStore(door.PUBLIC, store).set("door", "closed")
    PrefixStore(KEY.prefix, store).set("challenge", "nonce " + "f" * 64)
    with pytest.raises(InputError, match="cannot prove that it has it"):
        enter(store, KEY, 1, 2, 1.0)
