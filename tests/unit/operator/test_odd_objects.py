"""Whatever an object holds, nothing raises: the job shows InvalidSpec, and all others are worked on.

HETEROTP_FUZZ_EXAMPLES=10000 draws so many examples for each test.
"""

import copy
import json
import os
import subprocess
import sys

import pytest
from heterotp_api.excess import MOST_LEVELS
from heterotp_api.injection import InjectionStatus
from heterotp_api.status import JobStatus
from heterotp_operator.cluster import JOBS
from heterotp_operator.excess import MOST_OF_SPEC, job_excess
from heterotp_operator.informers import Informers
from heterotp_operator.poll_answer import understood
from heterotp_operator.reconcile.actions import CreatePod
from heterotp_operator.reconcile.injection_status import ObservedInjection, injection_status
from heterotp_operator.reconcile.objects import balancing_of, injection_selects, is_ours, policy_selects
from heterotp_operator.reconcile.observed import TrainerReport
from heterotp_operator.reconcile.policy_status import ObservedPolicy, policy_status
from heterotp_operator.store import Stores, trim_custom, trim_job
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reconcile_world import EPOCH, World, injection, manifest, policy
from support.stored_manifests import example_specs, stored

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
SPECS = [stored(spec)["spec"] for spec in example_specs().values()]
MANY = settings(max_examples=int(os.environ.get("HETEROTP_FUZZ_EXAMPLES", "200")))


