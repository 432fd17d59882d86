"""Policies and injections on a real API server, in the words that users see; the test plays kubelets and rank 0."""

import json
from contextlib import contextmanager

import pytest
from heterotp_api import names
from support.balanced_job import Run, Thing, custom
from support.gang import groups_of
from support.kube import KubeError, until

pytestmark = pytest.mark.integration
NAMESPACE = "balancing"


@pytest.fixture(scope="module")
def operator(operated):
    with operated(NAMESPACE) as operator:
        yield operator


@pytest.fixture
def run(kube, kubeconfig, operator):
    """A function that creates a job and brings it to life; everything is removed afterwards."""
    made = []

    def make(name, *args, start=True, **options):
        made.append(Run(kube, kubeconfig, NAMESPACE, name, *args, **options))
        return made[-1].start() if start else made[-1]

    yield make
    for plural in ("balancingpolicies", "stragglerinjections"):
        for each in kube.list(plural, NAMESPACE):
            kube.delete(plural, NAMESPACE, each["metadata"]["name"])
    for each in made:
        each.zero.close()
        if each.live():
            each.delete()


@pytest.fixture
def policy(kube):
    return lambda name, strategy="ZERO", **spec: Thing(
        kube, NAMESPACE, "BalancingPolicy", name, {"strategy": strategy, **spec}
    )


@pytest.fixture
def inject(kube):
    def make(name, **spec):
        given = {"targets": {"ranks": [1]}, "slowdown": 4.0, **spec}
        return Thing(kube, NAMESPACE, "StragglerInjection", name, given)

    return make


def events(kube, name):
    return [
        (event["reason"], event["message"])
        for event in kube.list("events", NAMESPACE)
        if event["involvedObject"]["name"] == name
    ]


def selecting(**labels):
    return {"selector": {"matchLabels": labels}}


# -- policies -------------------------------------------------------------------------------------------------


def test_a_policy_reaches_a_running_job_and_leaves_it_again(run, policy, kube):
    live = run("live")
    live.follows(policy="default", strategy="AUTO", generation=1)
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in live.pods()}
    zero = policy("zero", **selecting(case="live"))
    live.follows(policy="zero", strategy="ZERO", generation=2)
    reported = zero.shows(selectedJobs=1, appliedJobs=1)
    assert zero.condition("Applied")[:2] == ("True", "InForce")
    assert reported["observedGeneration"] == 1
    zero.edit(strategy="SEMI")
    live.follows(policy="zero", strategy="SEMI", generation=3)
    zero.shows(appliedJobs=1, observedGeneration=2)
    zero.delete()
    live.follows(policy="default", strategy="AUTO", generation=4)
    after = {pod["metadata"]["name"]: pod for pod in live.pods()}
    assert {name: pod["metadata"]["uid"] for name, pod in after.items()} == pods
    (first,) = (pod for pod in after.values() if pod["metadata"]["labels"][names.LABEL_FIRST_RANK] == "0")
    assert first["metadata"]["annotations"][names.ANNOTATION_CONTROL] == "4"
    assert live.status["attempt"] == 1


def test_a_job_that_does_not_follow_is_named_until_it_does(run, policy):
    stubborn = run("stubborn")
    stubborn.follows(policy="default")
    stubborn.zero.obeys = False
    zero = policy("for-stubborn", **selecting(case="stubborn"))
    lag = {"job": "stubborn", "published": 2, "applied": 1}
    zero.shows(selectedJobs=1, laggards=[lag])
    assert zero.condition("Applied") == ("False", "Publishing", "not yet in force in: stubborn")
    stubborn.zero.obeys = True
    zero.shows(appliedJobs=1)
    assert not zero.status.get("laggards")


