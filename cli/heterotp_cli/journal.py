"""The journal of a run: rank 0 writes that of its own attempt, this process keeps those of earlier attempts."""

from pathlib import Path
from typing import Any

from heterotp_api.names import JOURNAL_FILE
from heterotp_api.run_journal import RunJournal

EARLIER = "earlier_journal.json"  # of the attempts before this one


def read_journal(workdir: Path) -> RunJournal:
    """Return the journal of all attempts; what is absent or damaged is left out."""
    return RunJournal.read(workdir / JOURNAL_FILE).after(RunJournal.read(workdir / EARLIER))


def keep_journal(workdir: Path, attempt: int) -> None:
    """Keep the journal of the attempts before `attempt`, which begins; for attempt 1 there is none."""
    earlier = read_journal(workdir) if attempt > 1 else RunJournal()
    (workdir / JOURNAL_FILE).unlink(missing_ok=True)
    if earlier == RunJournal():
        (workdir / EARLIER).unlink(missing_ok=True)
    else:
        (workdir / EARLIER).write_text(earlier.model_dump_json(by_alias=True) + "\n", encoding="utf-8")


def with_journal(report: dict[str, Any], journal: RunJournal) -> dict[str, Any]:
    """Return a report with the lists of a journal; those of an empty one replace nothing."""
    return report if journal == RunJournal() else {**report, **journal.model_dump(mode="json", by_alias=True)}
