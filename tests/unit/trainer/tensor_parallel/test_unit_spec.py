"""What the specs of a model's parameters say about its work."""

import pytest
import torch
from heterotp_trainer.tensor_parallel.unit_spec import (
    ShardSpec,
    ffn,
    gated_ffn,
    heads,
    owned_parts,
    sharded_parameter,
    vocabulary,
    work_weights,
)

WIDTH, HEADS, HEAD_SIZE = 24, 6, 4


def parameters(specs, owned):
    """Return one rank's shards of matrices [out, in] of these specs, each with a bias."""
    found = []
    for name, spec in specs.items():
        rows = spec.rows_in_all
        shape = (rows, WIDTH) if spec.dim == 0 else (WIDTH, rows)
        found.append(sharded_parameter(name, shape, spec, range(owned[spec.family]), 0.0, 0))
        if spec.dim == 0:
            found.append(sharded_parameter(f"{name}.bias", (rows,), spec, range(owned[spec.family]), 0.0, 0))
    return found


@pytest.mark.parametrize("owned", [{"heads": 6, "ffn": 96}, {"heads": 0, "ffn": 5}], ids=["all", "no-head"])
@pytest.mark.parametrize(
    ("network", "weight"),
    [(ffn(96), 2 / 3), (ffn(192), 4 / 5), (gated_ffn(96), 3 / 4), ({}, 0.0)],
    ids=["ratio-4", "ratio-8", "gated", "attention-only"],
)
def test_the_networks_part_of_the_work_follows_from_the_model(network, weight, owned):
    attention = heads(HEADS, HEAD_SIZE)
    replicated = torch.nn.Parameter(torch.zeros(WIDTH, 1000))
    assert work_weights([*parameters({**attention, **network}, owned), replicated]) == pytest.approx(
        (1 - weight, weight, 0)
    )


def test_a_model_without_sharded_matrices_counts_as_the_usual_one():
    bias = sharded_parameter("b", (96,), ShardSpec("ffn", 0, 1, 96), range(3), 0.0, 0)
    assert work_weights([bias]) == work_weights([]) == pytest.approx((1 / 3, 2 / 3, 0))


def test_logits_have_their_part_of_the_work_and_an_embedding_has_none():
    parts = {**heads(HEADS, HEAD_SIZE), **ffn(96)}
    logits, embedding = (
        sharded_parameter(name, (1000, WIDTH), vocabulary(1000), range(7), 0.0, 0) for name in ("logits", "embedding")
    )
    embedding.makes_no_product = True
    whole = 4 * WIDTH**2 + 2 * 96 * WIDTH + 1000 * WIDTH
    weights = (4 * WIDTH**2 / whole, 2 * 96 * WIDTH / whole, 1000 * WIDTH / whole)
    assert work_weights([*parameters(parts, {"heads": 3, "ffn": 3}), logits, embedding]) == pytest.approx(weights)


def test_a_ranks_parts_are_those_of_the_elements_that_it_owns():
    rows = sharded_parameter("e", (1000, WIDTH), vocabulary(1000), range(30), 0.0, 0)
    bias = sharded_parameter("b", (96,), ShardSpec("ffn", 0, 1, 96), range(10 * WIDTH // 4), 0.0, 0)
    replicated = torch.nn.Parameter(torch.zeros(1000))
    assert owned_parts([rows, bias, replicated]) == pytest.approx({"heads": 0, "ffn": 60 / 780, "vocab": 720 / 780})
    assert set(owned_parts([replicated]).values()) == {0.0}
