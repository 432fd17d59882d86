"""Blame on hand-made timelines: who is late, in which stage, by how much."""

import numpy as np
import pytest
from heterotp_api.stages import OWN_STAGES, STAGES
from heterotp_trainer.insight.blame import Laps, blame, stage_seconds
from heterotp_trainer.insight.findings import MUCH, findings
from hypothesis import given, settings
from hypothesis import strategies as st
from support.timelines import EVEN, at, laps

ROUND = {"abs": 1e-9}


def seconds(found, rank, stage):
    return found.seconds[rank, at(stage)] / len(found.shares)


@pytest.mark.parametrize("stage", OWN_STAGES)
@pytest.mark.parametrize("rank", range(4))
def test_the_late_rank_and_its_stage_have_all_of_the_blame(rank, stage):
    ranks = [{} for _ in range(4)]
    ranks[rank][stage] = EVEN.get(stage, 0.0) + 0.5
    found = blame(laps(*ranks))
    assert seconds(found, rank, stage) == pytest.approx(0.5)
    assert found.lost == pytest.approx(0.5 * 5)
    assert {(late.rank, late.stage) for late in found.path()} == {(rank, stage)}


def test_ranks_that_are_equally_late_share_the_loss():
    found = blame(laps({"data": 0.45}, {}, {"data": 0.45}, {}, {}, {}, {}, {}))
    assert seconds(found, 0, "data") == pytest.approx(0.2)
    assert seconds(found, 2, "data") == pytest.approx(0.2)


def test_a_rank_that_is_late_beside_a_later_one_has_its_share_of_what_both_miss():
    found = blame(laps({"data": 0.25}, {"data": 0.45}, {}, {}, {}, {}, {}, {}))
    assert seconds(found, 0, "data") == pytest.approx(0.1)
    assert seconds(found, 1, "data") == pytest.approx(0.1 + 0.2)
    assert found.lost == pytest.approx(0.4 * 5)


def test_two_stages_that_are_late_on_two_ranks_are_blamed_on_both():
    found = blame(laps({"attentionForward": 0.4}, {"ffnBackward": 1.6}, {}, {}))
    assert seconds(found, 0, "attentionForward") == pytest.approx(0.3)
    assert seconds(found, 1, "ffnBackward") == pytest.approx(1.0)
    assert found.path()[0].rank == 1


def test_lateness_that_overlaps_is_lost_once():
    """Two ranks are late before the same collective, so that the iteration takes one of both delays longer."""
    late = laps({"data": 1.05}, {"attentionForward": 1.1}, {}, {}, span=sum(EVEN.values()) + 1.0)
    found = blame(late)
    assert found.lost == pytest.approx(1.0 * 5)
    assert seconds(found, 0, "data") == pytest.approx(seconds(found, 1, "attentionForward"))


def test_a_rank_with_more_work_takes_longer_and_is_not_late():
    """After a move: 1.25 of an even share on three ranks, a quarter on the fourth."""
    work = {stage: [1.25, 1.25, 1.25, 0.25] for stage in ("ffnForward", "ffnBackward")}
    ranks = [{stage: EVEN[stage] * share for stage in work} for share in (1.25, 1.25, 1.25, 0.25)]
    assert blame(laps(*ranks, work=work)).lost == pytest.approx(0, **ROUND)


def test_a_slow_rank_whose_units_have_moved_away_delays_nobody():
    """It takes four times as long for a quarter of the work."""
    work = {"ffnBackward": [1.25, 1.25, 1.25, 0.25]}
    ranks = [{"ffnBackward": 0.6 * 1.25}] * 3 + [{"ffnBackward": 0.6 * 0.25 * 4}]
    assert blame(laps(*ranks, work=work)).lost == pytest.approx(0, **ROUND)


def test_a_rank_with_little_work_is_late_by_what_its_work_should_not_take():
    work = {"ffnBackward": [1.25, 1.25, 1.25, 0.25]}
    ranks = [{"ffnBackward": 0.6 * 1.25}] * 3 + [{"ffnBackward": 1.0}]
    found = blame(laps(*ranks, work=work))
    assert seconds(found, 3, "ffnBackward") == pytest.approx(0.25)
    assert found.lost == pytest.approx(0.25 * 5)


