"""When a status is written: facts at once, measured numbers when one jumps, all that is left later (refresh.py).

What is about to change again waits for a moment, so that one write shows it all: that all pods of a job were made, as
they are about to run; counts of pods, while no condition changes with them; and a control document that the ranks have
not taken yet.

Facts are fields that programs read: phases, reasons, counts, generations. A text for people is no fact: that there is
one is a fact, its wording is not. A number jumps when it moves by half: noise of 5 % on every number of every poll must
cost no write, and what matters of a smaller change is a fact (a straggler is flagged).
"""

from typing import Any, TypeGuard

from heterotp_api.conditions import CREATED, RUNNING
from heterotp_api.trainer_news import WHOLE_SECONDS, jumped

from heterotp_operator.reconcile.actions import COUNTERS
from heterotp_operator.reconcile.conditions import FIRST_PHASE
from heterotp_operator.store import Json

NUMBERS = ("ranks", "training", "slowest", "causes", "savedSeconds", "measured")  # fields that move with every poll
TEXTS = ("message", "problem", "injectionProblem", "slowest")  # for people, wherever they stand
ROW_FACTS = ("straggler", "injectionProblem", "asked", "since", "reason", "message")  # of a rank
MEASURED = (
    *("iterationSeconds", "predictedIterationSeconds", "limitIterationSeconds", "untouchedIterationSeconds"),
    *("slowdown", "share", "injectedSlowdown", "measuredSlowdown", "measured"),
)  # numbers that a jump of is worth a write; not those near 0 (waiting), and not those that only grow (iterations)
COUNTS = ("ready", "active", "succeeded")  # of a worker group's pods; one that failed shows at once
GATHER_SECONDS = 1.0  # in which pods that come up together are counted
GANGS_PER_SECOND = 10.0  # that come up where many jobs begin at once
ANSWER_SECONDS = 3.0  # in which running ranks apply a control document


def due(written: Json, wanted: Json, seconds_since_write: float, refresh: float = WHOLE_SECONDS) -> bool:
    """Return whether `wanted` is worth a write over the live status `written`; refresh: seconds, see refresh.py."""
    if _facts(written) != _facts(wanted) or jumped(_measured(written), _measured(wanted)):
        return True
    return seconds_since_write >= refresh and _differ(written, wanted)


def due_later(written: Json, wanted: Json, seconds_since_write: float, refresh: float = WHOLE_SECONDS) -> float | None:
    """Return the seconds after which a status that is not due now is; None when there is nothing to write."""
    return max(0.0, refresh - seconds_since_write) if _differ(written, wanted) else None


def _differ(written: Json, wanted: Json) -> bool:
    old, new = ({k: v for k, v in status.items() if k not in COUNTERS} for status in (written, wanted))
    return bool(_filled(old) != _filled(new))


def alike_but_numbers(job: Json, other: Json) -> bool:
    """Return whether two versions of a job differ at most in the numbers and texts of their statuses."""
    spec = ("uid", "generation", "labels", "annotations", "deletionTimestamp")
    same = all(job["metadata"].get(field) == other["metadata"].get(field) for field in spec)
    counters = all(job["status"].get(each) == other["status"].get(each) for each in COUNTERS)
    return same and counters and _facts(job["status"]) == _facts(other["status"])


def patience(written: Json, wanted: Json, jobs: int = 1, refresh: float = WHOLE_SECONDS) -> float:
    """Return for how many seconds a status that is due may wait for what comes next; 0: somebody waits for it.

    jobs: how many there are; refresh: seconds, see refresh.py.
    """
    if _begins(written, wanted):
        return min(max(GATHER_SECONDS, jobs / GANGS_PER_SECOND), refresh)
    if _same_but(written, wanted, "workerGroups"):  # a number that jumped waits for nothing
        return GATHER_SECONDS if _facts(written) != _facts(wanted) else 0.0
    return ANSWER_SECONDS if _awaits_ranks(wanted) and _same_but(written, wanted, "workerGroups", "balancing") else 0.0


