"""Straggling and ReplacementAdvised: rank, node, slow-down, since when, and their events."""

import pytest
from heterotp_api.trainer_status import TrainerRank, TrainerStatus
from heterotp_operator.reconcile.observed import TrainerReport, stamp
from heterotp_operator.status_throttle import due
from support.reconcile_world import EPOCH, World, labelled, manifest, policy


def trainer_report(slow=None, attempt=1, state="running", ranks=3, **fields):
    """Return a report of rank 0 in which some ranks (rank -> chi) are slow."""
    slow = slow or {}
    rows = tuple(
        TrainerRank(
            rank=rank,
            tp_rank=rank,
            device="cpu",
            slowdown=slow.get(rank, 1.0),
            relative_speed=1 / slow.get(rank, 1.0),
            straggler=rank in slow,
            **({key: value[rank] for key, value in fields.items() if rank in value}),
        )
        for rank in range(ranks)
    )
    return TrainerReport(
        TrainerStatus(job="job", attempt=attempt, state=state, started_at=EPOCH, ranks=rows), "", EPOCH
    )


def look(world, *args, **fields):
    """Let rank 0 say something, settle, and return the events that came of it."""
    world.trainer = trainer_report(*args, **fields)
    before = len(world.events)
    world.settle()
    return [(event.type, event.reason, event.message) for event in world.events[before:]]


@pytest.fixture
def world():
    return World(labelled(manifest())).started()


def test_a_straggler_is_named_with_its_node_its_chi_and_since_when(world):
    look(world)
    assert world.condition("Straggling") == {}
    world.now += 60
    words = f"rank 2 on node node-1 is 4.0x slower since {stamp(world.now)}"
    assert look(world, {2: 4.04}) == [("Warning", "Straggling", words)]
    condition = world.condition("Straggling")
    assert (condition["status"], condition["reason"], condition["message"]) == ("True", "RanksAreSlow", words)
    assert world.status["ranks"][2]["stragglingSince"] == stamp(world.now)
    assert "stragglingSince" not in world.status["ranks"][1]


def test_straggling_since_is_kept_while_it_lasts_and_starts_again_afterwards(world):
    look(world, {2: 4.0})
    world.now += 100
    assert look(world, {2: 4.1}) == []  # the same rank: no news
    assert world.status["ranks"][2]["stragglingSince"] == stamp(EPOCH)
    assert look(world) == [("Normal", "RanksAreEven", "no rank is slower than the others any more")]
    assert (world.condition("Straggling")["status"], world.condition("Straggling")["reason"]) == (
        "False",
        "RanksAreEven",
    )
    world.now += 100
    look(world, {2: 4.0})
    assert world.status["ranks"][2]["stragglingSince"] == stamp(EPOCH + 200)


def test_another_straggler_is_another_event(world):
    look(world, {2: 4.0})
    ((_, reason, words),) = look(world, {2: 4.0, 1: 2.0})
    assert reason == "Straggling"
    assert words.startswith("rank 1 on node node-1 is 2.0x slower") and "; rank 2 on node" in words


def test_a_straggler_slowed_by_an_injection_is_marked(world):
    ((_, _, words),) = look(world, {1: 3.9}, injected_slowdown={1: 4.0})
    assert words.endswith("Z, an injection asks for 4.0x")


def test_many_stragglers_are_counted():
    world = World(manifest(groups=(("a", 12, 1),))).started()
    ((_, _, words),) = look(world, {rank: 2.0 for rank in range(11)}, ranks=12)
    assert words.count("is 2.0x slower") == 8
    assert words.endswith(" and 3 more")


def test_ranks_that_are_even_are_not_straggling_however_slow_their_devices(world):
    world.trainer = trainer_report()
    slow = world.trainer.status.ranks[2].model_copy(update={"relative_speed": 0.25})
    status = world.trainer.status.model_copy(update={"ranks": (*world.trainer.status.ranks[:2], slow)})
    world.trainer = TrainerReport(status, "", EPOCH)
    world.settle()
    assert world.condition("Straggling") == {}


def test_straggling_ends_with_the_attempt_and_stays_while_rank_0_is_silent(world):
    look(world, {2: 4.0})
    world.trainer = TrainerReport(None, "NoAnswer", world.now)
    world.settle()
    assert world.condition("Straggling")["status"] == "True"
    world.end("job-b-1-1", 1)
    world.settle()
    assert world.condition("Straggling")["status"] == "False"
    world.vanish()
    world.settle()
    world.run()
    world.now += 50
    look(world, {2: 4.0}, attempt=2)
    assert world.status["ranks"][2]["stragglingSince"] == stamp(EPOCH + 50)  # another pod, perhaps another node


