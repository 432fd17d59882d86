"""ZERO, MIG, SEMI, RESHARD and AUTO act on a Llama of transformers as on models of our own layers."""

import math

import pytest
from support.language_model import ROWS, WIDTH
from support.ranks.llama_sessions import CASES, LEARNING

RANKS = 3
LOSSLESS = ("MIG", "RESHARD", "AUTO", "AUTO, tied")


@pytest.fixture(scope="module")
def sessions(gang):
    """What each rank saw, by rank and case."""
    return gang("llama_sessions.py", RANKS)


@pytest.mark.parametrize("name", LOSSLESS)
def test_losses_are_those_of_undisturbed_training(sessions, name):
    undisturbed = sessions[0]["undisturbed, tied" if "tied" in name else "undisturbed"]["losses"]
    for found in sessions:
        assert len(found[name]["losses"]) == found[name]["acts"] + 1 + CASES[name].after
        assert found[name]["losses"] == pytest.approx(undisturbed[: len(found[name]["losses"])], rel=1e-10)


@pytest.mark.parametrize("name", ["ZERO", "ZERO, tied"])
def test_zero_prunes_columns_of_all_linears_and_the_model_learns(sessions, name):
    pruned = sessions[1][name]["linears"]
    assert pruned.keys() == {"lm_head", *LINEARS}
    # into the heads, into the hidden units and into the logits half of the width; of the others half of the rank's own
    assert all(pruned[linear] == {"pruned": WIDTH // 2} for linear in pruned if linear not in ROW_PARALLEL)
    assert all(pruned[linear]["pruned"] > 0 for linear in ROW_PARALLEL)
    assert not any(columns for found in (sessions[0], sessions[2]) for columns in found[name]["linears"].values())
    assert [found[name]["still"] for found in sessions] == [None, name == "ZERO", None]
    assert_learns(sessions[0][name]["losses"])


def assert_learns(losses):
    assert len(losses) > LEARNING
    assert losses[0] == pytest.approx(math.log(ROWS), rel=0.1)
    assert sum(losses[-10:]) / 10 < 0.5 * losses[0], losses


def test_semi_reduces_the_work_of_a_straggler_and_the_model_learns(sessions):
    reduced = [sum(sum(each.values()) for each in found["SEMI"]["linears"].values()) for found in sessions]
    assert reduced[0] == reduced[1] == 0 < reduced[2], reduced
    assert sessions[2]["SEMI"]["columns"]
    assert_learns(sessions[0]["SEMI"]["losses"])


def test_mig_lets_others_compute_columns_of_all_linears(sessions):
    migrated = sessions[2]["MIG"]["linears"]
    assert migrated.keys() == {"lm_head", *LINEARS} and all(each["migrated"] > 0 for each in migrated.values())


@pytest.mark.parametrize("name", ["AUTO", "AUTO, tied"])
def test_an_evicted_rank_gives_all_units_away_and_others_read_its_checkpoint(sessions, name):
    rows = [found[name]["rows"] for found in sessions]
    assert rows[1] == 0 and sum(rows) == ROWS
    counts = sessions[0][name]["counts"]
    assert (counts["heads"][1], counts["ffn"][1], counts["vocab"]) == (0, 0, rows)
    assert sessions[0][name]["same"] == {"2": True, "3": True}


ATTENTION, FFN = "model.layers.0.self_attn", "model.layers.0.mlp"
ROW_PARALLEL = (f"{ATTENTION}.o_proj", f"{FFN}.down_proj")
LINEARS = (
    *(f"{ATTENTION}.{each}_proj" for each in "qkv"),
    *(f"{FFN}.{each}_proj" for each in ("gate", "up")),
    *ROW_PARALLEL,
)
