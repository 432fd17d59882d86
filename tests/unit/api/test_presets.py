"""Preset `paper`: it sets what is not given, and no default of the API server wins over it."""

import pytest
from heterotp_api.crd import crds
from heterotp_api.policy import BalancingPolicySpec, BalancingSettings
from heterotp_api.presets import PRESETS
from heterotp_api.strategy_blocks import Mig, Semi, Zero

PRINTED = {"times": "measured", "gamma_by": "time", "layer_ratios": "maximum", "theta_mode": "absolute"}


def values(block, names):
    return {name: getattr(block, name) for name in names}


def test_it_sets_every_equation_of_its_strategy():
    paper = {name: BalancingSettings(strategy=name, preset="paper") for name in ("ZERO", "MIG", "SEMI")}
    assert values(paper["ZERO"].zero, PRINTED) == PRINTED and paper["ZERO"].zero.criterion == "average"
    semi = paper["SEMI"].semi
    assert (semi.beta_rule, semi.split_rule) == ("equation2", "equation3")
    assert values(semi.zero, PRINTED) == PRINTED and semi.zero.criterion == "minimum"
    for mig in (semi.mig, paper["MIG"].mig):
        assert (mig.target, mig.parts) == ("minimum", "equal")


@pytest.mark.parametrize(
    "given",
    [
        {"zero": {"criterion": "minimum", "thetaPerIteration": 0.01}},
        {"zero": {"criterion": "minimum", "theta_per_iteration": 0.01}},
        {"zero": Zero(criterion="minimum", theta_per_iteration=0.01)},
    ],
    ids=["camel", "snake", "a-model"],
)
def test_what_is_given_wins_and_the_rest_is_the_presets(given):
    zero = BalancingSettings.model_validate({"strategy": "ZERO", "preset": "paper", **given}).zero
    assert (zero.criterion, zero.theta_per_iteration) == ("minimum", 0.01)
    assert values(zero, PRINTED) == PRINTED


def test_without_a_preset_all_is_ours():
    assert BalancingSettings(strategy="SEMI", semi=Semi()).semi == Semi()
    assert values(Zero(), PRINTED) == dict(zip(PRINTED, ("fullWork", "curve", "scaled", "quantile"), strict=True))
    assert (Mig().target, Mig().parts) == ("commonTime", "bySpeed")


@pytest.mark.parametrize("strategy", PRESETS["paper"])
def test_it_survives_being_written_and_read(strategy):
    settings = BalancingPolicySpec.model_validate({"strategy": strategy, "preset": "paper"}).settings
    assert BalancingSettings.model_validate(settings.dump()) == settings


@pytest.mark.parametrize("block", [3, "x", [], {"zero": 3}], ids=str)
def test_malformed_blocks_are_refused_as_without_a_preset(block):
    with pytest.raises(ValueError, match="semi"):
        BalancingSettings.model_validate({"strategy": "SEMI", "preset": "paper", "semi": block})


def declared(node, path):
    for name in path:
        node = node["properties"][name]
    return node


def test_the_api_server_writes_no_default_of_a_field_that_a_preset_sets():
    policy = next(crd for crd in crds() if crd["spec"]["names"]["kind"] == "BalancingPolicy")
    spec = policy["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for blocks in PRESETS["paper"].values():
        for path in paths(blocks):
            assert "default" not in declared(spec, path), path
            outer = declared(spec, path[:-1]).get("default", {})
            assert path[-1] not in outer, path


def paths(fields, before=()):
    for name, value in fields.items():
        yield from paths(value, (*before, name)) if isinstance(value, dict) else [(*before, name)]
