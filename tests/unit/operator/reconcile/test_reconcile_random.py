"""Random jobs through random histories: they converge, never two gangs, and a killed operator changes nothing."""

import copy

from heterotp_api import names
from heterotp_operator.reconcile.actions import BumpAttempt, CreatePod
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.reconcile_world import Killed, World, manifest

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
GROUPS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2)), min_size=1, max_size=3).map(
    lambda sizes: tuple((f"g{index}", *size) for index, size in enumerate(sizes))
)
POLICY = st.fixed_dictionaries(
    {"backoffLimit": st.integers(0, 2), "cleanPodPolicy": st.sampled_from(["None", "Running", "All"])},
    optional={
        "activeDeadlineSeconds": st.integers(50, 500),
        "preRunningDeadlineSeconds": st.integers(50, 500),
        "gang": st.sampled_from(
            [{"provider": "volcano"}, {"provider": "kueue", "queue": "q", "admission": "PodGroup"}]
        ),
    },
)
# (what happens, which pod, how many seconds later)
HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from(["run", "run all", "exit 0", "exit 1", "exit 75", "exit 143", "delete", "vanish", "remove"])
        | st.sampled_from(["suspend", "resume", "damage", "retemplate", "disrupt", "end all"]),
        st.integers(0, 8),
        st.integers(0, 40),
    ),
    max_size=12,
)


def happen(world, what, which):
    """Do to the world what users, kubelets and ranks do."""
    live = [name for name, pod in sorted(world.pods.items()) if not pod["metadata"].get("deletionTimestamp")]
    name = live[which % len(live)] if live else None
    if what in ("suspend", "resume"):
        policy = world.job["spec"].get("runPolicy") or {}
        world.edit(runPolicy={**policy, "suspend": what == "suspend"})
    elif what == "retemplate":
        groups = copy.deepcopy(world.job["spec"]["workerGroups"])
        groups[0]["template"]["spec"]["containers"][0]["image"] = f"image:{which}"
        world.edit(workerGroups=groups)
    elif what == "damage":
        world.objects.pop(["Service", "ConfigMap", "PodGroup"][which % 3], None)
    elif what == "vanish":
        world.vanish()
    elif what in ("run all", "end all"):
        for each in live:
            _move(world, each, what == "end all")
    elif name is not None:
        _strike(world, what, name)


def _move(world, name, end):
    if world.pods[name]["status"]["phase"] in ("Succeeded", "Failed"):
        return
    if end:
        world.end(name, 0)
    else:
        world.run(name)


def _strike(world, what, name):
    over = world.pods[name]["status"]["phase"] in ("Succeeded", "Failed")
    if what == "remove":
        del world.pods[name]
    elif what == "delete":
        world.take(name)
    elif not over and what == "run":
        world.run(name)
    elif not over and what == "disrupt":
        world.end(name, 143)
        world.pods[name]["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True"})
    elif not over and what.startswith("exit"):
        world.end(name, int(what.split()[1]))


def finish(world):
    """From any state a gang that is let run must come to an end of the job."""
    if world.job["spec"]["runPolicy"].get("suspend"):
        happen(world, "resume", 0)
    for _ in range(8):
        world.now += 6
        world.vanish()
        world.settle()
        if world.phase in ("Succeeded", "Failed"):
            return
        happen(world, "run all", 0)
        world.settle()
        happen(world, "end all", 0)
    raise AssertionError(f"no end: {world.status} {world.pods}")


def live_history(world, history):
    attempts = 0
    for what, which, later in history:
        world.now += later
        happen(world, what, which)
        world.settle()
        attempt = world.status.get("attempt", 0)
        assert attempt >= attempts, "attempts never go back"
        attempts = attempt
    finish(world)


@QUICK
@given(groups=GROUPS, policy=POLICY, history=HAPPENINGS)
def test_every_random_history_ends_and_never_has_two_gangs(groups, policy, history):
    world = World(manifest(groups=groups, runPolicy=policy))
    live_history(world, history)  # World._create refuses a second gang
    assert world.phase in ("Succeeded", "Failed")
    assert ("Succeeded" in world.true) != ("Failed" in world.true)
    assert not {"Running", "PodsReady", "Restarting", "Suspended"} & world.true
    assert world.status["restarts"] <= policy["backoffLimit"]
    if policy["cleanPodPolicy"] == "All":
        world.vanish()
        world.settle()
        assert world.pods == {}


@QUICK
@given(groups=GROUPS, policy=POLICY, history=HAPPENINGS)
def test_a_settled_job_causes_no_action(groups, policy, history):
    world = World(manifest(groups=groups, runPolicy=policy))
    for what, which, _ in history:
        happen(world, what, which)
        world.settle()
        before, writes = world.picture(), world.writes
        decision = world.reconcile()
        assert (decision.actions, world.writes, world.picture()) == ((), writes, before)


