"""How often numbers without news are shown: as often as the operator can afford for so many jobs."""

import pytest
from heterotp_operator.reconcile.refresh import refresh_seconds


@pytest.mark.parametrize(("jobs", "seconds"), [(0, 30), (480, 30), (800, 50), (1000, 62.5), (1920, 120), (10**6, 120)])
def test_many_jobs_are_refreshed_less_often(jobs, seconds):
    assert refresh_seconds(jobs) == seconds
