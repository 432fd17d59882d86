"""Lines of a rank's log: time and iteration first, so that a line can be found in report.json and history.jsonl."""

import time

from heterotp_api.formatting import utc_time


def log_line(iteration: int, text: str, now: float) -> str:
    """Return `2026-01-31T09:05:00Z iteration 41: text`; now: unix seconds."""
    return f"{utc_time(now)} iteration {iteration}: {text}"


def log(iteration: int, text: str, now: float | None = None) -> None:
    """Print a line about an iteration at once; now: unix seconds, None: by the clock."""
    print(log_line(iteration, text, time.time() if now is None else now), flush=True)
