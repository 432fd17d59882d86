"""What follows when ranks of an elastic gang are asked to stop."""

import pytest
from heterotp_trainer.boundary.exchange import ASKED, LEAVE, Report, merge_reports
from heterotp_trainer.session_parts.stopping import ALONE_SECONDS, Requests, answer


@pytest.mark.parametrize(
    ("asked", "seconds", "live", "least", "expected"),
    [
        ((), 0.0, 4, 1, "None"),
        ((2,), 0.0, 4, 1, "Wait"),
        ((2,), ALONE_SECONDS, 4, 1, "Leave"),
        ((0,), ALONE_SECONDS, 4, 3, "Leave"),
        ((2,), 0.0, 4, 4, "Stop"),
        ((0,), 0.0, 1, 1, "Stop"),
        ((1, 2), 0.0, 4, 1, "Stop"),
        ((0, 1, 2, 3), 0.1, 4, 1, "Stop"),
    ],
)
def test_one_leaves_alone_and_several_are_the_end(asked, seconds, live, least, expected):
    assert answer(asked, seconds, live, least) == expected


def test_another_one_that_follows_in_time_ends_the_run():
    requests = Requests()
    seen = []
    for now, asked in ((0.0, ()), (1.0, (1,)), (2.0, (1,)), (3.9, (1, 2))):
        requests.hear(asked, now, 4, 1)
        seen.append(requests.answer)
    assert seen == ["None", "Wait", "Wait", "Stop"]


def test_the_time_counts_from_the_first_word():
    requests = Requests()
    for now in (1.0, 1.0 + ALONE_SECONDS):
        requests.hear((1,), now, 4, 1)
    assert requests.answer == "Leave"
    requests.hear((), 5.0, 3, 1)
    requests.hear((2,), 6.0, 3, 1)
    assert requests.answer == "Wait"


@pytest.mark.parametrize(
    ("flags", "leave", "stop"),
    [
        ((0, 0, 0), None, False),
        ((0, ASKED, 0), None, False),
        ((LEAVE, ASKED, 0), 1, False),
        ((LEAVE | ASKED, 0, 0), 0, False),
        ((LEAVE, ASKED, ASKED), None, True),
        ((LEAVE, 0, 0), None, False),
        ((0, ASKED | LEAVE, 0), None, False),
    ],
)
def test_all_ranks_conclude_the_same_from_the_reports(flags, leave, stop):
    action = merge_reports([Report(7, flags=each) for each in flags])
    assert (action.leave, action.stop) == (leave, stop)