def test_of_two_policies_the_older_wins_and_the_other_is_told(run, policy, kube):
    torn = run("torn")
    older = policy("older", "MIG", **selecting(case="torn"))
    torn.follows(policy="older")
    # a second later by the API server's clock, which has seconds
    until("a second passes", lambda: later_than(kube, older))
    younger = policy("a-younger", "ZERO", **selecting(case="torn"))
    words = "job torn follows BalancingPolicy older: a job's own choice comes first, then the oldest policy"
    until(lambda: younger.status, lambda: younger.condition("Conflict") == ("True", "GovernedByAnother", words))
    until("an event", lambda: ("GovernedByAnother", words) in events(kube, "a-younger"))
    assert torn.control["balancing"]["strategy"] == "MIG"
    older.delete()
    torn.follows(policy="a-younger", strategy="ZERO")
    until(lambda: younger.status, lambda: younger.condition("Conflict")[0] == "False")


def later_than(kube, thing):
    born = kube.get(thing.plural, NAMESPACE, thing.name)["metadata"]["creationTimestamp"]
    probe = custom("BalancingPolicy", "clock", {"selector": {"matchLabels": {"no": "job"}}})
    made = kube.create("balancingpolicies", NAMESPACE, probe)["metadata"]["creationTimestamp"]
    kube.delete("balancingpolicies", NAMESPACE, "clock")
    return made > born


def test_a_policy_ref_to_nothing_is_waited_for_while_the_job_runs(run, policy):
    named = run("named", start=False, balancing={"policyRef": {"name": "mine"}}).start()
    named.waits_for("Policy")
    words = "spec.balancing.policyRef.name: 'mine': there is no such BalancingPolicy: AUTO without loss"
    assert named.status["balancing"]["problem"] == words
    mine = policy("mine", "ZERO")
    named.follows(policy="mine", strategy="ZERO")
    named.waits_for("")
    mine.shows(selectedJobs=1, appliedJobs=1)
    named.patch({"balancing": {"policyRef": None, "policy": {"strategy": "MIG"}}})
    named.follows(policy="inline", strategy="MIG")
    mine.shows(selectedJobs=0)


def test_a_policy_that_names_ranks_that_a_job_does_not_have_is_refused_by_name(run, policy, kube):
    small = run("small")
    wide = policy("wide", "ZERO", zero={"fixedRatio": 0.5, "ranks": [1, 3]}, **selecting(case="small"))
    words = "job small: spec.zero.ranks: 3: the job has ranks 0 .. 2: AUTO without loss balances it instead"
    until(lambda: wide.status, lambda: wide.condition("Applied") == ("False", "DoesNotFit", words))
    problem = "BalancingPolicy wide: spec.zero.ranks: 3: the job has ranks 0 .. 2"
    until(lambda: small.status, lambda: small.status["balancing"].get("problem") == problem)
    until("an event", lambda: ("DoesNotFit", words) in events(kube, "wide"))
    wide.edit(zero={"fixedRatio": 0.5, "ranks": [1, 2]})
    small.follows(policy="wide", strategy="ZERO")
    assert "problem" not in small.status["balancing"]


def test_what_the_trainer_refuses_is_shown_on_the_job(run, policy):
    picky = run("picky")
    picky.zero.overrides = {"controlError": "control.json: balancing.window: 0 is too small"}
    until(
        lambda: picky.status,
        lambda: picky.status.get("balancing", {}).get("problem") == "control.json: balancing.window: 0 is too small",
    )
    assert (picky.status["phase"], picky.status["balancing"]["policy"]) == ("Running", "default")  # it trains on
    picky.zero.overrides = {}
    until(lambda: picky.status, lambda: "problem" not in picky.status["balancing"])
    assert picky.status["balancing"]["appliedGeneration"] == picky.control["generation"]


# -- injections -----------------------------------------------------------------------------------------------


