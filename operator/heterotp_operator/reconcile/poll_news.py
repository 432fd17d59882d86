"""Whether what a poll brought is worth a reconcile of the job now."""

from dataclasses import dataclass

from heterotp_api.trainer_news import WHOLE_SECONDS, News, news_of

from heterotp_operator.reconcile.observed import PollFailure, TrainerReport


@dataclass(frozen=True, slots=True)
class Shown:
    """What is kept of a report that a job was reconciled for, and when, by a clock that never goes back.

    news, digest: of its status document; news is None where it had none. The document itself is the poller's largest
    record, and a newer one is kept beside it.
    """

    failure: PollFailure
    news: News | None
    digest: int
    at: float

    @classmethod
    def of(cls, report: TrainerReport, at: float) -> "Shown":
        """Return what is kept of a report that is shown at this time."""
        status = report.status
        return cls(report.failure, None if status is None else news_of(status), hash(status), at)


def is_worth_a_look(shown: Shown | None, report: TrainerReport, now: float, refresh: float = WHOLE_SECONDS) -> bool:
    """Return whether to reconcile: at once for news and failures, else for whatever is newer after `refresh` seconds.

    shown: of the last report of the same pod that a reconcile saw; None: there was none.
    """
    if shown is None or shown.failure != report.failure:
        return True
    status = report.status
    if shown.news is None or status is None:
        return (shown.news is None) is not (status is None)
    return news_of(status).to(shown.news) or (now - shown.at >= refresh and shown.digest != hash(status))
