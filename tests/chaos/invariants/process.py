"""What holds of the operator's process: bounded memory, no end and no sick state without a reason."""

from chaos.timeline import calm_seconds, faults, of, outages

MOST_BYTES = 256 << 20  # half of the chart's limit: a run has a handful of jobs
END_SECONDS = 30.0  # from the end of a fault to an end of the process that it causes
SICK_SECONDS = 30.0


def memory_bounded(history):
    """The resident memory of the operator stays below a bound."""
    most = max(of(history, "sample"), key=lambda record: record["bytes"], default=None)
    if most is not None and most["bytes"] > MOST_BYTES:
        yield most["at"], f"process {most['pid']} holds {most['bytes'] >> 20} MiB, more than {MOST_BYTES >> 20}"


def process_goes_on(history):
    """The process ends only by faults that may end it; a job is none of these."""
    seen = [each for each in faults(history) if each.facts.get("ends_operator")]
    for record in of(history, "process", state="ended"):
        if not record.get("asked") and not any(each.active(record["at"], END_SECONDS) for each in seen):
            yield record["at"], f"process {record['pid']} ended with code {record['code']}, and no fault explains it"


def own_tasks_go_on(history):
    """No worker or poller ends by an error."""
    reported = set()
    for record in of(history, "metrics"):
        for task, count in record["values"].get("task_restarts", {}).items():
            if count and (record["pid"], task) not in reported:
                reported.add((record["pid"], task))
                yield record["at"], f"task {task} of process {record['pid']} ended by an error"


def stays_healthy(history):
    """The process does not call itself sick: the kubelet would restart it."""
    spans, since = outages(history), {}
    for record in of(history, "metrics"):
        if record.get("healthy", True):
            since.pop(record["pid"], None)
            continue
        began = since.setdefault(record["pid"], record["at"])
        if began is not None and calm_seconds(spans, began, record["at"]) > SICK_SECONDS:
            since[record["pid"]] = None  # reported
            yield began, f"process {record['pid']} calls itself sick for {SICK_SECONDS:.0f} s"


INVARIANTS = {
    "memory is bounded": memory_bounded,
    "the operator goes on": process_goes_on,
    "its tasks go on": own_tasks_go_on,
    "it is healthy": stays_healthy,
}
