"""What holds of every gang: one at a time, attempts in order, no life after the end, nothing left behind."""

from collections import defaultdict

from chaos.timeline import OVER, calm_seconds, faults, of, outages, phase_at, walk

LEFTOVER_SECONDS = 150.0  # the garbage collector, and the operator's deletions by force after a lost node
CAUSE_SECONDS = 90.0  # from the end of a fault to an attempt that it costs
CHILDREN = ("pods", "services", "configmaps", "networkpolicies")


def one_gang(history):
    """At most one attempt of a job has pods that have not ended."""
    reported = set()
    for record, live in walk(history, "pods"):
        attempts = defaultdict(set)
        for pod in live.values():
            if pod["job"] and pod.get("phase") not in OVER:
                attempts[pod["job"]].add(pod["attempt"])
        for job, found in attempts.items():
            if len(found) > 1 and (job, tuple(found)) not in reported:
                reported.add((job, tuple(found)))
                yield record["at"], f"job {job} has pods of attempts {sorted(found)} at the same time"


def attempts_in_order(history):
    """A job's attempt rises by one, never falls, and no pod of an earlier attempt follows one of a later."""
    known, gap = {}, False
    for record, _ in walk(history, "heterotpjobs"):
        if record["what"] == "listed":
            gap = False
            continue
        gap = gap or record["type"] == "LISTED"
        uid, attempt = record["uid"], record.get("attempt") or 0
        before = known.get(uid, 0 if record["type"] == "ADDED" else attempt)
        if attempt < before or (attempt > before + 1 and not gap):
            yield record["at"], f"job {uid} ({record['name']}): attempt {attempt} follows {before}"
        known[uid] = attempt
    highest = defaultdict(int)
    for record in of(history, "object", plural="pods", type="ADDED"):
        if record["job"] and record["attempt"] < highest[record["job"]]:
            yield record["at"], f"pod {record['name']} was made after one of attempt {highest[record['job']]}"
        highest[record["job"]] = max(highest[record["job"]], record["attempt"])


def ends_are_final(history):
    """A job that has ended never leaves that phase, and no pod of it is made any more."""
    ended = {}  # uid -> (version, phase)
    for record in of(history, "object", plural="heterotpjobs"):
        uid, phase = record["uid"], record.get("phase")
        if uid in ended and phase != ended[uid][1]:
            yield record["at"], f"job {uid} ({record['name']}) goes from {ended[uid][1]} to {phase}"
        if phase in OVER:
            ended.setdefault(uid, (record["version"], phase))
    for record in of(history, "object", plural="pods", type="ADDED"):
        if record["job"] in ended and record["version"] > ended[record["job"]][0]:
            yield record["at"], f"pod {record['name']} was made after job {record['job']} had ended"


def nothing_left(history):
    """Nothing of a deleted job is there after a while, and nothing at all at the end."""
    deleted = {record["uid"]: record["at"] for record in of(history, "object", plural="heterotpjobs", type="DELETED")}
    spans, end = outages(history), phase_at(history, "end")
    for plural in CHILDREN:
        life = {}
        for record in of(history, "object", plural=plural):
            first = life.get(record["uid"], (record,))[0]
            life[record["uid"]] = first, record["at"] if record["type"] == "DELETED" else None
        for first, gone in life.values():
            since = deleted.get(first["job"])
            if since is None:
                continue
            left = calm_seconds(spans, since, end if gone is None else gone)
            if left > LEFTOVER_SECONDS:
                yield since, f"{plural} {first['name']} was there {left:.0f} s after job {first['job']} was deleted"
    yield from _left_at_the_end(history, end)


def _left_at_the_end(history, end):
    if not of(history, "phase", phase="end"):
        return
    for plural in CHILDREN:
        live = {}
        for _, live in walk([each for each in history if each["at"] <= end + 5.0], plural):  # noqa: B007
            pass
        for each in live.values():
            if each["job"]:
                yield end, f"{plural} {each['name']} is left at the end"


def restarts_have_causes(history):
    """A job's attempt rises only after a fault that may cost one; an operator, a watch or a clock is none."""
    seen, known, spans = faults(history), {}, outages(history)
    for record in of(history, "object", plural="heterotpjobs"):
        uid, attempt = record["uid"], record.get("attempt") or 0
        before, known[uid] = known.get(uid, attempt), attempt
        if attempt > max(1, before) and not _explained(seen, spans, uid, record["at"], "restarts"):
            yield record["at"], f"job {uid} ({record['name']}) begins attempt {attempt}, and no fault has hit it"


def failures_have_causes(history):
    """A job fails only after a fault that may fail it."""
    seen, known = faults(history), set()
    for record in of(history, "object", plural="heterotpjobs"):
        uid = record["uid"]
        if record.get("phase") != "Failed" or uid in known:
            continue
        known.add(uid)
        if not any(each.facts.get("fails") and each.hits(uid) and each.began <= record["at"] for each in seen):
            yield record["at"], f"job {uid} ({record['name']}) failed, and no fault has hit it: {record['conditions']}"


def _explained(seen, spans, uid, at, what):
    return any(
        each.facts.get(what)
        and each.hits(uid)
        and each.began <= at
        and calm_seconds(spans, min(at, each.ended), at) <= CAUSE_SECONDS
        for each in seen
    )


INVARIANTS = {
    "at most one live gang per job": one_gang,
    "attempts rise by one": attempts_in_order,
    "no finished job runs again": ends_are_final,
    "nothing is left after deletion": nothing_left,
    "no restart without a cause": restarts_have_causes,
    "no failure without a cause": failures_have_causes,
}
