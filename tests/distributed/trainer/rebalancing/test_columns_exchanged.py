"""What senders choose and what receivers get from it, over real gloo gangs: many linears of several classes."""

import pytest

DEPTH = 3
PARTS = ("a{}.qkv", "a{}.proj", "m{}.fc1", "m{}.fc2")  # the classes, in the model's order
ONE_SENDER = ("one", "the last", "one class", "rows only")
TWO_SENDERS = ("two", "two, of other classes", "two, rows beside columns")
CASES = [(2, case) for case in ONE_SENDER] + [(3, case) for case in ONE_SENDER + TWO_SENDERS]


def held_by_all(gang, ranks, case):
    """Return per linear what each rank holds of it."""
    results = [result[case]["held"] for result in gang("column_exchange_checks.py", ranks)]
    assert set(results[0]) == {part.format(i) for part in PARTS for i in range(DEPTH)}
    return {name: [result[name] for result in results] for name in results[0]}


def planned(gang, ranks, case, name):
    """Return per sender how many columns of this linear it prunes and gives away, by the plan."""
    part = next(k for k, each in enumerate(PARTS) if name in [each.format(i) for i in range(DEPTH)])
    senders = gang("column_exchange_checks.py", ranks)[0][case]["senders"]
    return {int(sender): tuple(taken[part]) for sender, taken in senders.items()}


@pytest.mark.parametrize(("ranks", "cases"), [(2, ONE_SENDER), (3, ONE_SENDER + TWO_SENDERS)])
def test_every_case_is_looked_at(gang, ranks, cases):
    results = gang("column_exchange_checks.py", ranks)
    assert len(results) == ranks and all(set(result) == set(cases) for result in results)


@pytest.mark.parametrize(("ranks", "case"), CASES)
def test_every_rank_is_told_the_columns_of_x_that_the_sender_chose_for_that_linear(gang, ranks, case):
    received = 0
    for name, held in held_by_all(gang, ranks, case).items():
        for rank, mine in enumerate(held):
            for migration in mine["migrations"]:
                sender = migration["sender"]
                chosen = held[sender]["given"] if mine["parallel"] == "column" else None
                assert migration["ids"] == chosen, f"{name}: rank {rank} of rank {sender}"
                received += chosen is not None
    assert bool(received) == (case != "rows only")


@pytest.mark.parametrize(("ranks", "case"), CASES)
def test_a_sender_prunes_and_gives_what_the_plan_says_and_others_nothing(gang, ranks, case):
    for name, held in held_by_all(gang, ranks, case).items():
        wanted = planned(gang, ranks, case, name)
        for rank, mine in enumerate(held):
            pruned, given = (mine[each] or [] for each in ("pruned", "given"))
            assert (len(pruned), len(given)) == wanted.get(rank, (0, 0))
            assert not set(pruned) & set(given)


@pytest.mark.parametrize(("ranks", "case"), CASES)
def test_all_ranks_know_of_the_same_pieces_and_they_are_all_columns_given(gang, ranks, case):
    for name, held in held_by_all(gang, ranks, case).items():
        wanted = planned(gang, ranks, case, name)
        migrations = held[0]["migrations"]
        assert all(mine["migrations"] == migrations for mine in held)
        assert [each["sender"] for each in migrations] == sorted(rank for rank in wanted if wanted[rank][1])
        for each in migrations:
            columns = [column for _, start, stop in each["pieces"] for column in range(start, stop)]
            assert columns == list(range(wanted[each["sender"]][1]))
            assert not {receiver for receiver, _, _ in each["pieces"]} & set(wanted)
            assert each["outputs"] == held[each["sender"]]["outputs"]


@pytest.mark.parametrize("ranks", [2, 3])
def test_no_two_linears_of_a_class_give_away_the_same_columns(gang, ranks):
    """Without this, data of one linear in place of another's would pass the test above."""
    held = held_by_all(gang, ranks, "one")
    for part in ("a{}.qkv", "m{}.fc1"):
        assert len({tuple(held[part.format(i)][0]["given"]) for i in range(DEPTH)}) == DEPTH
