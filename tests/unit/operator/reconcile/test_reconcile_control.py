"""The control document: one pure function of jobs, policies and injections."""

import itertools
import json

import pytest
from heterotp_api import names
from heterotp_api.trainer_status import MOST_INJECTIONS, TrainerInjection, TrainerStatus, for_a_poll
from heterotp_operator.reconcile import injections
from heterotp_operator.reconcile.actions import ApplyConfigMap, TouchPod
from heterotp_operator.reconcile.injections import MOST_BYTES
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reconcile_world import World, injection, labelled, manifest, policy


def world(*objects, job=None, **spec):
    """Return a settled world of a labelled job and these objects."""
    made = World(job or labelled(manifest(**spec)))
    for each in objects:
        made.put(each)
    made.settle()
    return made


def strategy(made):
    return made.control["balancing"]["strategy"]


def shown(made):
    return made.status["balancing"]


# -- who governs ----------------------------------------------------------------------------------------------


def test_without_any_policy_auto_without_loss_governs():
    made = world()
    assert made.control["balancing"] | {"strategy": "AUTO", "maxPrunedShare": 0.0} == made.control["balancing"]
    assert shown(made)["policy"] == "default"
    assert made.control["generation"] == 1
    assert "leaseSeconds" not in made.control


def test_the_oldest_policy_that_selects_the_job_governs_it():
    made = world(policy("young", 5, strategy="MIG"), policy("old", 1, strategy="ZERO"), policy("z", 1, strategy="SEMI"))
    assert (strategy(made), shown(made)["policy"]) == ("ZERO", "old")
    assert shown(made)["policyGeneration"] == 1


def test_of_two_policies_of_the_same_second_the_name_decides():
    assert shown(world(policy("b", 1), policy("a", 1)))["policy"] == "a"


@pytest.mark.parametrize(
    ("selector", "governs"),
    [
        ({"matchLabels": {"a": "b"}}, True),
        ({}, True),
        ({"matchLabels": {"a": "c"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "x", "operator": "Exists"}]}, False),
        (None, False),
    ],
    ids=str,
)
def test_selectors(selector, governs):
    given = policy("p", strategy="ZERO")
    given["spec"].pop("selector")
    if selector is not None:
        given["spec"]["selector"] = selector
    assert shown(world(given))["policy"] == ("p" if governs else "default")


def test_a_policy_that_the_job_names_needs_no_selector_and_comes_before_older_ones():
    named = policy("named", 9, strategy="SEMI")
    named["spec"].pop("selector")
    made = world(policy("old", 1), named, balancing={"policyRef": {"name": "named"}})
    assert (strategy(made), shown(made)["policy"]) == ("SEMI", "named")
    assert made.status["waitingFor"] != "Policy"


def test_a_policy_ref_to_a_missing_policy_is_a_problem():
    made = world(policy("old", 1, strategy="ZERO"), balancing={"policyRef": {"name": "none"}})
    assert (strategy(made), shown(made)["policy"]) == ("AUTO", "default")
    made.run()
    made.settle()
    assert made.status["waitingFor"] == "Policy"
    words = "spec.balancing.policyRef.name: 'none': there is no such BalancingPolicy: AUTO without loss"
    assert shown(made)["problem"] == words
    made.put(policy("none", 3, strategy="MIG"))
    made.settle()
    assert (strategy(made), shown(made)["policy"], made.status["waitingFor"]) == ("MIG", "none", "Rendezvous")
    assert "problem" not in shown(made)


def test_an_inline_policy_comes_before_all_that_select():
    made = world(policy("p", strategy="ZERO"), balancing={"policy": {"strategy": "MIG"}})
    assert (strategy(made), shown(made)["policy"]) == ("MIG", "inline")