def test_an_injection_is_measured_and_the_straggler_named(run, inject, kube):
    slow = run("slow")
    one = inject("one", jobRef={"name": "slow"})
    reported = one.shows(phase="Injecting")
    until(lambda: one.status, lambda: one.status.get("measured") == 3.88)
    (row,) = one.status["ranks"]
    assert (row["job"], row["rank"], row["asked"], row["measured"]) == ("slow", 1, 4, 3.88)
    created = kube.get(one.plural, NAMESPACE, "one")["metadata"]["creationTimestamp"]
    assert row["since"] >= created  # by the operator's clock, not by the pods' clocks
    assert slow.control["leaseSeconds"] == 60
    assert set(slow.zero.polls) == {f"test-{NAMESPACE}"}
    until(lambda: slow.status, lambda: slow.condition("Straggling")["status"] == "True")
    words = slow.condition("Straggling")["message"]
    assert words.startswith("rank 1 is 4.0x slower since ") and words.endswith(", an injection asks for 4.0x")
    assert reported["observedGeneration"] == 1
    one.delete()
    until(lambda: slow.control, lambda: slow.control["injections"] == [])
    until(lambda: slow.status, lambda: slow.condition("Straggling")["status"] == "False")
    reasons = lambda: [reason for reason, _ in events(kube, "slow")]  # noqa: E731
    until(lambda: reasons(), lambda: {"Straggling", "RanksAreEven"} <= set(reasons()))
    assert "leaseSeconds" not in slow.control


def test_an_injection_is_edited_paused_and_goes_on(run, inject):
    run("edited")
    one = inject("live-edit", jobRef={"name": "edited"})
    one.shows(phase="Injecting")
    one.edit(slowdown=2.0)
    until(lambda: one.status, lambda: one.status.get("measured") == 1.94)
    one.edit(paused=True)
    reported = one.shows(phase="Paused")
    assert reported["ranks"] == [
        {"job": "edited", "rank": 1, "asked": 2, "reason": "Paused", "message": "spec.paused is true"}
    ]
    one.edit(paused=False)
    one.shows(phase="Injecting")


def test_overlapping_injections_multiply_and_a_hundred_are_bounded(run, inject):
    many = run("many")
    things = [inject(f"many-{n:03}", jobRef={"name": "many"}, slowdown=2.0) for n in range(100)]
    until(lambda: len(many.control["injections"]), lambda: len(many.control["injections"]) == 100)
    words = "with other injections 1000x is asked of it, the most there is"
    for thing in (things[0], things[99]):
        until(lambda thing=thing: thing.status, lambda thing=thing: _row(thing).get("message") == words)
        assert (thing.status["phase"], _row(thing)["asked"]) == ("Injecting", 2)
        assert thing.status["measured"] == 970  # of all of them together
    assert [each["name"] for each in many.control["injections"]] == sorted(thing.name for thing in things)


def _row(thing):
    return (thing.status.get("ranks") or [{}])[0]


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ({"ranks": [0, 7]}, "spec.targets.ranks: 7: the job has ranks 0 .. 2"),
        ({"workerGroups": ["c"]}, "spec.targets.workerGroups: 'c': the job has the groups a, b"),
        ({"count": 4}, "spec.targets.count: 4: the job has 3 ranks"),
    ],
    ids=["rank", "group", "count"],
)
def test_targets_that_are_not_there_fail_in_words(run, inject, kube, targets, words):
    name = f"aimed-{next(iter(targets)).lower()}"
    run(name)
    lost = inject(f"at-{name}", jobRef={"name": name}, targets=targets)
    words = f"job {name}: {words}"
    lost.shows(phase="Failed", message=words)
    assert lost.condition("Accepted") == ("False", "TargetsUnknown", words)
    until("an event", lambda: ("Failed", words) in events(kube, lost.name))
    lost.edit(targets={next(iter(targets)): None, "ranks": [2]})
    lost.shows(phase="Injecting", message=None)


def test_nodes_are_found_by_where_the_pods_run(run, inject):
    placed = run("placed", start=False)
    for number, pod in enumerate(placed.attempt(1)):
        placed.bind(pod, f"node-{number % 2}")
    placed.start()
    inject("by-node", jobRef={"name": "placed"}, targets={"nodes": ["node-0"]}).shows(phase="Injecting")
    assert placed.control["injections"][0]["ranks"] == [0, 2]
    inject("elsewhere", jobRef={"name": "placed"}, targets={"nodes": ["node-9"]}).shows(
        phase="Failed", message="job placed: spec.targets.nodes: node-9: no rank of the job runs there"
    )


