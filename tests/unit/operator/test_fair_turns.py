"""Turns by namespace: rotation, shares of the workers, and what hung ranks of one namespace cost others."""

import heapq

import pytest
from heterotp_operator.fair_turns import FairTurns
from heterotp_operator.queue import WorkQueue
from hypothesis import given
from hypothesis import strategies as st


def keys(namespace, count):
    return [(namespace, str(number)) for number in range(count)]


def taken(turns):
    found = []
    while (key := turns.take()) is not None:
        found.append(key[0])
    return "".join(found)


def ready(workers=None, **counts):
    turns = FairTurns(workers)
    for namespace, count in counts.items():
        for key in keys(namespace, count):
            turns.add(key)
    return turns


def test_namespaces_take_turns_and_their_keys_keep_their_order():
    turns = ready(a=3, b=1, c=2)
    assert len(turns) == 6
    assert [turns.take() for _ in range(6)] == [("a", "0"), ("b", "0"), ("c", "0"), ("a", "1"), ("c", "1"), ("a", "2")]
    assert (turns.take(), len(turns)) == (None, 0)


@pytest.mark.parametrize(
    ("counts", "share"),
    [({"a": 99}, "a" * 8), ({"a": 3}, "aaa"), ({"a": 99, "b": 99}, "abababababa")],
    ids=["one alone gets half", "what it needs", "two get a third each"],
)
def test_a_namespace_holds_as_many_workers_as_are_idle(counts, share):
    assert taken(ready(16, **counts)) == share


def test_a_worker_that_is_done_is_given_out_again():
    turns = ready(2, a=2)
    assert taken(turns) == "a"
    turns.done(("a", "0"))
    assert taken(turns) == "a"


def test_a_namespace_that_comes_later_finds_an_idle_worker():
    turns = ready(32, **{f"n{number}": 100 for number in range(3)})
    taken(turns)
    turns.add(("late", "j"))
    assert turns.take() == ("late", "j")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=200), st.integers(1, 8))
def test_no_key_is_lost_and_no_more_workers_are_held_than_there_are(steps, workers):
    turns, held, added, seen = FairTurns(workers), [], 0, 0
    for number, (namespace, ends) in enumerate(steps):
        if ends and held:
            turns.done(held.pop())
        else:
            turns.add((namespace, str(number)))
            added += 1
        while (key := turns.take()) is not None:
            held.append(key)
            seen += 1
        assert len(held) <= workers
        assert added == seen + len(turns)
        assert held or not len(turns), "some key is always taken by an idle worker"


# -- hung ranks -----------------------------------------------------------------------------------------------


class Pollers:
    """Workers of a queue under a clock of the test's: each work takes the seconds that its namespace's works take."""

    def __init__(self, workers, **seconds):
        self.now, self.seconds, self.running, self.idle = 0.0, seconds, [], workers
        self.queue = WorkQueue(lambda: self.now, workers=workers)
        self.waits = dict.fromkeys(seconds, 0.0)
        self.added = {}

    def add(self, key):
        self.added.setdefault(key, self.now)
        self.queue.add(key)

    def start(self):
        while self.idle and (key := self.queue.take()) is not None:
            self.waits[key[0]] = max(self.waits[key[0]], self.now - self.added.pop(key))
            self.idle -= 1
            heapq.heappush(self.running, (self.now + self.seconds[key[0]], key))

    def run_to(self, end):
        self.start()
        while self.running and self.running[0][0] <= end:
            self.now, key = heapq.heappop(self.running)
            self.idle += 1
            self.queue.done(key)
            if key[0] != "good":
                self.add(key)  # again at once: the worst case
            self.start()
        self.now = end


@pytest.mark.parametrize("hung", [["bad"], ["bad", "worse"], ["bad", "worse", "worst"]], ids=len)
def test_200_hung_ranks_of_a_namespace_delay_others_by_less_than_a_second(hung):
    pollers = Pollers(32, good=0.01, **dict.fromkeys(hung, 3.0))
    for namespace in hung:
        for key in keys(namespace, 200):
            pollers.add(key)
    for number in range(200):
        pollers.run_to(0.1 * number)
        pollers.add(("good", str(number)))
    pollers.run_to(60.0)
    assert pollers.waits["good"] <= 1.0
    assert pollers.waits["bad"] > 1.0, "they hold one another up"
