"""What a job's owner must see: each fault within its deadline, and in the end every job where it shall be."""

from chaos.timeline import OVER, calm_seconds, faults, of, outages, phase_at, walk

SHOWN_SECONDS = 60.0  # of time in which the operator could act
STRANGER_SECONDS = 15.0  # of a pod that runs, in which the operator polls it several times
CHECKPOINT_SECONDS = 45.0  # from one checkpoint to the next on kind, also where an injection slows the ranks
SLOW_SECONDS = 2.0  # of a checkpoint, which takes tenths of a second on a disk without faults


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
        elif _excused(uid, record):
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
    """Return when the sum of a metric rose after the fault in one process, or there was another one."""
    before = {}  # process -> its last sum before the fault
    for record in of(history, "metrics"):
        total = sum(value for label, value in record["values"].get(name, {}).items() if label in labels)
        if record["at"] <= fault.began:
            before[record["pid"]] = total
        elif total > before.get(record["pid"], -1.0):
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
    found = [*excuses, *([shown] if shown is not None else []), *_too_short(fault, SHOWN_SECONDS / 2)]
    return min(found, default=None)


def _stranger_counted(fault, history):
    """Return when a poll was counted as failed; of a job whose pod ran too shortly, the fault's end."""
    uid = next(iter(fault.facts["jobs"]), "")
    ran = [each["at"] for each in of(history, "object", plural="pods", job=uid, phase="Running")]
    found = [] if ran and fault.ended - ran[0] >= STRANGER_SECONDS else [fault.ended]
    shown = _metric_rises(fault, history, "polls", {"BadAnswer", "NoAnswer"})
    return min([*found, *([shown] if shown is not None else [])], default=None)


def _runs(record):
    return record.get("phase") == "Running"


def _too_short(fault, seconds):
    """Return the fault's end where it lasted less than this, so that the job may never have met it."""
    return [fault.ended] if fault.ended - fault.began < seconds else []


def _before(fault, history):
    """Return the last record of the fault's first job before it; {} without one."""
    uid = next(iter(fault.facts["jobs"]), "")
    known = [each for each in of(history, "object", plural="heterotpjobs", uid=uid) if each["at"] < fault.began]
    return known[-1] if known else {}


def _not_at_work(fault, history):
    """Return moments from which the job's iterations cannot show anything: it did not run, or has begun again."""
    before = _before(fault, history)
    found = [] if _runs(before) else [fault.began]
    for uid, record in _job_records(fault, history):
        if _excused(uid, record) or not _runs(record) or (record.get("attempt") or 0) > (before.get("attempt") or 0):
            found.append(record["at"])
    return found


def _halted(fault, history):
    """Return when it showed that no iteration ends: Stalled, a restart, a rank 0 that does not answer."""
    found = [*_too_short(fault, SHOWN_SECONDS / 2), *_not_at_work(fault, history)]
    found += [each["at"] for _, each in _job_records(fault, history) if "Stalled" in each.get("conditions", {})]
    shown = _metric_rises(fault, history, "polls", {"NoAnswer"})
    return min([*found, *([shown] if shown is not None else [])], default=None)


def _storage_shown(fault, history):
    """Return when the ranks reported what keeps a checkpoint, or how long it took."""
    trained = calm_seconds(outages(history), fault.began, fault.ended)  # a paused node holds the checkpoints up, too
    found = _not_at_work(fault, history) if trained >= CHECKPOINT_SECONDS else [fault.ended]
    found += [each["at"] for _, each in _job_records(fault, history) if each.get("says")]
    slow = [each["at"] for each in of(history, "saved") if each["at"] >= fault.began and each["seconds"] > SLOW_SECONDS]
    return min([*found, *slow], default=None)


SHOWN = {
    "restarted": _restarted,
    "suspended": _suspended,
    "child mended": _child_mended,
    "watch opened again": _watch_again,
    "rank 0 unusable": _rank_unusable,
    "stranger counted": _stranger_counted,
    "job halted": _halted,
    "storage reported": _storage_shown,
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