@pytest.mark.parametrize(
    ("objects", "spec", "words"),
    [
        (
            [policy("p", strategy="ZERO", zero={"fixedRatio": 0.5, "ranks": [3]})],
            {},
            "BalancingPolicy p: spec.zero.ranks: 3: the job has ranks 0 .. 2",
        ),
        ([policy("p", strategy="SEMMI")], {}, None),
        (
            [],
            {"balancing": {"policy": {"strategy": "MIG", "mig": {"fixedRatio": 0.5, "ranks": [7]}}}},
            "spec.balancing.policy.mig.ranks: 7: the job has ranks 0 .. 2",
        ),
    ],
    ids=["a rank that is not there", "not valid: selects nothing", "inline"],
)
def test_a_policy_that_does_not_fit_is_replaced_by_the_default(objects, spec, words):
    made = world(*objects, policy("younger", 5, strategy="ZERO") if words and objects else policy("q", 9), **spec)
    if words:
        assert (strategy(made), shown(made)["policy"]) == ("AUTO", "default")
        assert shown(made)["problem"] == words
    else:
        assert shown(made)["policy"] == "q"


def test_a_policy_being_deleted_does_not_govern():
    leaving = policy("p", strategy="ZERO")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert strategy(world(leaving)) == "AUTO"


# -- ranks of injections -----------------------------------------------------------------------------------


def listed(made):
    return {each["name"]: (each["ranks"], each["slowdown"]) for each in made.control["injections"]}


def test_an_injection_reaches_the_job_that_it_names_and_those_that_it_selects():
    made = world(
        injection("named"),
        injection("selecting", selector={"matchLabels": {"a": "b"}}, targets={"workerGroups": ["b"]}),
        injection("other", jobRef={"name": "another"}),
        injection("elsewhere", selector={"matchLabels": {"a": "c"}}),
    )
    assert listed(made) == {"named": ([1], 4.0), "selecting": ([1, 2], 4.0)}
    assert made.control["leaseSeconds"] == 60


def test_injections_are_listed_oldest_first_and_keep_their_fields():
    made = world(
        injection("young", 7, mode="repeat"),
        injection("old", 3, paused=True, start={"iteration": 5}, pattern={"roundRobin": {"every": {"epochs": 1}}}),
    )
    old, young = made.control["injections"]
    assert (old["name"], young["name"]) == ("old", "young")
    assert (old["uid"], old["paused"], old["start"]) == ("uid-old", True, {"iteration": 5})
    assert old["pattern"] == {"roundRobin": {"every": {"epochs": 1}}}
    assert young["mode"] == "repeat"


def test_nodes_become_the_ranks_of_the_pods_that_run_there():
    made = world(injection("i", targets={"nodes": ["n1"]}))
    assert made.control["injections"] == []
    made.pods["job-b-0-1"]["spec"]["nodeName"] = "n1"
    made.settle()
    assert listed(made) == {"i": ([1], 4.0)}
    made.pods["job-b-1-1"]["spec"]["nodeName"] = "n1"
    made.settle()
    assert listed(made) == {"i": ([1, 2], 4.0)}


def test_ranks_that_the_job_does_not_have_are_left_out_and_the_others_stay():
    made = world(injection("bad", targets={"ranks": [3]}), injection("good"))
    assert listed(made) == {"good": ([1], 4.0)}


def test_a_control_document_takes_as_many_injections_as_fit_the_oldest_first():
    made = world(*(injection(f"i{n:04}", n) for n in range(MOST_INJECTIONS + 3)))
    assert len(made.control["injections"]) == MOST_INJECTIONS
    assert made.control["injections"][-1]["name"] == f"i{MOST_INJECTIONS - 1:04}"


def test_each_injection_of_a_control_document_has_its_state_in_the_status_document():
    made = world(*(injection(f"i{n:04}", n) for n in range(MOST_INJECTIONS)))
    states = tuple(TrainerInjection(uid=each["uid"], state="active") for each in made.control["injections"])
    status = TrainerStatus(job="job", attempt=1, state="running", started_at=0.0, injections=states)
    read = TrainerStatus.model_validate_json(for_a_poll(status).model_dump_json(by_alias=True))
    assert [each.uid for each in read.injections] == [each.uid for each in states]


