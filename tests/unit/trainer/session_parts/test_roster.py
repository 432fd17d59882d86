"""Who is left of a gang that may lose ranks."""

import json

from heterotp_trainer.session_parts.roster import Roster


def test_losses_and_comebacks_are_kept_by_the_numbers_that_ranks_started_with():
    roster = Roster(4)
    assert not roster.gang((0, 1, 2, 3), mirrored=True).lost
    roster.lose((2, 3), 41, {2: "closed its connection"})
    found = roster.gang((0, 1), mirrored=True)
    assert (found.started, found.live, found.members, found.unprotected) == (4, 2, (0, 1), 0)
    lost = [(each.rank, each.iteration, each.why) for each in found.lost]
    assert lost == [(2, 41, "closed its connection"), (3, 41, "")]
    roster.back(2)
    found = roster.gang((0, 1, 2), mirrored=False)
    assert [each.rank for each in found.lost] == [3]
    assert (found.comebacks, found.unprotected) == (1, 3)


def test_a_rank_that_comes_back_knows_what_the_others_know():
    roster, other = Roster(3), Roster(3)
    roster.lose((0, 1), 7, {0: "was silent"})
    roster.back(1)
    other.resume(json.loads(json.dumps(roster.state())))
    assert other.gang((1, 2), mirrored=True) == roster.gang((1, 2), mirrored=True)
