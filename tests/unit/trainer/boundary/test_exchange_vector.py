"""The boundary exchange's vector, the decision on all vectors, the checksum of replicas."""

import re
from math import inf, nan

import pytest
from heterotp_trainer.boundary.exchange import (
    CHECKPOINT,
    EVALUATE,
    SAME_BATCHES,
    SAME_LOSS,
    STOP,
    MismatchError,
    Report,
    comparable,
    hash_number,
    merge_reports,
)
from heterotp_trainer.devices.machine.reading import Reading
from heterotp_trainer.devices.phase_clock import PHASES
from hypothesis import given, settings
from hypothesis import strategies as st

HASHES = st.integers(0, 2**64 - 1)
SECONDS = st.floats(0, 1e6)
NUMBERS = st.integers(0, 2**40)


@settings(deadline=None)  # the machine may be busy
@given(NUMBERS, st.integers(0, 7), NUMBERS, NUMBERS, st.integers(0, 1), SECONDS, SECONDS, HASHES, HASHES)
def test_a_report_survives_the_vector(iteration, flags, generation, length, measured, full, unslowed, plan, batch):
    seconds = {phase: index / 8 for index, phase in enumerate(PHASES)}
    numbers = {"generation": generation, "applied": length, "decision_id": generation, "document_bytes": length}
    times = {"full": full, "unslowed": unslowed, "seconds": seconds, "attention": full / 2, "vocabulary": full / 4}
    times |= {"batch_norm": full / 8, "batch_signed": -full}
    machine = Reading(throttled=full / 1e6, gpu_errors=1.0)  # all other numbers are not known
    report = Report(iteration, flags, measured=measured, plan=plan, batch=batch, machine=machine, **numbers, **times)
    assert Report.unpack(report.pack()) == report


@pytest.mark.parametrize(
    ("flags", "stop", "checkpoint", "evaluate"),
    [
        ((0, 0, 0), False, False, False),
        ((0, STOP, 0), True, False, False),
        ((CHECKPOINT, 0, 0), False, True, False),
        ((CHECKPOINT, 0, STOP | EVALUATE), True, True, True),
    ],
)
def test_a_flag_of_any_rank_holds_for_all_ranks(flags, stop, checkpoint, evaluate):
    action = merge_reports([Report(7, flag) for flag in flags])
    assert (action.stop, action.checkpoint, action.evaluate) == (stop, checkpoint, evaluate)


def test_only_rank_0_announces_a_document():
    assert merge_reports([Report(1, document_bytes=10), Report(1)]).document_bytes == 10
    assert merge_reports([Report(1), Report(1, document_bytes=10)]).document_bytes == 0


@pytest.mark.parametrize(
    ("other", "good"),
    [
        (Report(1, decision_id=2), True),
        (Report(1, decision_id=2, measured=0), False),
        (Report(1, decision_id=1), False),
    ],
    ids=["alike", "not-measured", "of-another-plan"],
)
def test_reports_are_comparable_only_within_one_plan(other, good):
    mine = Report(1, decision_id=2)
    assert comparable((mine, other)) == comparable((other, mine)) == good


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (Report(14), "iteration of ranks [2] differs from rank 0's: [13, 13, 14]"),
        (Report(13, plan=5), "the plan's hash of ranks [2] differs from rank 0's"),
        (Report(13, batch=5), f"the batch of ranks [2] differs from rank 0's{SAME_BATCHES}"),
    ],
    ids=["iteration", "plan", "batch"],
)
def test_ranks_that_disagree_are_named(odd, message):
    with pytest.raises(MismatchError) as error:
        merge_reports([Report(13), Report(13), odd])
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("losses", "unlike", "told"),
    [
        ((2.0, 2.0, 2.0), False, ""),
        ((2.0, inf, 2.0), False, ""),
        ((inf, nan, inf), False, ""),
        ((2.0, 2.000001, 2.0), False, ""),
        ((2.0, 2.0, 2.001), False, "ranks [2] differs from rank 0's (2, 2, 2.001)"),
        ((inf, 2.0, 2.001), False, "ranks [2] differs from rank 1's (2, 2.001)"),
        ((2.0, 2.0, 2.001), True, ""),
        ((2.0, 2.03, 2.0), True, "ranks [1] differs from rank 0's (2, 2.03, 2)"),
        ((0.0, 0.0, 1e-9), False, ""),
        ((0.0, 0.0, 1e-3), False, "ranks [2] differs from rank 0's (0, 0, 0.001)"),
    ],
)
def test_losses_are_the_same_within_a_bound(losses, unlike, told):
    reports = [Report(3, loss=loss) for loss in losses]
    if not told:
        assert merge_reports(reports, unlike=unlike)
        return
    with pytest.raises(MismatchError, match=re.escape(f"the loss of {told}: {SAME_LOSS}")):
        merge_reports(reports, unlike=unlike)


def test_hashes_become_numbers():
    assert hash_number("00000000000000ff") == 255
    assert hash_number("ffffffffffffffff") == 2**64 - 1
