"""examples/language.yaml on the cluster: a rank is slowed, AUTO moves units of all three families away and back."""

import pytest
import yaml
from support.kube import until
from support.live_balancing import (
    COMPARED,
    WINDOW,
    iteration_seconds,
    left_alone,
    nothing_restarted,
    owned,
    same_loss,
    uids,
)
from support.places import ROOT

pytestmark = pytest.mark.e2e
FAMILIES = ("heads", "hiddenUnits", "vocabularyRows")
SLOW_RANK, CHI = 1, 4  # of the fast group: it owns several heads


def job():
    """Return the example with a smaller batch, which takes a quarter of the time, and no end before the test's.

    It learns slowly: at the example's rate rounding alone grows to a hundredth of the loss in 100 iterations.
    """
    body = yaml.safe_load((ROOT / "examples" / "language.yaml").read_text())
    body["spec"]["training"] |= {"batchSize": 4, "iterations": 3000, "evaluateEvery": 3000}
    body["spec"]["training"] |= {"learningRate": 1e-4, "learningRateFloor": 1e-5}
    return body


def injection():
    spec = {"jobRef": {"name": "language"}, "targets": {"ranks": [SLOW_RANK]}, "slowdown": CHI}
    return {
        "apiVersion": "heterotp.io/v1alpha1",
        "kind": "StragglerInjection",
        "metadata": {"name": "fast-slow"},
        "spec": spec,
    }


def slow_ranks_units(document):
    return {family: owned(document, family)[SLOW_RANK] for family in FAMILIES}


def shared_anew(run, fits):
    """Wait until the units of all families that the slow rank owns fit; return the status document.

    A busy machine slows ranks of itself, so that AUTO may make other moves before.
    """

    def check():
        document = run.rank_zero(1)
        return document if document and all(map(fits, slow_ranks_units(document).items())) else None

    return until(lambda: f"rank {SLOW_RANK} has a new share: {run.rank_zero(1)}", check, 120, 0.2)


def test_auto_moves_kv_groups_hidden_units_and_the_vocabulary(space, measured):
    run = space.apply(job())
    run.trained(attempt=1, iteration=4 * WINDOW)
    before, pods = iteration_seconds(run), uids(run)
    had = slow_ranks_units(run.rank_zero(1))
    slowed = space.put(injection())
    document = shared_anew(run, lambda each: each[1] < had[each[0]])
    moved_at, has = document["iteration"], slow_ranks_units(document)
    assert all(has[family] < had[family] for family in FAMILIES)
    until(lambda: slowed.status, lambda: (slowed.status.get("ranks") or [{}])[0].get("asked") == CHI, 30, 0.2)
    relieved = iteration_seconds(run)

    slowed.delete()
    back = slow_ranks_units(shared_anew(run, lambda each: each[1] > has[each[0]]))
    assert all(back[family] > has[family] for family in FAMILIES)
    last = run.trained(1, moved_at + 2 * COMPARED)["iteration"]  # not every iteration's loss is seen
    nothing_restarted(run, pods)
    run.delete()
    apart = same_loss(run, left_alone(space, job(), last), moved_at)
    measured["language example, an iteration"] = before
    measured["language example, an iteration with a rank slowed, under AUTO"] = relieved
    measured["language example, its loss against a run left alone"] = apart
