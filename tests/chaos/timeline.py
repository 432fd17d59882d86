"""Reads a history for the invariants: faults with their ends, states of objects, times in which nothing can show."""

from dataclasses import dataclass, field

OVER = ("Succeeded", "Failed")
RECOVERY_SECONDS = 18.0  # after an outage or a start of the operator: the Lease, full lists, back-off


@dataclass(frozen=True)
class Violation:
    """One broken invariant: the seed of the run, when, and what was seen."""

    seed: int
    at: float
    invariant: str
    seen: str

    def __str__(self):
        return f"seed {self.seed}, {self.at:.1f} s: {self.invariant}: {self.seen}"


@dataclass
class FaultSeen:
    """A fault that began; ended: when it was over."""

    number: int
    kind: str
    began: float
    ended: float
    facts: dict = field(default_factory=dict)

    def hits(self, uid):
        """Return whether it hit this job, or may have."""
        return bool({uid, "*"} & set(self.facts.get("jobs", ())))

    def active(self, at, after=0.0):
        """Return whether it was in force at this moment, or had ended at most `after` seconds before."""
        return self.began <= at <= self.ended + after


def faults(history):
    """Return all faults that began."""
    found = {}
    last = history[-1]["at"] if history else 0.0
    for record in history:
        if record["what"] != "fault":
            continue
        number = record["number"]
        if record["state"] == "begun":
            found[number] = FaultSeen(number, record["kind"], record["at"], last, record)
        elif record["state"] == "ended" and number in found:
            found[number].ended = record["at"]
    return list(found.values())


def of(history, what, **wanted):
    """Return the records of a kind that have these values."""
    return [
        record
        for record in history
        if record["what"] == what and all(record.get(key) == value for key, value in wanted.items())
    ]


def phase_at(history, phase):
    """Return when a phase of the run began; the end of the history when it did not."""
    found = of(history, "phase", phase=phase)
    return found[0]["at"] if found else (history[-1]["at"] if history else 0.0)


def outages(history):
    """Return merged intervals in which the operator cannot act: faults that say so, and its own absence."""
    spans = [(each.began, each.ended + RECOVERY_SECONDS) for each in faults(history) if each.facts.get("outage")]
    last = history[-1]["at"] if history else 0.0
    gone = 0.0
    running = set()
    for record in of(history, "process"):
        if record["state"] == "started":
            if not running:
                spans.append((gone, record["at"] + RECOVERY_SECONDS))
            running.add(record["pid"])
        else:
            running.discard(record["pid"])
            # another one may be a standby: it needs the Lease first
            spans.append((record["at"], record["at"] + RECOVERY_SECONDS))
            gone = record["at"]
    if not running and of(history, "process"):  # of a run on kind there are none
        spans.append((gone, last))
    return merged(spans)


def merged(spans):
    """Return disjoint intervals that cover the same moments."""
    found = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def calm_seconds(spans, begin, end):
    """Return the seconds from begin to end that are in none of the disjoint intervals."""
    hidden = sum(max(0.0, min(end, later) - max(begin, earlier)) for earlier, later in spans)
    return max(0.0, end - begin - hidden)


def walk(history, plural):
    """Yield (record, live objects by uid) after every change of one resource, lists after a gap included.

    The record of such a list is yielded too, after what vanished in the gap was dropped.
    """
    live = {}
    for record in history:
        if record.get("plural") != plural:
            continue
        if record["what"] == "listed":
            live = {uid: body for uid, body in live.items() if uid in record["uids"]}
        elif record["what"] == "object" and record["type"] == "DELETED":
            live.pop(record["uid"], None)
        elif record["what"] == "object":
            live[record["uid"]] = record
        else:
            continue
        yield record, live
