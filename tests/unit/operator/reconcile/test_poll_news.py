"""Which polls are worth a reconcile."""

import pytest
from heterotp_api.trainer_news import WHOLE_SECONDS
from heterotp_api.trainer_status import TrainerStatus
from heterotp_operator.reconcile.observed import TrainerReport
from heterotp_operator.reconcile.poll_news import Shown, is_worth_a_look

STATUS = TrainerStatus(job="j", attempt=1, state="running", started_at=1.0, iteration=7)
LATER = STATUS.model_copy(update={"iteration": 8})
STOPPING = STATUS.model_copy(update={"state": "stopping"})


def report(status, failure=""):
    return TrainerReport(status, failure, 0.0)


GOOD, SILENT, BAD = report(STATUS), report(None, "NoAnswer"), report(None, "BadAnswer")


@pytest.mark.parametrize(
    ("shown", "now", "seconds", "look"),
    [
        (None, GOOD, 0.0, True),
        (None, SILENT, 0.0, True),
        (GOOD, GOOD, 1000.0, False),
        (GOOD, report(LATER), WHOLE_SECONDS - 0.1, False),
        (GOOD, report(LATER), WHOLE_SECONDS, True),
        (GOOD, report(STOPPING), 0.0, True),
        (GOOD, SILENT, 0.0, True),
        (SILENT, GOOD, 0.0, True),
        (SILENT, BAD, 0.0, True),
        (SILENT, SILENT, 1000.0, False),
    ],
)
def test_news_and_failures_at_once_and_the_rest_after_a_while(shown, now, seconds, look):
    before = None if shown is None else Shown.of(shown, 100.0)
    assert is_worth_a_look(before, now, 100.0 + seconds) is look


def test_among_many_jobs_the_rest_waits_longer():
    before = Shown.of(GOOD, 100.0)
    assert not is_worth_a_look(before, report(LATER), 162.0, 62.5)
    assert is_worth_a_look(before, report(LATER), 162.5, 62.5)
    assert is_worth_a_look(before, report(STOPPING), 100.0, 62.5)
