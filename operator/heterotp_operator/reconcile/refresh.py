"""How often a job's numbers are read and shown while they bring no news (which is shown at once)."""

from heterotp_api.trainer_news import WHOLE_SECONDS

MOST_SECONDS = 120.0
REFRESHES_PER_SECOND = 16.0  # of all jobs together; each costs the operator some 4 ms, and etcd a write


def refresh_seconds(jobs: int) -> float:
    """Return the seconds between two refreshes of each of so many jobs: 30 for up to 480 jobs, at most 120."""
    return min(max(WHOLE_SECONDS, jobs / REFRESHES_PER_SECOND), MOST_SECONDS)