def test_a_configmap_stays_within_the_limit_of_the_api_server():
    groups = (("a", 1024, 16),)
    job = labelled(manifest(groups=groups))
    many = World(job)
    for number in range(30):
        many.put(injection(f"i{number:02}", number, targets={"workerGroups": ["a"]}))
    text = many.observe().effective.document.dump()
    size = len(json.dumps(text, separators=(",", ":")))
    assert MOST_BYTES - 200_000 < size < 1 << 20
    problems = many.observe().effective.injections.problems
    assert "uid-i29" in problems and "uid-i00" not in problems
    assert problems["uid-i29"].startswith("the job's control document is full: ")


def test_no_injection_is_resolved_after_the_first_that_does_not_fit(monkeypatch):
    """Each of 300 injections of all 16,384 ranks costs 5 ms; nine fill the document."""
    many = World(manifest(groups=(("a", 1024, 16),)))
    for number in range(300):
        many.put(injection(f"i{number:03}", number, targets={"workerGroups": ["a"]}))
    asked, resolve = [], injections.resolve
    monkeypatch.setattr(injections, "resolve", lambda *given: asked.append(1) or resolve(*given))
    found = many.observe().effective.injections
    assert len(asked) == len(found.injections) + 1 < 20
    assert len(found.problems) == 300 - len(found.injections)


# -- generations ----------------------------------------------------------------------------------------------


def test_the_generation_rises_only_when_the_content_changes():
    made = world()
    seen = []

    def look():
        made.settle()
        seen.append((made.control["generation"], strategy(made)))

    made.put(policy("p", 1, strategy="ZERO"))
    look()
    made.put(policy("younger", 2, strategy="MIG"))
    look()
    made.policies["p"]["metadata"]["labels"] = {"x": "y"}
    look()
    made.put(policy("p", 1, strategy="SEMI"))
    look()
    del made.policies["p"]
    look()
    del made.policies["younger"]
    look()
    assert seen == [(2, "ZERO"), (2, "ZERO"), (2, "ZERO"), (3, "SEMI"), (4, "MIG"), (5, "AUTO")]


def test_rank_0s_pod_is_touched_once_per_generation():
    made = world().started()
    made.put(injection())
    touches = []
    for _ in range(4):
        touches += [action for action in made.plan().actions if isinstance(action, TouchPod)]
        made.reconcile()
    assert [(touch.name, touch.generation) for touch in touches] == [("job-a-0-1", 2)]


def test_a_document_edited_by_hand_is_overwritten_with_a_newer_generation():
    made = world(policy("p", strategy="ZERO")).started()
    document = made.control
    for change in ({"injections": [{"uid": "x", "ranks": [0], "slowdown": 9}]}, {"generation": 40, "balancing": {}}):
        made.objects["ConfigMap"]["data"][names.CONTROL_FILE] = json.dumps(document | change)
        made.settle()
        assert made.control["balancing"] == document["balancing"] and made.control["injections"] == []
        assert made.control["generation"] > max(document["generation"], change.get("generation", 0))


@pytest.mark.parametrize("damage", ["taken away", "no JSON", "another key"])
def test_a_document_that_is_damaged_by_hand_is_written_again(damage):
    made = world(policy("p", strategy="ZERO")).started()
    known = made.status["balancing"]["generation"]
    made.status["balancing"]["appliedGeneration"] = known  # the ranks follow it
    if damage == "taken away":
        del made.objects["ConfigMap"]
    else:
        made.objects["ConfigMap"]["data"] = {names.CONTROL_FILE: "{"} if damage == "no JSON" else {"x": "y"}
    assert any(isinstance(action, ApplyConfigMap) for action in made.plan().actions)
    made.settle()
    assert (made.control["generation"], strategy(made)) == (known + 1, "ZERO")


