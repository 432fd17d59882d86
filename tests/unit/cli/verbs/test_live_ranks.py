"""Ranks of a gang that has lost some: they are named by the numbers that they started with."""

import pytest
from heterotp_api.rank_trace import TraceRequest
from heterotp_api.trainer_status import TrainerGang, TrainerRank
from heterotp_cli.errors import BadInput
from heterotp_cli.run_lock import lock
from heterotp_cli.ui.columns import Columns, RankTimes
from heterotp_cli.ui.document import Picture, ranks
from heterotp_cli.verbs.local import LocalTarget
from support.played_run import Run, history_entry

LEFT = TrainerGang(started=4, live=3, members=(0, 2, 3))


@pytest.fixture
def target(tmp_path):
    run = Run(tmp_path)
    left = [TrainerRank(rank=number, tp_rank=number, device="cpu", slowdown=1.0) for number in range(2)]
    run.report(gang=LEFT, ranks=(*left, TrainerRank(rank=2, tp_rank=2, device="cpu", slowdown=4.0)))
    with lock(tmp_path):
        yield LocalTarget(tmp_path, "run")


def test_a_view_has_the_numbers_and_groups_of_the_start(target):
    view = target.look()
    assert [(each.rank, each.group) for each in view.ranks] == [(0, "fast"), (2, "fast"), (3, "slow")]
    assert [each.rank for each in view.ranks if each.slowdown == 4.0] == [3]


def test_only_ranks_that_live_are_traced(target):
    assert target.groups() == {0: "fast", 2: "fast", 3: "slow"}
    with pytest.raises(BadInput, match="--rank: rank 1 is lost; left: ranks 0, 2 and 3"):
        target.trace(TraceRequest(uid="0" * 12, steps=1, ranks=[1]))


def test_a_row_of_the_page_is_of_the_rank_that_its_button_slows(target):
    newest = history_entry(7, count=3)
    newest["ranks"][2]["chi"] = 4.0
    shown = ranks(
        Picture(target.look(), Columns(4), RankTimes(4), newest=newest, groups=("fast", "fast", "fast", "slow"))
    )
    assert [(row["rank"], row["group"], row["slowdown"]) for row in shown if row["slowdown"] == 4.0] == [
        (3, "slow", 4.0)
    ]