def test_an_injection_waits_for_its_job_and_outlives_it(run, inject):
    early = inject("early", jobRef={"name": "coming"})
    words = "spec.jobRef.name: 'coming': there is no such HeteroTPJob in this namespace"
    early.shows(phase="Pending", message=words)
    coming = run("coming")
    early.shows(phase="Injecting")
    coming.delete()
    early.shows(phase="Pending", message=words)
    assert not early.status.get("ranks")


def test_an_injection_stays_with_its_rank_when_the_gang_restarts(run, inject):
    restarted = run("restarted")
    one = inject("through", jobRef={"name": "restarted"})
    one.shows(phase="Injecting")
    generation = restarted.control["generation"]
    restarted.end(restarted.pods(1)[1], 1)
    restarted.attempt(2)
    one.shows(phase="Pending")
    restarted.start(attempt=2)
    one.shows(phase="Injecting")
    assert restarted.control["injections"][0]["ranks"] == [1]
    assert restarted.control["generation"] == generation  # nothing in it changed


def test_what_does_not_fit_into_a_configmap_stays_out_and_is_told(run, inject, kube):
    (group,) = groups_of((("a", 100),))
    groups = {"tensorParallelDegree": 1600, "workerGroups": [{**group, "processesPerPod": 16}]}
    wide = run("wide-job", pods=(("a", 100),), start=False, **groups)
    everyone = {"jobRef": {"name": "wide-job"}, "targets": {"workerGroups": ["a"]}}
    many = [inject(f"fill-{n:03}", **everyone) for n in range(130)]
    full = lambda: many[-1].status.get("message", "")  # noqa: E731
    until(lambda: f"the last one has a status: {many[-1].status}", lambda: "is full" in full(), every=0.5)
    listed = len(wide.control["injections"])
    assert 80 < listed < 130
    configmap = kube.get("configmaps", NAMESPACE, names.control_name("wide-job"))
    assert 800_000 < len(configmap["data"][names.CONTROL_FILE]) < 1 << 20
    words = f"job wide-job: the job's control document is full: {listed} older injections fill it"
    many[-1].shows(phase="Failed", message=words)
    assert "message" not in many[0].status


# -- damage ---------------------------------------------------------------------------------------------------


@contextmanager
def healed(live):
    """Do damage within; afterwards the document must be as before, under a newer number, and be followed."""
    before = live.control
    yield
    until(
        lambda: f"healed: {live.control}",
        lambda: all(
            [
                live.control.get("balancing") == before["balancing"],
                live.control.get("generation", 0) > before["generation"],
            ]
        ),
    )
    live.follows(policy=live.status["balancing"]["policy"])


@pytest.mark.parametrize("damage", ["edited", "emptied", "deleted"])
def test_a_control_document_that_is_damaged_by_hand_is_healed(run, policy, kube, damage):
    hurt = run(f"hurt-{damage}")
    policy("hurts", "MIG", **selecting(case=hurt.name))
    hurt.follows(policy="hurts", strategy="MIG")
    name = names.control_name(hurt.name)
    with healed(hurt):
        if damage == "deleted":
            kube.delete("configmaps", NAMESPACE, name)
        else:
            text = json.dumps(hurt.control | {"balancing": {"strategy": "ZERO"}}) if damage == "edited" else "{"
            kube.patch("configmaps", NAMESPACE, name, {"data": {names.CONTROL_FILE: text}})
    assert hurt.control["balancing"]["strategy"] == "MIG"
    assert (hurt.status["attempt"], hurt.status["phase"]) == (1, "Running")
    assert [
        each["metadata"]["name"] for each in kube.list("configmaps", NAMESPACE) if hurt.name in each["metadata"]["name"]
    ] == [name]


def test_what_the_schema_refuses_never_reaches_the_operator(kube, operator):
    bad = custom("StragglerInjection", "bad", {"jobRef": {"name": "x"}, "targets": {"ranks": [0]}, "slowdown": 0.5})
    with pytest.raises(KubeError, match=r"spec.slowdown in body should be greater than or equal to 1"):
        kube.create("stragglerinjections", NAMESPACE, bad)