def test_a_generation_above_all_published_ones_is_damage():
    made = world(policy("p", strategy="ZERO")).started()
    document = made.control
    made.objects["ConfigMap"]["data"][names.CONTROL_FILE] = json.dumps(document | {"generation": 2**53})
    made.settle()
    assert made.control["generation"] <= document["generation"] + 1
    assert strategy(made) == "ZERO"


def test_a_document_that_no_rank_followed_keeps_its_generation():
    made = world(policy("p", strategy="ZERO"))
    for _ in range(3):
        del made.objects["ConfigMap"]
        made.settle()
    assert made.control["generation"] == 1


def test_a_job_that_ended_gets_no_new_document():
    made = world(policy("p", strategy="ZERO")).started()
    for name in made.pods:
        made.end(name, 0)
    made.settle()
    before = dict(shown(made))
    made.put(policy("p", strategy="MIG"))
    made.settle()
    assert shown(made) == before
    assert strategy(made) == "ZERO"


def test_a_suspended_job_gets_the_newest_document_on_resume():
    made = world().started()
    made.edit(runPolicy={"suspend": True})
    made.settle()
    made.vanish()
    made.put(policy("p", strategy="ZERO"))
    made.settle()
    made.edit(runPolicy={"suspend": False})
    made.settle()
    assert strategy(made) == "ZERO"
    assert made.control["generation"] == shown(made)["generation"] == 2


# -- the order of events changes nothing ----------------------------------------------------------------------

STRATEGIES = st.sampled_from(["None", "ZERO", "MIG", "SEMI", "RESHARD", "AUTO"])
LABELS = st.sampled_from([{"matchLabels": {"a": "b"}}, {"matchLabels": {"a": "c"}}, {}])
NAMES = st.sampled_from(["x", "y", "z"])
POLICIES = st.builds(lambda n, born, how, sel: policy(n, born, strategy=how, selector=sel), NAMES, st.integers(0, 2),
                     STRATEGIES, LABELS)  # fmt: skip
TARGETS = st.sampled_from([{"ranks": [0, 2]}, {"ranks": [9]}, {"workerGroups": ["b"]}, {"count": 2, "seed": 4}])
INJECTIONS = st.builds(
    lambda n, born, chi, targets, paused: injection(n, born, slowdown=chi, targets=targets, paused=paused),
    NAMES,
    st.integers(0, 2),
    st.sampled_from([1.5, 4.0]),
    TARGETS,
    st.booleans(),
)
INLINE = st.sampled_from([{}, {"policyRef": {"name": "x"}}, {"policy": {"strategy": "SEMI"}}])
EVENTS = st.lists(
    st.tuples(st.just("put"), POLICIES | INJECTIONS)
    | st.tuples(st.sampled_from(["drop policies", "drop injections"]), NAMES)
    | st.tuples(st.just("balancing"), INLINE),
    max_size=10,
)


def happen(made, event):
    what, value = event
    if what == "put":
        made.put(json.loads(json.dumps(value)))
    elif what == "balancing":
        made.edit(balancing=value)
    else:
        getattr(made, what.split()[1]).pop(value, None)


@settings(max_examples=60, deadline=None)
@given(events=EVENTS, looks=st.lists(st.booleans(), min_size=10, max_size=10), order=st.randoms())
def test_the_document_depends_on_the_present_objects_only(events, looks, order):
    step = world().started()
    generations = [step.control]
    for event, look in zip(events, looks, strict=False):
        happen(step, event)
        if look:
            step.settle()
            generations.append(step.control)
    step.settle()
    generations.append(step.control)
    at_once = world(balancing=step.job["spec"].get("balancing") or {}).started()
    objects = [*step.policies.values(), *step.injections.values()]
    order.shuffle(objects)
    for each in objects:
        happen(at_once, ("put", each))
    at_once.settle()
    assert {**step.control, "generation": 0} == {**at_once.control, "generation": 0}
    for old, new in itertools.pairwise(generations):
        same = {**old, "generation": 0} == {**new, "generation": 0}
        assert new["generation"] == old["generation"] if same else new["generation"] > old["generation"]