def test_the_same_straggler_of_another_attempt_is_another_event(world):
    assert len(look(world, {2: 4.0})) == 1
    world.end("job-b-1-1", 1)
    world.settle()
    world.vanish()
    world.settle()
    world.run()
    assert "Straggling" in [event[1] for event in look(world, {2: 4.0}, attempt=2)]


def test_a_slow_rank_without_units_may_be_replaceable_without_being_a_straggler(world):
    world.put(policy("p", strategy="RESHARD", replaceAfterSeconds=0))
    world.trainer = trainer_report()
    slow = world.trainer.status.ranks[2].model_copy(update={"slowdown": 9.0})
    status = world.trainer.status.model_copy(update={"ranks": (*world.trainer.status.ranks[:2], slow)})
    world.trainer = TrainerReport(status, "", EPOCH)
    world.settle()
    assert world.status["ranks"][2]["replaceableSince"] == stamp(EPOCH)
    assert world.condition("Straggling").get("status") != "True"
    words = f"rank 2 on node node-1 is 9.0x slower since {stamp(EPOCH)} (replaceThreshold 2, replaceAfterSeconds 0)"
    assert world.condition("ReplacementAdvised")["message"] == f"{words}: replace or drain the node"


@pytest.mark.parametrize("end", ["suspend", "succeed"])
def test_replacement_advice_ends_with_the_gang(world, end):
    look(world, {2: 4.0})
    if end == "suspend":
        world.edit(runPolicy={"suspend": True})
    else:
        for name in world.pods:
            world.end(name, 0)
    world.settle()
    assert world.condition("Straggling")["status"] == "False"


# -- replacement ----------------------------------------------------------------------------------------------


def test_a_rank_that_stays_slower_than_the_threshold_is_advised_for_replacement(world):
    world.put(policy("p", strategy="ZERO", replaceThreshold=3.0, replaceAfterSeconds=100))
    look(world, {2: 4.0, 1: 2.9})
    world.now += 99
    look(world, {2: 4.0, 1: 2.9})
    assert world.condition("ReplacementAdvised") == {}
    world.now += 1
    ((kind, reason, words),) = look(world, {2: 4.0, 1: 2.9})
    assert (kind, reason) == ("Warning", "ReplacementAdvised")
    assert words == (
        f"rank 2 on node node-1 is 4.0x slower since {stamp(EPOCH)} (replaceThreshold 3, replaceAfterSeconds 100): "
        "replace or drain the node"
    )
    assert world.condition("ReplacementAdvised")["status"] == "True"
    assert look(world, {2: 4.2, 1: 2.9}) == []
    assert [event[1] for event in look(world)] == ["RanksAreEven"]
    assert world.condition("ReplacementAdvised")["status"] == "False"


def test_replaceable_since_starts_at_the_threshold_and_again_after_recovery(world):
    world.put(policy("p", strategy="ZERO", replaceAfterSeconds=100))
    look(world, {2: 1.5})
    world.now += 80
    look(world, {2: 2.0})
    assert world.status["ranks"][2]["replaceableSince"] == stamp(EPOCH + 80)
    look(world, {2: 1.92})  # noise
    assert world.status["ranks"][2]["replaceableSince"] == stamp(EPOCH + 80)
    world.now += 80
    look(world, {2: 1.8})
    assert "replaceableSince" not in world.status["ranks"][2]
    look(world, {2: 1.92})
    assert "replaceableSince" not in world.status["ranks"][2]
    look(world, {2: 2.5})
    world.now += 99
    look(world, {2: 2.5})
    assert world.condition("ReplacementAdvised") == {}


# -- writes ---------------------------------------------------------------------------------------------------


def test_a_chi_that_moves_a_little_is_no_reason_to_write(world):
    look(world, {2: 4.0})
    written = world.status
    world.trainer = trainer_report({2: 4.13})
    assert world.plan().status["conditions"] != written["conditions"]
    assert not due(written, world.plan().status, 1.0)
    assert due(written, world.plan().status, 30.0)
    world.trainer = trainer_report({2: 8.5})
    assert due(written, world.plan().status, 1.0)
    world.trainer = trainer_report({1: 4.0})
    assert due(written, world.plan().status, 1.0)


def test_stragglers_are_shown_even_where_a_status_cannot_hold_all_ranks():
    world = World(manifest(groups=(("a", 100, 1),))).started()
    report = trainer_report({rank: 1.2 for rank in (3, 97)}, ranks=100)
    slow = [rank.model_copy(update={"relative_speed": 0.1}) if rank.rank > 20 else rank for rank in report.status.ranks]
    world.trainer = TrainerReport(report.status.model_copy(update={"ranks": tuple(slow)}), "", EPOCH)
    world.settle()
    ranks = [row["rank"] for row in world.status["ranks"]]
    assert len(ranks) == 64 and {3, 97} <= set(ranks) and ranks == sorted(ranks)
