"""The first control document of a local run."""

import pytest
from heterotp_api.load import parse_object
from heterotp_cli.control import choose
from manifest_table import TABLE, manifest


def job(**spec):
    return parse_object(manifest({"patch": {"spec": spec}}))


def policy(name="policy", **spec):
    return parse_object(manifest({"kind": "BalancingPolicy", "patch": {"metadata": {"name": name}, "spec": spec}}))


def test_without_a_policy_it_is_auto_without_loss():
    control = choose([job()]).control
    assert (control.generation, control.balancing.strategy, control.balancing.max_pruned_share) == (1, "AUTO", 0.0)


def test_inline_policy_is_taken():
    assert choose([job(balancing={"policy": {"strategy": "MIG"}})]).control.balancing.strategy == "MIG"


def test_policy_of_the_same_file_is_found_by_name():
    items = [policy("other"), policy("mine", strategy="ZERO", window=7), job(balancing={"policyRef": {"name": "mine"}})]
    chosen = choose(items)
    assert (chosen.control.balancing.strategy, chosen.control.balancing.window) == ("ZERO", 7)
    assert chosen.notes == ()


def test_a_policy_that_is_nowhere_is_noted():
    chosen = choose([job(balancing={"policyRef": {"name": "gone"}})])
    assert chosen.control.balancing.strategy == "AUTO"
    assert chosen.notes == ("policy gone is not in the manifest: AUTO without loss is used",)


def test_other_kinds_are_noted():
    injection = parse_object(TABLE["bases"]["StragglerInjection"])
    assert "StragglerInjection injection is left out" in choose([job(), injection]).notes[0]


def test_no_job_is_refused():
    with pytest.raises(ValueError, match="0 HeteroTPJob objects"):
        choose([policy()])
