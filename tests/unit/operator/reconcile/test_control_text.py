"""A long control document is kept as digest and generation; the decisions are those of the text."""

import json

from heterotp_api import names
from heterotp_operator.reconcile.actions import ApplyConfigMap
from heterotp_operator.store import trim_child
from support.reconcile_world import World, injection, labelled, manifest, policy


def long_world():
    """Return a running job whose control document lists 2,000 ranks."""
    world = World(manifest(groups=[("a", 125, 16)])).started()
    world.put(injection("i", targets={"workerGroups": ["a"]}))
    world.settle()
    return world


def looked_at(world, text=None):
    """Return the documents that a look writes while the ConfigMap holds this text."""
    live = world.objects["ConfigMap"]
    if text is not None:
        live["data"][names.CONTROL_FILE] = text
    world.objects["ConfigMap"] = trim_child(live)
    assert isinstance(world.objects["ConfigMap"]["data"][names.CONTROL_FILE], dict)
    written = [each.body for each in world.plan().actions if isinstance(each, ApplyConfigMap)]
    return [json.loads(body["data"][names.CONTROL_FILE]) for body in written]


def test_a_long_document_that_is_as_wanted_is_left_alone():
    assert looked_at(long_world()) == []


def test_a_long_document_that_somebody_changed_gets_a_new_generation():
    world = long_world()
    document = world.control
    edited = {**document, "injections": [{**document["injections"][0], "slowdown": 9.0}]}
    (written,) = looked_at(world, json.dumps(edited))
    assert written == {**document, "generation": document["generation"] + 1}


def test_a_long_text_that_is_no_document_is_replaced():
    world = long_world()
    document = world.control
    (written,) = looked_at(world, "x" * 10_000)
    assert written["injections"] == document["injections"]


def test_another_injection_of_a_long_document_raises_its_generation():
    world = long_world()
    document = world.control
    world.put(injection("j", born=1))
    (written,) = looked_at(world)
    assert (written["generation"], len(written["injections"])) == (document["generation"] + 1, 2)


def written(**policy_spec):
    """Return the zero block of the control document that a policy of strategy ZERO leads to."""
    world = World(labelled(manifest()))
    world.put(policy("p", 1, strategy="ZERO", **policy_spec))
    world.settle()
    return world.control["balancing"]["zero"]


def test_a_document_names_no_field_that_older_trainers_lack_unless_somebody_gave_it():
    undeclared = {"times", "gammaBy", "layerRatios", "redraw"}
    assert not undeclared & set(written(zero={"selection": "Pri"}))
    assert written(zero={"redraw": "epoch"})["redraw"] == "epoch"
    assert written(preset="paper")["times"] == "measured"