def _begins(written: Json, wanted: Json) -> bool:
    """Return whether the first status of a job says only that its pods are being made, or all were made."""
    news = [condition for condition in wanted.get("conditions") or () if condition["status"] == "True"]
    made = all(condition["type"] == CREATED for condition in news) and len(news) == len(wanted.get("conditions") or ())
    new = written.get("phase") in (None, "", FIRST_PHASE) and not written.get("conditions")
    return made and new and not wanted.get("waitingFor")


def _awaits_ranks(wanted: Json) -> bool:
    """Return whether running ranks have not taken the control document yet."""
    balancing = wanted.get("balancing") or {}
    behind = balancing.get("appliedGeneration") is not None and balancing["generation"] > balancing["appliedGeneration"]
    return wanted.get("phase") == RUNNING and behind


def _same_but(written: Json, wanted: Json, *fields: str) -> bool:
    """Return whether facts differ only in these fields, and of the worker groups only in counts."""
    left = [_facts(status | dict.fromkeys(fields) | {"groups": _uncounted(status)}) for status in (written, wanted)]
    return left[0] == left[1]


def _uncounted(status: Json) -> list[Json]:
    return [{k: v for k, v in group.items() if k not in COUNTS} for group in status.get("workerGroups") or ()]


def _facts(status: Json) -> Json:
    ranks = {"ranks": _rank_facts(status), "reported": bool(status.get("ranks")), "why": _cause_facts(status)}
    kept = {name: value for name, value in status.items() if name not in (*NUMBERS, *COUNTERS)} | ranks
    balancing = kept.get("balancing")
    if isinstance(balancing, dict):  # its reason is a sentence: decisionId counts what it describes
        facts = {k: v for k, v in balancing.items() if not k.endswith("Seconds")}
        kept["balancing"] = facts | {"reason": bool(balancing.get("reason"))}
    if isinstance(kept.get("stall"), dict):  # the ranks that the others wait for may alternate
        kept["stall"] = kept["stall"] | {"ranks": bool(kept["stall"].get("ranks"))}
    facts = _filled(_without_texts(kept))
    assert isinstance(facts, dict)
    return facts


def _without_texts(value: Any) -> Any:
    """Return the value with texts for people replaced by whether there is one."""
    if isinstance(value, dict):
        return {name: bool(each) if name in TEXTS else _without_texts(each) for name, each in value.items()}
    return [_without_texts(each) for each in value] if isinstance(value, list) else value


def _filled(value: Any) -> Any:
    """Return the value without what is empty: the API server fills such defaults in."""
    if isinstance(value, dict):
        return {name: inner for name, each in value.items() if (inner := _filled(each))}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def _rank_facts(status: Json) -> list[Json]:
    """Return the ranks of which there is a fact; which others a status of many ranks shows changes with noise."""
    rows = ({name: row[name] for name in ROW_FACTS if row.get(name)} | _place(row) for row in status.get("ranks") or ())
    return [row for row in rows if len(row) > len(_place(row))]


def _cause_facts(status: Json) -> list[str]:
    """Return which ranks have which causes; how much each counts, and so their order, moves with noise."""
    return sorted(f"{each.get('rank')} {each.get('kind')}" for each in status.get("causes") or ())


def _place(row: Json) -> Json:
    return {name: row[name] for name in ("job", "rank") if name in row}


def _measured(status: Json) -> dict[tuple[str, ...], float]:
    """Return the numbers whose jumps are worth a write, by where they stand."""
    blocks: dict[tuple[str, ...], Json] = {(name,): status.get(name) or {} for name in ("training", "balancing")}
    blocks |= {("ranks", *map(str, _place(row).values())): row for row in status.get("ranks") or ()}
    found = {(*where, name): block.get(name) for where, block in {**blocks, (): status}.items() for name in MEASURED}
    return {where: value for where, value in found.items() if _is_number(value)}


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