def paths(value, path=()):
    """Yield the path of every value inside of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from paths(inner, (*path, key))


@st.composite
def odd(draw, originals, others, most):
    """One of the originals, of which up to `most` values are replaced by others."""
    body = copy.deepcopy(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, most))):
        *above, last = draw(st.sampled_from(list(paths(body))))
        place = body
        for key in above:
            place = place[key]
        place[last] = copy.deepcopy(draw(others))
    return body


def odd_specs():
    return odd(SPECS, JSON, 3)


def looked_at(spec):
    """Play one job with this spec; return its world after its first statuses."""
    job = trim_job({**manifest(), "spec": spec})
    world = World(job)
    assert is_ours(job) in (True, False)
    balancing_of(job)
    policy_selects(policy("p"), job)
    injection_selects(injection("i"), job)
    policy_status(ObservedPolicy(policy("p"), (policy("p"),), (job,), EPOCH))
    for _ in range(2):
        for action in world.reconcile().actions:
            if isinstance(action, CreatePod):
                json.dumps(action.body, allow_nan=False)
        if world.status:
            JobStatus.model_validate(json.loads(json.dumps(world.status, allow_nan=False)))
    return world


@MANY
@given(spec=JSON)
def test_any_json_as_a_spec_is_an_invalid_spec(spec):
    world = looked_at(spec)
    assert world.condition("Failed")["reason"] == "InvalidSpec"


@MANY
@given(spec=odd_specs())
def test_a_real_spec_with_odd_values_is_refused_or_played(spec):
    world = looked_at(spec)
    assert (world.status["phase"] == "Failed") == (world.condition("Failed").get("status") == "True")


@MANY
@given(spec=odd_specs())
def test_a_running_gang_whose_spec_becomes_odd_does_not_raise(spec):
    world = World(manifest()).started()
    world.edit(**(spec if isinstance(spec, dict) else {}))
    decision = world.plan()
    assert decision.status is None or decision.status["phase"]


def nested(levels, inner=0):
    for _ in range(levels):
        inner = {"a": inner}
    return inner


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (nested(MOST_LEVELS), "spec is nested deeper than 64 levels"),
        (nested(9_000), "spec is nested deeper than 64 levels"),
        ({"a": ["x"] * MOST_OF_SPEC.values}, "spec holds more than 50000 values"),
        ({"a": "x" * MOST_OF_SPEC.characters}, "spec holds more than 1048576 characters"),
        ({"x" * MOST_OF_SPEC.characters: 1}, "spec holds more than 1048576 characters"),
    ],
    ids=["65 levels", "9,000 levels", "values", "text", "names"],
)
def test_a_deep_or_huge_template_is_an_invalid_spec_and_is_not_kept(template, words):
    stores, seen = Stores(), []
    Informers(stores, lambda kind, key: seen.append(key)).upsert(JOBS, manifest(template=None) | _with(template))
    job = stores.jobs.get(("team", "job"))
    assert job["spec"] == {} and seen
    world = World(job)
    world.settle()
    failed = world.condition("Failed")
    assert (failed["reason"], failed["message"]) == ("InvalidSpec", words)


WIDE = {"a": ["x"] * 5_000}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (manifest(template=WIDE), "spec.workerGroups[0].template: holds more than 5000 values"),
        (manifest(template={"a": "x" * 131_072}), "spec.workerGroups[0].template: holds more than 131072 characters"),
        (manifest(odd=WIDE), "spec, templates left out, holds more than 5000 values"),
        (
            manifest(labelled={f"l{number}": "1" for number in range(257)}),
            "metadata.labels: holds more than 256 labels",
        ),
    ],
    ids=["values", "text", "outside of templates", "labels"],
)
def test_a_part_that_is_too_large_is_named(body, words):
    body["metadata"]["labels"] = body["spec"].pop("labelled", {})
    world = World(trim_job(body))
    world.settle()
    assert world.job["spec"] == {} and world.condition("Failed")["message"] == words


def test_a_text_is_no_template():
    world = World(trim_job(manifest(template="{}")))
    world.settle()
    failed = world.condition("Failed")
    assert failed["message"].startswith("spec.workerGroups[0].template: '{}'")


def test_a_policy_that_is_too_large_is_refused():
    body = trim_custom(policy("p", selector={"matchLabels": {f"l{number}": "1" for number in range(50_000)}}))
    status, _ = policy_status(ObservedPolicy(body, (body,), (manifest(),), EPOCH))
    accepted = next(each for each in status["conditions"] if each["type"] == "Accepted")
    assert (accepted["reason"], accepted["message"]) == ("InvalidSpec", "spec holds more than 50000 values")


def _with(template):
    body = manifest()["spec"]
    body["workerGroups"][0]["template"] = template
    return {"spec": body}


def test_real_manifests_exceed_nothing():
    assert [job_excess({"metadata": {}, "spec": spec}) for spec in SPECS] == [None] * len(SPECS)
    assert job_excess(manifest(groups=[(f"g{number}", 1024, 16) for number in range(18)])) is None


def test_the_process_reads_what_the_api_server_lets_through():
    program = (
        "import json, sys\n"
        "from heterotp_operator.__main__ import RECURSION_LIMIT\n"
        "from heterotp_operator.store import trim_job\n"
        "sys.setrecursionlimit(RECURSION_LIMIT)\n"
        "deep = '{\"a\":' * 9990 + '[]' + '}' * 9990\n"
        'text = \'{"metadata":{"name":"j"},"spec":\' + deep + \'}\'\n'
        "assert trim_job(json.loads(text))['spec'] == {}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_message_of_an_invalid_spec_is_short():
    world = World(manifest(rendezvous={"port": "x" * 100_000}))
    decision = world.plan()
    assert len(decision.events[0].message) < 400


# -- status documents -----------------------------------------------------------------------------------------

RANK = {"rank": 0, "tpRank": 0, "device": "cpu", "relativeSpeed": 0.5, "slowdown": 2.0, "straggler": True, "share": 0.5}
REPORT = {
    **{"schemaVersion": 1, "job": "job", "attempt": 1, "state": "running", "startedAt": EPOCH, "message": "m"},
    **{"iteration": 5, "iterationSeconds": 0.1, "stalledSeconds": 40.0, "stalledBy": [1], "stall": "rank 1 waits"},
    **{"controlError": "no", "controlErrorGeneration": 3, "decisionId": 2, "reason": "why", "loss": 1.0},
    "ranks": [RANK, RANK | {"rank": 1, "relativeSpeed": 1.0, "straggler": False}],
    "injections": [{"uid": "uid-i", "state": "active", "ranks": [1], "seconds": 1.0}],
}
NUMBERS = st.sampled_from([-1, 0, 2**53, 2**63, 10**30, 1e308, -1e308, 5e-324, 1e999, float("nan")])
ODD = JSON | NUMBERS | st.sampled_from(["x" * 5000, "\x00", "\ud7ff", "running", [RANK] * 100, [7] * 5000])


RUNNING = World(manifest()).started()


@MANY
@given(report=odd([REPORT], ODD, 4))
def test_a_hostile_report_makes_a_status_that_the_api_server_accepts_or_none(report):
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    answer = understood(head + json.dumps(report).encode())
    assert (answer.status is None) == (answer.failure == "BadAnswer")
    world = copy.deepcopy(RUNNING)
    world.trainer = TrainerReport(answer.status, answer.failure, EPOCH)
    world.put(injection("i"))
    decision = world.plan()
    JobStatus.model_validate(json.loads(json.dumps(decision.status, allow_nan=False)))
    status, _ = injection_status(ObservedInjection(injection("i"), (world.observe(),), EPOCH))
    InjectionStatus.model_validate(json.loads(json.dumps(status, allow_nan=False)))
