"""Conditional answers to polls."""

import re

from heterotp_api.trainer_news import TOKEN, Place
from heterotp_api.trainer_status import TrainerStatus
from heterotp_trainer.reporting.conditional import MOST_GIVEN, ConditionalStatus

STATUS = TrainerStatus(job="j", attempt=1, state="running", started_at=1.0, iteration=7, loss=2.0)


def test_small_changes_that_add_up_are_news():
    now = [STATUS.model_copy(update={"iteration_seconds": 1.0})]
    conditional = ConditionalStatus(lambda: now[0])
    token, answers = conditional.polled(None).token, []
    for step in range(1, 12):
        now[0] = STATUS.model_copy(update={"iteration": step, "iteration_seconds": 1.0 + 0.1 * step})
        answer = conditional.polled(token)
        assert answer.place == Place(0, step)
        answers.append(answer.body is None)
    assert answers[:9] == [True] * 9 and not answers[-1]


def test_operators_that_take_over_do_not_disturb_each_other_and_few_documents_are_kept():
    conditional = ConditionalStatus(lambda: STATUS)
    tokens = [conditional.polled(None).token for _ in range(MOST_GIVEN + 1)]
    assert len(set(tokens)) == len(tokens)
    assert [conditional.polled(token).body is None for token in tokens[1:]] == [True] * MOST_GIVEN
    assert conditional.polled(tokens[0]).body is not None
    assert len(conditional._given) == MOST_GIVEN


def test_tokens_have_the_form_that_operators_take():
    assert re.fullmatch(TOKEN, ConditionalStatus(lambda: STATUS).polled("anything").token)
