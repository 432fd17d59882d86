"""Lists in sentences: all items, or the first ones and how many more."""

import pytest
from heterotp_api.formatting import listed, one_line, ranks_listed, stall_text


@pytest.mark.parametrize(
    ("items", "most", "separator", "text"),
    [
        (["a"], None, ", ", "a"),
        (["a", "b"], None, ", ", "a and b"),
        (["a", "b", "c"], 3, ", ", "a, b and c"),
        (["a", "b", "c"], 2, ", ", "a, b and 1 more"),
        (["a", "b"], 0, ", ", "2 more"),
        (["a: 1", "b: 2", "c: 3"], 3, "; ", "a: 1; b: 2; c: 3"),
        (["a: 1", "b: 2", "c: 3"], 1, "; ", "a: 1 and 2 more"),
        ([], None, ", ", ""),
    ],
)
def test_a_list_in_a_sentence(items, most, separator, text):
    assert listed(items, most, separator) == text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([3], "rank 3"), ([1, 3], "ranks 1 and 3"), ([0, 1, 2, 3, 4, 5], "ranks 0, 1, 2, 3 and 2 more")],
)
def test_ranks_in_a_sentence(ranks, text):
    assert ranks_listed(ranks) == text


def test_a_text_from_elsewhere_is_one_line_and_bounded():
    assert one_line("a\n\x1b[31mb\u2028c", 100) == r"a\n\x1b[31mb\u2028c"
    assert one_line("x" * 100, 7) == "xxxx..."


def test_the_sentence_about_a_stall():
    assert stall_text("for 12 s", "rank 1 is still computing") == "no iteration for 12 s; rank 1 is still computing"
    assert stall_text("for 12 s", "") == "no iteration for 12 s"
