"""examples/language.yaml on the cluster: a rank is slowed, AUTO moves units of all three families away and back."""

import pytest
import yaml
from support.kube import until
from support.live_balancing import (
    COMPARED,
    WINDOW,
    iteration_seconds,
    left_alone,
    moved,
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
    """Return the example with a smaller batch, which takes a quarter of the time, and no end before the test's."""
    body = yaml.safe_load((ROOT / "examples" / "language.yaml").read_text())
    body["spec"]["training"] |= {"batchSize": 4, "iterations": 3000, "evaluateEvery": 3000}
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


def test_auto_moves_kv_groups_hidden_units_and_the_vocabulary(space, measured):
    run = space.apply(job())
    first = run.trained(attempt=1, iteration=4 * WINDOW)
    before, pods = iteration_seconds(run), uids(run)
    slowed = space.put(injection())
    document = moved(run, first["moves"] + 1, owned(first))
    moved_at, had, has = document["iteration"], slow_ranks_units(first), slow_ranks_units(document)
    assert all(0 <= has[family] < had[family] for family in FAMILIES), (had, has)
    until(lambda: slowed.status, lambda: (slowed.status.get("ranks") or [{}])[0].get("asked") == CHI, 30, 0.2)
    relieved = iteration_seconds(run)

    slowed.delete()
    document = moved(run, document["moves"] + 1, owned(document))
    back = slow_ranks_units(document)
    assert all(back[family] > has[family] for family in FAMILIES), (has, back)
    last = run.trained(1, moved_at + 2 * COMPARED)["iteration"]  # not every iteration's loss is seen
    nothing_restarted(run, pods)
    run.delete()
    apart = same_loss(run, left_alone(space, job(), last), moved_at)
    measured["language example, an iteration"] = before
    measured["language example, an iteration with a rank slowed, under AUTO"] = relieved
    measured["language example, its loss against a run left alone"] = apart
