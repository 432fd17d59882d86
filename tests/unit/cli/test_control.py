"""The first control document of a local run."""

import pytest
from heterotp_api.injection import Pattern
from heterotp_api.load import parse_object
from heterotp_cli.control import choose
from support.manifest_table import manifest


def job(labels=None, **spec):
    return parse_object(manifest({"patch": {"metadata": {"labels": labels}, "spec": spec}}))


def of_kind(kind, metadata, spec):
    return parse_object(manifest({"kind": kind, "patch": {"metadata": metadata, "spec": spec}}))


def policy(name="policy", namespace="default", **spec):
    return of_kind("BalancingPolicy", {"name": name, "namespace": namespace}, spec)


def injection(name="injection", metadata=None, **spec):
    return of_kind("StragglerInjection", {"name": name, **(metadata or {})}, spec)


def selecting(**labels):
    return {"matchLabels": labels}


def test_without_a_policy_the_default_is_auto_without_loss():
    control = choose([job()]).control
    assert (control.generation, control.balancing.strategy, control.balancing.max_pruned_share) == (1, "AUTO", 0.0)


def test_inline_policy_is_taken():
    assert choose([job(balancing={"policy": {"strategy": "MIG"}})]).control.balancing.strategy == "MIG"


def test_policy_of_the_same_file_is_found_by_name():
    items = [policy("other"), policy("mine", strategy="ZERO", window=7), job(balancing={"policyRef": {"name": "mine"}})]
    chosen = choose(items)
    assert (chosen.control.balancing.strategy, chosen.control.balancing.window) == ("ZERO", 7)
    assert chosen.notes == ()


def test_a_missing_policy_is_noted():
    chosen = choose([job(balancing={"policyRef": {"name": "gone"}})])
    assert chosen.control.balancing.strategy == "AUTO"
    assert chosen.notes == ("policy gone is not in the manifest: AUTO without loss is used",)


def test_the_first_policy_that_selects_the_job_is_taken():
    items = [
        policy("blind", strategy="MIG"),
        policy("elsewhere", "other", strategy="MIG", selector={}),
        policy("vision", strategy="ZERO", selector=selecting(team="vision")),
        policy("all", strategy="SEMI", selector={}),
        job({"team": "vision"}),
    ]
    assert choose(items).control.balancing.strategy == "ZERO"
    assert choose([*items[:-1], job({"team": "speech"})]).control.balancing.strategy == "SEMI"


@pytest.mark.parametrize(
    ("given", "balancing", "note"),
    [
        (policy(), {}, "no policyRef names it, and it does not select the job"),
        (policy(selector=selecting(team="speech")), {}, "no policyRef names it, and it does not select the job"),
        (policy(), {"policyRef": {"name": "mine"}}, "the job names policy mine"),
        (policy("mine", "other"), {"policyRef": {"name": "mine"}}, "it is in namespace other, the job in default"),
    ],
    ids=["no selector", "other labels", "other name", "other namespace"],
)
def test_policies_that_are_not_used_are_noted(given, balancing, note):
    chosen = choose([given, job({"team": "vision"}, balancing=balancing)])
    assert (chosen.control.balancing.strategy, chosen.control.balancing.max_pruned_share) == ("AUTO", 0.0)
    assert chosen.notes[0] == f"policy {given.metadata.name} is left out: {note}"


def test_an_injection_keeps_its_fields_and_gets_its_ranks():
    every = {"roundRobin": {"every": {"iterations": 5}}}
    (found,) = choose([job(), injection(pattern=every, stop={"seconds": 9}, paused=True)]).control.injections
    assert (found.uid, found.name, found.ranks, found.slowdown) == ("injection", "injection", [3], 4)
    assert (found.pattern, found.stop.seconds, found.paused) == (Pattern.model_validate(every), 9, True)


@pytest.mark.parametrize(
    ("targets", "ranks"),
    [({"ranks": [2, 0]}, [2, 0]), ({"workerGroups": ["fast"]}, [0, 1, 2]), ({"count": 4, "seed": 1}, [0, 1, 2, 3])],
    ids=str,
)
def test_targets_become_ranks(targets, ranks):
    chosen = choose([injection(targets={"ranks": None, **targets}), job()])
    assert [found.ranks for found in chosen.control.injections] == [ranks]
    assert chosen.notes == ()


def test_the_api_servers_uid_is_kept_and_a_selector_selects():
    metadata, aim = {"uid": "1-2-3"}, {"jobRef": None, "selector": {}}
    assert choose([job(), injection("slow", metadata, **aim)]).control.injections[0].uid == "1-2-3"


@pytest.mark.parametrize(
    ("given", "note"),
    [
        (injection(jobRef={"name": "other"}), "it is for job other"),
        (injection(jobRef=None, selector=selecting(a="b")), "it does not select the job"),
        (injection(metadata={"namespace": "other"}), "it is in namespace other, the job in default"),
        (
            injection(targets={"ranks": None, "nodes": ["n1"]}),
            "spec.targets.nodes needs a cluster; here, name ranks or workerGroups",
        ),
    ],
    ids=["other job", "other labels", "other namespace", "nodes"],
)
def test_injections_that_are_not_for_this_run_are_noted(given, note):
    chosen = choose([job(), given])
    assert chosen.control.injections == []
    assert chosen.notes == (f"injection injection is left out: {note}",)


FIXED = {"fixedRatio": 0.5, "ranks": [4]}


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (
            [job(balancing={"policy": {"strategy": "ZERO", "zero": FIXED}})],
            "spec.balancing.policy.zero.ranks: 4: the job has ranks 0 .. 3",
        ),
        (
            [job(), policy(strategy="MIG", mig=FIXED, selector={})],
            "BalancingPolicy policy: spec.mig.ranks: 4: the job has ranks 0 .. 3",
        ),
        (
            [job(), injection(targets={"ranks": [1, 9]})],
            "StragglerInjection injection: spec.targets.ranks: 9: the job has ranks 0 .. 3",
        ),
        (
            [job(), injection(), injection()],
            "StragglerInjection injection: metadata.name: 'injection' must be unique",
        ),
    ],
    ids=["inline policy", "policy", "injection", "same name"],
)
def test_a_policy_or_injection_that_does_not_fit_names_object_field_and_value(items, words):
    with pytest.raises(ValueError) as error:
        choose(items)
    assert str(error.value) == words


def test_no_job_is_refused():
    with pytest.raises(ValueError, match="0 HeteroTPJob objects"):
        choose([policy()])
