"""The schedule of a chaos run: the same seed gives the same faults, and every kind appears."""

import pytest
from chaos.faults.registry import ALL, kinds
from chaos.schedule import LONGEST_SHARE, schedule

API, KIND = kinds("api"), kinds("kind")


@pytest.mark.parametrize("minutes", [0.5, 2, 60])
def test_the_same_seed_gives_the_same_schedule(minutes):
    assert schedule(7, minutes, API) == schedule(7, minutes, API)
    assert schedule(7, minutes, API) != schedule(8, minutes, API)


@pytest.mark.parametrize("minutes", [0.5, 2, 60])
@pytest.mark.parametrize("all_kinds", [API, KIND], ids=["api", "kind"])
def test_every_kind_appears_and_no_other(all_kinds, minutes):
    for seed in range(5):
        assert {each.kind for each in schedule(seed, minutes, all_kinds)} == set(all_kinds)


def test_faults_come_in_order_and_within_the_time_and_none_lasts_too_long():
    planned = schedule(3, 2, API)
    assert [each.number for each in planned] == list(range(len(planned)))
    assert sorted(each.at for each in planned) == [each.at for each in planned]
    assert planned[0].at > 0 and planned[-1].at <= 120
    assert all(each.arguments.get("seconds", 0) <= 120 * LONGEST_SHARE for each in planned)
    assert len(schedule(3, 60, API)) == 900


def test_every_kind_has_a_name_of_its_own_and_a_place():
    names = [each.kind for each in ALL]
    assert len(names) == len(set(names))
    assert {place for each in ALL for place in each.where} <= {"api", "kind"}
