"""Who is late, as rank 0 reports it, in the status: bounded, of known stages, without noise."""

from heterotp_api.stages import STAGES
from heterotp_api.status import MAX_BLAMED
from heterotp_api.trainer_status import MOST_BLAMED, TrainerBlame, TrainerStatus
from heterotp_operator.reconcile.observed import TrainerReport
from support.reconcile_world import EPOCH, World, labelled, manifest


def look(*blame, iteration_seconds=1.0):
    """Return the status of a job whose rank 0 blames these."""
    world = World(labelled(manifest())).started()
    entries = tuple(TrainerBlame(rank=r, stage=s, seconds=t, steady_seconds=t, share=0.5) for r, s, t in blame)
    status = TrainerStatus(
        job="job",
        attempt=1,
        state="running",
        started_at=EPOCH,
        iteration_seconds=iteration_seconds,
        blame=entries,
        lost_seconds=sum(t for *_, t in blame),
    )
    world.trainer = TrainerReport(status, "", EPOCH)
    world.settle()
    return world.status


def test_the_first_to_blame_is_shown_with_its_stage():
    status = look((2, "data", 0.4567), (1, "ffnForward", 0.1))
    assert status["blame"] == [
        {"rank": 2, "stage": "data", "seconds": 0.5, "share": 0.5},
        {"rank": 1, "stage": "ffnForward", "seconds": 0.1, "share": 0.5},
    ]
    assert status["training"]["lostSeconds"] == 0.6


def test_little_losses_and_unknown_stages_are_left_out():
    assert "blame" not in look((2, "data", 0.001), (1, "a stage of a newer trainer", 0.5))
    assert "blame" not in look((2, "data", 0.4), iteration_seconds=None)


def test_a_status_shows_few_entries_whatever_rank_0_says():
    assert len(look(*((n, "data", 0.3) for n in range(200)))["blame"]) <= MAX_BLAMED
    told = [{"rank": 0, "stage": stage, "seconds": 1.0} for stage in STAGES] * 100
    told_status = {"job": "job", "attempt": 1, "state": "running", "startedAt": 1.0, "blame": told}
    assert len(TrainerStatus.model_validate(told_status).blame) == MOST_BLAMED
