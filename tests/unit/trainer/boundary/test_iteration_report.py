"""Which iterations enter statistics, and a rank's report of the iteration that ends."""

import dataclasses

import pytest
from heterotp_api.control import ControlDocument
from heterotp_trainer.boundary.batch_hash import Entered
from heterotp_trainer.boundary.control_channel import ControlChannel
from heterotp_trainer.boundary.exchange import STOP
from heterotp_trainer.boundary.iteration_context import IterationContext
from heterotp_trainer.boundary.iteration_report import IterationStatistics, iteration_report
from heterotp_trainer.devices.phase_clock import ATTENTION, PHASES, UPDATE, VOCABULARY
from heterotp_trainer.devices.stage_times import StageTimes

SPENT = {phase: (index + 1) / 8 for index, phase in enumerate(PHASES)} | {ATTENTION: 4.0, VOCABULARY: 2.0, UPDATE: 8.0}
OWNED = {"heads": 0.25, "ffn": 0.125, "vocab": 0.625}


def measured(statistics, *iterations):
    return [statistics.end(iteration, 0, IterationContext()).measured for iteration in iterations]


@pytest.mark.parametrize("started", [0, 100], ids=["new", "continued"])
def test_the_first_two_iterations_of_an_attempt_enter_no_statistic(started):
    statistics = IterationStatistics()
    statistics.started = started
    assert measured(statistics, *(started + n for n in range(1, 6))) == [False, False, True, True, True]


def test_the_iteration_in_which_an_attempt_begins_enters_no_statistic():
    assert measured(IterationStatistics(), 50, 51) == [False, True]  # whatever its number is


def test_an_iteration_that_is_left_out_enters_no_statistic_and_the_next_one_does():
    statistics = IterationStatistics()
    measured(statistics, 1, 2, 3)
    statistics.leave_out()
    assert measured(statistics, 4, 5, 6) == [False, True, True]


def test_late_times_belong_to_the_context_of_their_own_iteration():
    statistics = IterationStatistics()
    measured(statistics, 1, 2)
    contexts = [IterationContext(decision_id=n, full_work_factor=float(n), unslowed=n / 2) for n in range(3, 7)]
    statistics.end(3, 0, contexts[0])
    statistics.leave_out()
    statistics.end(4, 0, contexts[1])
    statistics.end(5, 0, contexts[2])
    assert statistics.end(6, 1, contexts[3]) == dataclasses.replace(contexts[2], measured=True)
    assert statistics.end(7, 3, contexts[3]) == contexts[1]  # left out then, left out now
    assert statistics.end(8, None, contexts[3]) == IterationContext()  # no times: nothing is measured


def control(generation=0):
    channel = ControlChannel(None, 2, None)
    channel.document = ControlDocument(generation=generation)
    return channel


def report(ran=None, channel=None, owned=OWNED):
    ran = ran or IterationContext(True, 7, 4.0, 0.25)
    return iteration_report(
        iteration=9,
        flags=STOP,
        spent=SPENT,
        stages=StageTimes(meetings=3),
        owned=owned,
        ran=ran,
        control=channel or control(3),
        ready=5,
        pace_ratio=1.5,
        plan=11,
        batch=Entered(13, 1.25, -0.5),
        loss=0.75,
    )


def test_a_report_holds_each_value_in_its_own_field():
    made = report()
    assert (made.iteration, made.flags, made.ready, made.pace_ratio, made.plan) == (9, STOP, 5, 1.5, 11)
    assert (made.batch, made.batch_norm, made.batch_signed, made.loss) == (13, 1.25, -0.5, 0.75)
    assert (made.measured, made.decision_id, made.unslowed) == (1, 7, 0.25)
    assert made.stages.meetings == 3


def test_attention_and_vocabulary_are_parts_of_the_unit_seconds_and_reported_apart():
    made = report(owned=dict.fromkeys(OWNED, 0.0))
    assert made.seconds["unit"] == SPENT["unit"] + 4.0 + 2.0 + 8.0
    assert (made.attention, made.vocabulary) == (4.0, 2.0)
    assert set(made.seconds) == set(PHASES)
    assert sum(made.seconds.values()) == sum(SPENT.values())
    assert SPENT[ATTENTION] == 4.0 and SPENT["unit"] == (PHASES.index("unit") + 1) / 8  # the argument is unchanged


def test_the_optimizers_step_belongs_to_the_families_by_the_parameters_of_the_rank():
    made = report()
    assert made.seconds["unit"] == SPENT["unit"] + 4.0 + 2.0 + 8.0
    assert (made.attention, made.vocabulary) == (4.0 + 2.0, 2.0 + 5.0)


def test_full_seconds_are_those_of_the_products_times_the_full_work_factor():
    assert report().full == SPENT["matmul"] * 4.0
    assert report(IterationContext()).full == SPENT["matmul"]


def test_a_report_of_an_iteration_that_is_left_out_is_not_measured():
    assert report(IterationContext(False, 7)).measured == 0


def test_rank_0_reports_the_newest_document_and_the_one_in_force(tmp_path):
    channel = ControlChannel(tmp_path, 2, None)
    channel.document = ControlDocument(generation=3)
    (tmp_path / "control.json").write_text('{"generation": 4}')
    channel._file.check()
    first, second = report(channel=channel), report(channel=channel)
    assert [(made.generation, made.applied) for made in (first, second)] == [(4, 3), (4, 3)]
    assert first.document_bytes == len(channel._outgoing) > 0
    assert second.document_bytes == 0  # announced once


def test_other_ranks_announce_no_document():
    made = report()
    assert (made.generation, made.document_bytes, made.applied) == (0, 0, 3)