def test_a_rank_without_units_is_no_reference():
    work = {"attentionForward": [2.0, 2.0, 0.0, 0.0]}
    ranks = [{"attentionForward": seconds} for seconds in (0.2, 0.5, 0.0, 0.0)]
    assert seconds(blame(laps(*ranks, work=work)), 1, "attentionForward") == pytest.approx(0.3)


def test_two_ranks_know_which_of_them_is_late():
    assert seconds(blame(laps({}, {"ffnForward": 0.7})), 1, "ffnForward") == pytest.approx(0.4)


def met(late_link, *, boots, offset):
    """Return iterations of four ranks in which rank 3 is complete `late_link` later, 4 collectives in each.

    The rank that arrives last changes from iteration to iteration; ranks 2 and 3 show `offset` more.
    """
    arrived = np.array([[100.0 * n + (0.02 if rank == n % 4 else 0.0) for rank in range(4)] for n in range(1, 9)])
    completed = arrived.max(axis=1, keepdims=True) + np.array([0.001, 0.001, 0.001, 0.001 + late_link])
    ahead = np.array([0, 0, offset, offset])
    return laps({}, {}, {}, {}, count=8, boots=boots, arrived=arrived + ahead, completed=completed + ahead, meetings=4)


def test_a_slow_link_is_late_where_a_collective_is_complete_after_all_have_arrived():
    found = blame(met(0.05, boots=["a"] * 4, offset=0.0))
    assert seconds(found, 3, "link") == pytest.approx(0.2)
    assert {(late.rank, late.stage) for late in found.path()} == {(3, "link")}


@pytest.mark.parametrize("offset", [-3600.0, 0.5, 1e6])
def test_clocks_of_two_machines_are_aligned_by_their_collectives(offset):
    found = blame(met(0.0, boots=["a", "a", "b", "b"], offset=offset))
    assert found.lost == pytest.approx(0, abs=1e-6)
    times = stage_seconds(met(0.0, boots=["a", "a", "b", "b"], offset=offset))
    assert times[:, :, at("link")].max() < 0.01


def test_a_slow_link_to_another_machine_is_blamed_whatever_its_clock_shows():
    found = blame(met(0.05, boots=["a", "a", "b", "b"], offset=77.0))
    assert {(late.rank, late.stage) for late in found.path()} == {(3, "link")}


def test_devices_that_do_not_see_their_collectives_have_no_transfers():
    assert stage_seconds(laps({}, {}))[:, :, at("link")].max() == 0


def test_no_iteration_has_no_findings():
    empty = laps({}, {}, count=0)
    assert blame(empty).lost == 0
    assert findings([empty]) is None


def test_findings_name_who_loses_much_in_the_median_iteration():
    found = findings([laps({}, {}, {"ffnForward": 0.9, "ffnBackward": 1.8, "data": 0.06}, {})])
    (culprit,) = found.culprits()
    assert (culprit.rank, culprit.stages) == (2, ("ffnBackward", "ffnForward"))
    first, *_ = found.entries(16)
    assert (first.rank, first.stage) == (2, "ffnBackward")
    assert first.share == pytest.approx(1.2 / found.lost)


def test_noise_is_late_now_here_now_there_and_accuses_nobody():
    random = np.random.default_rng(7)
    quiet = laps(*({} for _ in range(8)), count=20)
    noisy = Laps(
        quiet.own * random.normal(1, 0.05, quiet.own.shape),
        *(quiet.arrived, quiet.completed, quiet.meetings, quiet.span, quiet.work, quiet.boots),
    )
    found = findings([noisy])
    assert found.lost > 0
    assert found.culprits() == []
    assert found.steady.sum() < MUCH * found.span


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.floats(0, 10), min_size=len(OWN_STAGES), max_size=len(OWN_STAGES)), min_size=1, max_size=6
    ).filter(bool),
    st.floats(0, 100),
)
def test_shares_are_never_negative_and_add_up_to_no_more_than_what_the_iteration_took_too_long(ranks, span):
    one = laps(*(dict(zip(OWN_STAGES, rank, strict=True)) for rank in ranks), span=span, count=2)
    found = blame(one)
    least = found.expected[:, :-1].sum(axis=1).max()
    assert found.shares.min() >= 0
    assert found.lost <= 2 * max(span - least, 0) + 1e-6
    lateness = np.maximum(one.own - found.expected[:, :-1].max(axis=0), 0).max(axis=1).sum()
    assert found.lost <= lateness + 1e-6
    assert found.shares.shape == (2, len(ranks), len(STAGES))
