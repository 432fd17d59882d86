"""The control document of each job, as its last reconcile decided it."""

from heterotp_operator.queue import Key
from heterotp_operator.reconcile.control import Effective


class PublishedControls:
    """Recorded by the jobs' reconciles alone; read by the poller and by the statuses of policies and injections."""

    def __init__(self) -> None:
        self._by_job: dict[Key, Effective] = {}

    def record(self, job: Key, control: Effective) -> None:
        """Record the control document that a job's reconcile decided."""
        self._by_job[job] = control

    def get(self, job: Key) -> Effective | None:
        """Return a job's control document; None before its first reconcile."""
        return self._by_job.get(job)

    def forget(self, job: Key) -> None:
        """Drop what is known of a job that is gone."""
        self._by_job.pop(job, None)
