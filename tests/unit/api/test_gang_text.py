"""Who is left of a gang that may lose ranks, in words."""

import pytest
from heterotp_api.gang_text import gang_text
from heterotp_api.trainer_status import LostRank, TrainerGang

LOST = LostRank(rank=2, iteration=41, why="closed its connection")


def gang(live=3, members=(0, 1, 3), lost=(LOST,), unprotected=0):
    return TrainerGang(started=4, live=live, members=members, lost=lost, unprotected=unprotected)


@pytest.mark.parametrize("nothing", [None, gang(4, (0, 1, 2, 3), ())])
def test_nothing_is_said_where_all_live(nothing):
    assert gang_text(nothing) == ""


def test_who_left_when_and_who_has_its_work():
    words = "3/4 ranks live, rank 2 left at iteration 41 (closed its connection), its work is with ranks 0, 1 and 3"
    assert gang_text(gang()) == words


def test_a_gang_of_many_is_not_listed_and_a_gang_without_mirrors_is_named():
    assert "its work is with the others" in gang_text(gang(live=70, members=tuple(range(64))))
    alone = gang(1, (0,), (LOST, LostRank(rank=3, iteration=50)), unprotected=1)
    assert "rank 3 left at iteration 50, their work is with rank 0, the units of 1 have no mirror" in gang_text(alone)


def test_words_of_a_stranger_stay_on_one_line():
    found = gang_text(gang(lost=(LostRank(rank=2, why="a\nb" * 200),)))
    assert "\n" not in found and len(found) < 400
