"""Phases and types of conditions: two lists that must agree."""

from heterotp_api import conditions
from heterotp_api.status import ENDED_PHASES, PHASES


def test_a_phase_is_a_condition_or_comes_before_the_first_one():
    assert set(PHASES) - set(conditions.JOB_CONDITIONS) == {"Pending", "Starting"}
    assert (conditions.SUCCEEDED, conditions.FAILED) == ENDED_PHASES
