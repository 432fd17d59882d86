"""What a job's owner must see: each fault within its deadline, and in the end every job where it shall be."""

from chaos.timeline import OVER, calm_seconds, faults, of, outages, phase_at, walk

SHOWN_SECONDS = 60.0  # of time in which the operator could act


def faults_show(history):
    """Every fault that an owner should know of shows in a status, an event or a metric within its deadline."""
    spans, settled = outages(history), phase_at(history, "clearing")
    for fault in faults(history):
        shown = SHOWN.get(fault.facts.get("shows", ""))
        if shown is None:
            continue
        when = shown(fault, history)
        if when is not None and calm_seconds(spans, fault.began, when) <= SHOWN_SECONDS:
            continue
        until = settled if when is None else when
        if fault.facts["shows"] in LASTING or calm_seconds(spans, fault.began, until) > SHOWN_SECONDS:
            words = f"fault {fault.number} ({fault.kind}) of {fault.facts.get('detail') or fault.facts['jobs']}"
            yield fault.began, f"{words}: {fault.facts['shows']!r} never showed" if when is None else f"{words}: late"


def _excused(uid, record):
    """Return whether this record ends what can be expected of a job: it is deleted, or over."""
    return record["uid"] == uid and (
        record["type"] == "DELETED" or record.get("deleting") or record.get("phase") in OVER
    )


def _job_records(fault, history):
    uid = next(iter(fault.facts["jobs"]), "")
    for record in of(history, "object", plural="heterotpjobs", uid=uid):
        if record["at"] >= fault.began:
            yield uid, record
        elif record.get("phase") in OVER or record.get("deleting"):
            yield uid, {**record, "at": fault.began}


def _restarted(fault, history):
    """Return when a later attempt, the job's end or its suspension showed."""
    for uid, record in _job_records(fault, history):
        later = (record.get("attempt") or 0) > (fault.facts.get("attempt") or 0)
        if _excused(uid, record) or (later and _told(record)) or record.get("suspend"):
            return record["at"]
    return None


def _told(record):
    """Return whether a status tells of a restart: by its condition, or the new gang runs already."""
    conditions = record.get("conditions", {})
    return "Restarting" in conditions or "Running" in conditions or "Suspended" in conditions


def _suspended(fault, history):
    """Return when the suspension showed, or the job was resumed, over or gone."""
    for uid, record in _job_records(fault, history):
        resumed = not record.get("suspend") and record["at"] >= fault.ended
        if _excused(uid, record) or resumed or record.get("phase") == "Suspended":
            return record["at"]
    return None


def _child_mended(fault, history):
    """Return when the child was there again, or its job over or gone."""
    plural, _, name = fault.facts["detail"].partition("/")
    excuses = [r["at"] for uid, r in _job_records(fault, history) if _excused(uid, r) or r.get("suspend")]
    back = [
        record["at"]
        for record in of(history, "object", plural=plural, name=name)
        if record["at"] >= fault.began and record["type"] in ("ADDED", "LISTED", "MODIFIED")
    ]
    # an edit shows itself first, a deletion does not
    needed = 2 if fault.kind == "child edited" else 1
    return min([*excuses, *back[needed - 1 : needed]], default=None)


def _metric_rises(fault, history, name, labels):
    """Return when the sum of a metric rose after the fault, or the operator was another process."""
    before = None
    for record in of(history, "metrics"):
        total = sum(value for label, value in record["values"].get(name, {}).items() if label in labels)
        if record["at"] <= fault.began:
            before = record["pid"], total
        elif before is None or record["pid"] != before[0] or total > before[1]:
            return record["at"]
    return None


def _watch_again(fault, history):
    restarted = [r["at"] for r in of(history, "process", state="ended") if r["at"] >= fault.began]
    shown = _metric_rises(fault, history, "watch_reconnects", {fault.facts["detail"]})
    return min([*restarted[:1], *([shown] if shown is not None else [])], default=None)


def _rank_unusable(fault, history):
    """Return when a poll was counted as failed, or there was nothing to poll any more."""
    excuses = [
        record["at"] for uid, record in _job_records(fault, history) if _excused(uid, record) or not _runs(record)
    ]
    shown = _metric_rises(fault, history, "polls", {"BadAnswer", "NoAnswer"})
    found = [*excuses, *([shown] if shown is not None else [])]
    if fault.ended - fault.began < SHOWN_SECONDS / 2:
        found.append(fault.ended)  # too short for the deadline
    return min(found, default=None)


def _runs(record):
    return record.get("phase") == "Running"


SHOWN = {
    "restarted": _restarted,
    "suspended": _suspended,
    "child mended": _child_mended,
    "watch opened again": _watch_again,
    "rank 0 unusable": _rank_unusable,
}
LASTING = ("restarted", "suspended", "child mended")  # what settled jobs show in any case


def jobs_converge(history):
    """With all faults over, every job comes to its end, and every policy and injection shows its last edit."""
    clearing = of(history, "phase", phase="clearing")
    if not clearing:
        return
    until = [record for record in history if record["at"] <= clearing[0]["at"]]
    for each in _last(until, "heterotpjobs").values():
        if each.get("phase") not in OVER:
            yield clearing[0]["at"], f"job {each['name']} is {each.get('phase')} for {each.get('waitingFor')!r}"
    for plural in ("balancingpolicies", "stragglerinjections"):
        for each in _last(until, plural).values():
            if each.get("observedGeneration") != each["generation"]:
                yield clearing[0]["at"], f"{plural} {each['name']}: its status is of an earlier edit"


def _last(history, plural):
    live = {}
    for _, live in walk(history, plural):  # noqa: B007
        pass
    return live


INVARIANTS = {"faults show": faults_show, "jobs converge": jobs_converge}
