"""Sharded attention and MLP against the textbook's formulas on full parameters, over real gloo gangs."""

import pytest

PLANS = ("even", "scattered", "no-heads", "no-units", "by-speed")
TOLERANCE = 2e-5  # fp32, sums in another order
PARAMETERS = {
    "attention": ("qkv.weight", "qkv.bias", "proj.weight", "proj.bias"),
    "mlp": ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"),
}
QUANTITIES = [
    (kind, quantity)
    for kind, names in PARAMETERS.items()
    for quantity in ("output", "grad input", *(f"grad {name}" for name in names))
]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(("kind", "quantity"), QUANTITIES, ids=lambda value: value.replace(" ", "-"))
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_equals_the_unsharded_layer(gang, ranks, kind, quantity, plan):
    errors = [result[f"{kind} {plan}"][quantity] for result in gang("layer_checks.py", ranks)]
    assert len(errors) == ranks
    assert max(errors) < TOLERANCE, errors


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("kind", PARAMETERS)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_initial_parameters_do_not_depend_on_the_plan(gang, ranks, kind, plan):
    for result in gang("layer_checks.py", ranks):
        initial = {name: e for name, e in result[f"{kind} {plan}"].items() if name.startswith("init ")}
        assert len(initial) == 4
        assert set(initial.values()) == {0.0}, initial
