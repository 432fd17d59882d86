"""The whole vision transformer, sharded over a gloo gang, against itself on one rank."""

import pytest

PLANS = ("even", "scattered", "no-heads", "no-units", "by-speed")
TOLERANCE = 1e-4
BF16_TOLERANCE = 0.1  # 8 bits of mantissa through two blocks, against fp32
BLOCK = ("norm1", "norm2", "attention.qkv", "attention.proj", "mlp.fc1", "mlp.fc2")
NAMES = (
    *("patch_weight", "patch_bias", "class_token", "positions", "head_weight", "head_bias"),
    *(f"{module}.{kind}" for module in ("norm", *(f"blocks.{i}.{m}" for i in (0, 1) for m in BLOCK))
      for kind in ("weight", "bias")),
)  # fmt: skip


@pytest.mark.parametrize("quantity", ["output", *(f"grad {name}" for name in NAMES)])
@pytest.mark.parametrize("way", ["vit", "recompute"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_equals_the_unsharded_model(gang, ranks, way, quantity):
    for rank, result in enumerate(gang("layer_checks.py", ranks)):
        for plan in PLANS:
            assert result[f"{way} {plan}"][quantity] < TOLERANCE, (rank, plan)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_gradient_was_compared(gang, ranks):
    for result in gang("layer_checks.py", ranks):
        compared = {name.removeprefix("grad ") for name in result["vit even"] if name.startswith("grad ")}
        assert compared == set(NAMES)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_same_seed_gives_the_same_model_for_any_plan(gang, ranks):
    for result in gang("layer_checks.py", ranks):
        for plan in PLANS:
            initial = [e for name, e in result[f"vit {plan}"].items() if name.startswith("init ")]
            assert len(initial) == len(NAMES)
            assert set(initial) == {0.0}, plan


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_bf16_stays_near_fp32(gang, ranks):
    for result in gang("layer_checks.py", ranks):
        errors = result["bf16 scattered"]
        assert 0 < errors["output"] < BF16_TOLERANCE
        assert max(e for name, e in errors.items() if name.startswith("init ")) == 0


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("way", ["vit", "recompute"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_clock_ends_where_it_began_and_books_every_phase(gang, ranks, way, plan):
    ranks_seen = gang("layer_checks.py", ranks)
    assert all(result[f"{way} {plan}"]["phase at the end"] == 0 for result in ranks_seen)
    # a rank without units multiplies nothing, but it still takes part in every collective
    assert all(result[f"{way} {plan}"]["phases without time"] == 0 for result in ranks_seen)