@QUICK
@given(groups=GROUPS, policy=POLICY, history=HAPPENINGS)
def test_actions_may_be_repeated(groups, policy, history):
    world = World(manifest(groups=groups, runPolicy=policy))
    for what, which, _ in history:
        happen(world, what, which)
        decision = world.plan()
        for action in decision.actions:
            world.act(action)
            if not isinstance(action, BumpAttempt):  # guarded by its resourceVersion instead
                once = copy.deepcopy((world.pods, world.objects))
                world.act(action)
                assert (world.pods, world.objects) == once or _forced(action)
        world.show(decision)


def _forced(action):
    return getattr(action, "grace_seconds", None) == 0


# -- killed after any write -----------------------------------------------------------------------------------

LIVES = {
    "succeeds": [("run all", 0), ("end all", 0)],
    "loses a rank": [("run all", 0), ("exit 1", 1), ("vanish", 0), ("run all", 0), ("end all", 0)],
    "a rank refuses its input": [("run all", 0), ("exit 2", 1)],
    "loses a rank before it ran": [("exit 1", 1), ("vanish", 0), ("run all", 0), ("end all", 0)],
    "has no restart left": [("run all", 0), ("exit 1", 0), ("vanish", 0), ("run all", 0), ("exit 1", 0)],
    "is suspended and resumed": [
        *[("run all", 0), ("suspend", 0), ("vanish", 0)],
        *[("resume", 0), ("run all", 0), ("end all", 0)],
    ],
    "is disrupted": [("run all", 0), ("disrupt", 0), ("vanish", 0), ("run all", 0), ("end all", 0)],
}


def pytest_generate_tests(metafunc):
    if "life" in metafunc.fixturenames:
        metafunc.parametrize("life", LIVES.values(), ids=list(LIVES))
        metafunc.parametrize("clean", ["None", "Running", "All"])


def relive(life, clean, kill_after):
    """Play a life in which the operator dies once after a certain write and starts again, knowing nothing."""
    policy = {"backoffLimit": 1, "cleanPodPolicy": clean}
    world = World(manifest(groups=(("a", 2, 1), ("b", 1, 2)), runPolicy=policy), kill_after=kill_after)
    for what, which in [("", 0), *life, ("vanish", 0)]:
        happen(world, what, which)
        try:
            world.settle()
        except Killed:
            world.refusals.clear()
            world.settle()
    return world


def end_state(world):
    return {
        "phase": world.phase,
        "counters": (world.status["attempt"], world.status["restarts"]),
        "true": sorted(world.true),
        "reasons": [world.condition(kind).get("reason") for kind in ("Failed", "Succeeded")],
        "groups": world.status["workerGroups"],
        "pods": {name: pod["status"]["phase"] for name, pod in world.pods.items()},
        "made": world.born,
        "objects": world.objects,
    }


def test_killed_after_each_write_the_end_is_the_same(life, clean):
    whole = relive(life, clean, None)
    expected = end_state(whole)
    assert expected["phase"] in ("Succeeded", "Failed")
    assert set(expected["made"].values()) == {1}
    for number in range(1, whole.writes + 1):
        assert end_state(relive(life, clean, number)) == expected, f"killed after {whole.log[number - 1]}"


@QUICK
@given(groups=GROUPS, policy=POLICY, history=HAPPENINGS, kill_after=st.integers(1, 30))
def test_a_kill_at_a_random_write_still_leads_to_an_end(groups, policy, history, kill_after):
    world = World(manifest(groups=groups, runPolicy=policy), kill_after=kill_after)
    for what, which, later in history:
        world.now += later
        happen(world, what, which)
        try:
            world.settle()
        except Killed:
            world.settle()
    world.kill_after = None
    finish(world)
    assert set(world.objects) <= {"Service", "ConfigMap", "PodGroup"}


@QUICK
@given(groups=GROUPS)
def test_ranks_are_numbered_group_by_group_and_every_pod_has_the_address_of_rank_0(groups):
    world = World(manifest(groups=groups))
    world.settle()
    firsts = sorted(int(pod["metadata"]["labels"][names.LABEL_FIRST_RANK]) for pod in world.pods.values())
    wanted, rank = [], 0
    for _, pods, processes in groups:
        wanted += [rank + index * processes for index in range(pods)]
        rank += pods * processes
    assert firsts == wanted
    masters = {
        entry["value"]
        for pod in world.pods.values()
        for entry in pod["spec"]["containers"][0]["env"]
        if entry["name"] == "MASTER_ADDR"
    }
    assert masters == {"job-g0-0-1.job-gang"}


def test_a_stale_observation_cannot_start_a_second_gang():
    world = World(manifest()).started()
    world.end("job-b-1-1", 1)
    stale = world.plan()
    world.settle()
    (bump,) = stale.actions
    assert isinstance(bump, BumpAttempt)
    assert bump.resource_version != world.job["metadata"]["resourceVersion"]


def test_a_first_attempt_is_raised_before_its_first_pod():
    kinds = [type(action) for action in World(manifest()).plan().actions]
    assert kinds.index(BumpAttempt) < kinds.index(CreatePod)
