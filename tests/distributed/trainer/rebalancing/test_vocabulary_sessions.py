"""Every strategy acts on the vocabulary: rows move, columns of the logits are pruned or migrated, losses stay exact."""

import pytest
from support.language_model import ROWS, WIDTH
from support.ranks.vocabulary_sessions import AFTER, CASES

RANKS = 3
LOSSLESS = ("MIG", "MIG scatterGather, tied", "RESHARD", "AUTO", "AUTO, tied")
ZERO = [name for name in CASES if name.startswith("ZERO")]


@pytest.fixture(scope="module")
def sessions(gang):
    """What each rank saw, by rank and case."""
    return gang("vocabulary_sessions.py", RANKS)


@pytest.mark.parametrize("name", LOSSLESS)
def test_losses_are_those_of_undisturbed_training(sessions, name):
    undisturbed = sessions[0]["undisturbed, tied" if "tied" in name else "undisturbed"]["losses"]
    for found in sessions:
        assert len(found[name]["losses"]) == found[name]["acts"] + 1 + AFTER
        for loss, wanted in zip(found[name]["losses"], undisturbed, strict=False):
            assert loss == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("name", ["AUTO", "AUTO, tied"])
def test_an_evicted_rank_gives_all_of_its_rows_away(sessions, name):
    before = [found["undisturbed"]["rows"] for found in sessions]
    rows = [found[name]["rows"] for found in sessions]
    assert before == [21, 20, 20] and rows[1] == 0 and sum(rows) == ROWS
    counts = sessions[0][name]["counts"]
    assert counts["vocab"] == rows and (counts["heads"][1], counts["ffn"][1]) == (0, 0)
    assert f" of {ROWS} vocabulary rows move" in sessions[0][name]["reason"]


@pytest.mark.parametrize("name", ["AUTO", "AUTO, tied"])
def test_a_checkpoint_is_bit_equal_on_another_number_of_ranks(sessions, name):
    assert sessions[0][name]["same"] == {"2": True, "3": True}


def test_a_slow_rank_keeps_fewer_rows(sessions):
    rows = [found["RESHARD"]["rows"] for found in sessions]
    assert sum(rows) == ROWS and rows[2] < min(rows[:2])
    assert "vocabulary rows" in sessions[0]["RESHARD"]["reason"]


@pytest.mark.parametrize("name", ZERO)
def test_zero_prunes_columns_of_the_logits(sessions, name):
    assert [found[name]["columns"] for found in sessions] == [{}, {"pruned": WIDTH // 2}, {}]
    # masked: the columns stay, but for a weight that is the embedding's, too, which the optimizer still updates
    assert [found[name]["still"] for found in sessions] == [None, name == "ZERO", None]


def test_mig_lets_others_compute_columns_of_the_logits(sessions):
    for name in ("MIG", "MIG scatterGather, tied"):
        assert [found[name]["columns"] for found in sessions] == [{}, {}, {"migrated": WIDTH // 2}]


def test_semi_reduces_the_logits_of_a_straggler(sessions):
    assert [bool(found["SEMI"]["columns"]) for found in sessions] == [False, False, True]


@pytest.mark.parametrize("name", ["undisturbed", "AUTO"])
def test_the_time_of_the_vocabulary_is_measured_on_ranks_that_own_rows(sessions, name):
    owners = [rank for rank, found in enumerate(sessions) if found[name]["rows"]]
    assert owners and all(sessions[0][name]["vocabulary"][rank] > 0 for rank in owners)
