"""What evaluations decide, and text that models write."""

import math

import pytest
import torch
from heterotp_trainer.training.evaluations import Evaluations
from heterotp_trainer.training.language import perplexity
from heterotp_trainer.training.sample import generate, sample_generator


def test_the_lowest_loss_is_the_best():
    evaluations = Evaluations()
    assert [evaluations.take(i, loss) for i, loss in enumerate([3.0, 2.0, 2.0, 2.5, 1.0])] == [
        *(True, True, False, False, True)
    ]
    assert (evaluations.best_loss, evaluations.best_iteration, evaluations.ended) == (1.0, 4, False)


def test_a_loss_that_is_no_number_is_never_the_best():
    evaluations = Evaluations(patience=1)
    assert not evaluations.take(1, math.nan) and evaluations.ended


def test_training_ends_after_so_many_evaluations_without_a_lower_loss():
    evaluations = Evaluations(patience=2)
    ended = []
    for iteration, loss in enumerate([3.0, 3.1, 2.9, 2.95, 2.9]):
        evaluations.take(iteration, loss)
        ended.append(evaluations.ended)
    assert ended == [False, False, False, False, True]


def test_a_state_continues_and_holds_plain_values():
    evaluations = Evaluations(patience=2)
    assert evaluations.state_dict()["best_loss"] is None
    restored = Evaluations(patience=2)
    restored.load_state_dict(evaluations.state_dict())
    assert restored.best_loss == math.inf
    for iteration, loss in enumerate([2.0, 3.0]):
        evaluations.take(iteration, loss)
    restored.load_state_dict(evaluations.state_dict())
    assert vars(restored) == vars(evaluations)


def test_perplexity_is_the_exponential_of_the_loss():
    assert perplexity(math.log(20)) == pytest.approx(20)
    assert perplexity(1e4) is None and perplexity(math.nan) is None and perplexity(math.inf) is None


SEEN = []


def next_number(tokens):
    """Logits of a model that writes the number after the last one."""
    SEEN.append(tokens[0].tolist())
    return torch.nn.functional.one_hot((tokens[0, -1] + 1) % 10, 10).float() * 20


def write(count, **options):
    SEEN.clear()
    options = {"longest": 3, "temperature": 0.0, "generator": torch.Generator(), **options}
    return generate(next_number, [1, 2], count, **options)


def test_the_likeliest_tokens_follow_and_the_model_sees_its_window():
    assert write(4) == [3, 4, 5, 6]
    assert SEEN == [[1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]


def test_text_ends_with_the_document():
    assert write(9, end=6) == [3, 4, 5]


def test_draws_depend_on_seed_and_iteration():
    flat = lambda tokens: torch.zeros(10)  # noqa: E731
    draw = lambda seed, iteration: generate(  # noqa: E731
        flat, [0], 20, longest=4, temperature=1.0, generator=sample_generator(seed, iteration)
    )
    assert draw(1, 5) == draw(1, 5)
    assert draw(1, 5) != draw(1, 6) and draw(1, 5) != draw(2, 5)
    assert len(set(draw(1, 5))) > 3


def test_logits_that_are_no_numbers_end_nothing():
    assert generate(
        lambda tokens: torch.full((4,), math.nan), [0], 2, longest=4, temperature=1.0, generator=torch.Generator()
    ) == [0, 0]
