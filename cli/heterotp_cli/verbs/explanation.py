"""The paragraph of `explain`: what slows a job, what balancing does, what it would cost to do nothing. Pure.

Every sentence is a function from the view to text; the text is empty where the sentence does not apply.
"""

from collections.abc import Sequence
from typing import get_args

from heterotp_api.causes import causes_text
from heterotp_api.conditions import REPLACEMENT_ADVISED
from heterotp_api.formatting import listed, ranks_listed
from heterotp_api.stages import stages_text
from heterotp_api.strategies import Strategy

from heterotp_cli.rows import percent, seconds
from heterotp_cli.verbs.formatting import duration, ratio, saved, seconds_since, times
from heterotp_cli.verbs.view import JobView, RankView

WAITS = {
    "Unschedulable": "for nodes on which its pods fit",
    "ImagePull": "for an image that cannot be pulled",
    "DNS": "for the name of its gang to appear in the DNS",
    "Quota": "for quota, or for a queue that admits it",
    "Admission": "for Kueue to admit it",
    "Creation": "for the API server to take its pods",
    "Policy": "for the BalancingPolicy that its policyRef names",
    "Rendezvous": "for all ranks to meet",
    "Checkpoint": "for a checkpoint to be written",
    "Iteration": "for an iteration to end",
    "Unreachable": "for rank 0 to answer: what follows is its last report",
    "PodsTerminating": "for pods of an earlier attempt to end",
}
STATES = {
    "": "is new: the operator has not taken it up yet",
    "pending": "is Pending: its pods are not there yet",
    "starting": "is starting: its ranks do not train yet",
    "restarting": "restarts from its last checkpoint",
    "suspended": "is Suspended: it has no pods, and continues from its checkpoint when runPolicy.suspend is false",
    "stopping": "is stopping",
    "succeeded": "has succeeded{at}",
    "failed": "has failed{at}",
    "stopped": "was stopped{at}, and continues from its checkpoint with `heterotp run --resume`",
    "unfinished": "was killed{at}, and continues from its last checkpoint with `heterotp run --resume`",
}
NO_STRAGGLER = "No rank of {} is a straggler"
ACTING = tuple(name for name in get_args(Strategy) if name != "None")  # strategies that balance
SLOW = 1.1  # chi from which a rank whose units have moved away is mentioned
MOST_LISTED = 3  # ranks whose numbers are shown
MUCH_LOST = 0.05  # of an iteration: a rank that loses less is not named
MAIN_STAGE = 0.2  # of what a rank loses: a stage with less is not named
CLOSE = 0.10  # share of a prediction: measured this near to it is as predicted


def explain(view: JobView, now: float, change: str) -> str:
    """Return one paragraph at time `now`; `change` is the command that sets the job's policy, without its options."""
    sentences = _running(view, now, change) if view.running else _not_running(view)
    sentences += [view.gang, _generation(view), _refusal(view), *_advice(view)]
    return " ".join(_sentence(each) for each in sentences if each)


def _sentence(text: str) -> str:
    return text if text[-1] in ".!?" else f"{text}."


def _not_running(view: JobView) -> list[str]:
    at = f" at iteration {view.iteration}" if view.iteration else ""
    how = STATES.get(view.state.lower(), f"is {view.state}").format(at=at)
    waits = f"; it waits {_waits(view)}" if view.waiting_for else ""
    message = f": {view.message}" if view.message else ""
    return [f"{view.name} {how}{waits}{message}", _stalled(view), _saved(view) if view.ended else ""]


def _stalled(view: JobView) -> str:
    """State that no iteration ends, and which rank the others wait for."""
    if not view.stall:
        return ""
    before = f" Before that an iteration took {seconds(view.iteration_seconds)}" if view.iteration_seconds else ""
    return f"{view.name} stalls: {view.stall}.{before}"


def _saved(view: JobView) -> str:
    return f"Balancing {saved(view.saved_seconds)} in this run" if view.saved_seconds else ""


def _waits(view: JobView) -> str:
    return f"{WAITS.get(view.waiting_for, 'for')} ({view.waiting_for})"


def _running(view: JobView, now: float, change: str) -> list[str]:
    first = f"{view.name} waits {_waits(view)}" if view.waiting_for else ""
    if view.stall:  # times and stragglers are of the iterations before
        return [first if view.waiting_for == "Unreachable" else "", _stalled(view)]
    if view.iteration_seconds is None:
        return [first, f"{view.name} runs, but no iteration was timed yet: ask again after the first ones"]
    slow = [rank for rank in view.by_slowdown if rank.straggler]
    reduced = [rank for rank in view.by_slowdown if rank.has_reduced_work]
    on_purpose = _on_purpose(view, slow)
    if not slow and not reduced:
        moved = _moved(view)
        return [first, _no_straggler(view), *_why(view), _late(view), *on_purpose, *(moved or [_saved(view)])]
    done = _balancing(view, reduced) if reduced else _left_alone(view, slow, change)
    return [first, _stragglers(view, slow, now), *_why(view), _late(view), *on_purpose, *done]


# -- stragglers -----------------------------------------------------------------------------------------------


def _no_straggler(view: JobView) -> str:
    """State that no rank is a straggler, and how far the iteration time is from the fluid limit."""
    took = seconds(view.iteration_seconds)
    ranks = f"none of its {view.rank_count} ranks" if view.rank_count else "no rank"
    if view.limit_iteration_seconds:
        above = (view.iteration_seconds or 0.0) / view.limit_iteration_seconds
        limit = f"the fluid limit is {seconds(view.limit_iteration_seconds)}"
        took += f", {above:.2f} times as long as it would if the work could be split without remainder ({limit})"
    slowed = view.causes or any(rank.injected for rank in view.by_slowdown)  # the next sentence names it
    first = NO_STRAGGLER.format(view.name) if slowed else f"Nothing slows {view.name}: {ranks} is a straggler"
    return f"{first}. An iteration takes {took}"


def _stragglers(view: JobView, slow: Sequence[RankView], now: float) -> str:
    if not slow:
        return NO_STRAGGLER.format(view.name)
    most = slow[0].slowdown
    several = len(slow) > 1
    longer = f"{'up to ' if several else ''}{times(most)} as long as" if most is not None else "longer than"
    where = "" if several else _where(slow[0])
    since = None if several else seconds_since(slow[0].straggling_since, now)
    lasting = f", for {duration(since)} now" if since is not None else ""
    ranks = ranks_listed([rank.rank for rank in slow])
    subject, verb = f"{ranks[0].upper()}{ranks[1:]}{where}", "slow" if several else "slows"
    products = "their matrix products take" if several else "its matrix products take"
    return f"{subject} {verb} {view.name}: {products} {longer} those of a normal rank{lasting}"


def _why(view: JobView) -> list[str]:
    """State why ranks are slow and what helps, the slowest first; injections have a sentence of their own."""
    causes = [each for each in view.causes if each.kind != "injection"]
    ranks = list(dict.fromkeys(each.rank for each in causes))[:MOST_LISTED]
    return [f"Rank {rank} is slow: {text}" for rank in ranks if (text := causes_text(causes, rank))]


def _late(view: JobView) -> str:
    """State which rank the others wait for most, in which stages, and what that takes of an iteration."""
    took, lost = view.iteration_seconds or 0.0, dict.fromkeys((each.rank for each in view.blame), 0.0)
    for each in view.blame:
        lost[each.rank] += each.seconds
    rank = max(lost, key=lambda rank: lost[rank], default=None)
    if rank is None or lost[rank] < MUCH_LOST * took:
        return ""
    own = [each for each in view.blame if each.rank == rank]
    stages = stages_text([each.stage for each in own if each.seconds >= MAIN_STAGE * lost[rank]])
    where = f" in {stages}" if stages else ""
    part = f", {percent(lost[rank] / took, 0)} of an iteration" if took else ""
    return f"Other ranks wait for rank {rank}{where}: {seconds(lost[rank])}{part}"


def _where(rank: RankView) -> str:
    known = [f"{kind} {name}" for kind, name in (("group", rank.group), ("node", rank.node)) if name]
    return f" ({', '.join(known)})" if known else ""


def _on_purpose(view: JobView, slow: Sequence[RankView]) -> list[str]:
    """State which ranks injections slow, and whether the effect is measured."""
    asked = [rank for rank in view.by_slowdown if rank.injected]
    if not asked:
        return []
    clear = len(asked) == 1 and asked == slow  # the sentence before has named this rank
    effects = [_effect(rank, "" if clear else f" on rank {rank.rank}") for rank in asked]
    effects_text = listed(effects, MOST_LISTED)
    if slow and {rank.rank for rank in slow} <= {rank.rank for rank in asked}:
        return [f"That is on purpose: injections ask for {effects_text}"]
    return [f"On purpose, injections ask for {effects_text}"]


def _effect(rank: RankView, place: str) -> str:
    effect = f"{ratio(rank.measured_slowdown)} measured" if rank.measured_slowdown else "not measured yet"
    problem = f": {rank.injection_problem}" if rank.injection_problem else ""
    return f"{ratio(rank.injected_slowdown)}{place} ({effect}{problem})"


def _moved(view: JobView) -> list[str]:
    """State that units of slow ranks have moved away, and the iteration time without that."""
    slow = [(rank, rank.slowdown) for rank in view.by_slowdown if rank.slowdown is not None and rank.slowdown >= SLOW]
    if not view.moves or not slow:
        return []
    owners = [
        f"rank {rank.rank}{_where(rank)}, {times(chi)} as slow as a normal one, owns {percent(rank.share)}"
        for rank, chi in slow
    ]
    text = f"{listed(owners, MOST_LISTED)} of the work, so that no rank waits"
    return [f"{text[0].upper()}{text[1:]}: units have moved to other ranks", _without_it(view)]


# -- balancing -----------------------------------------------------------------------------------------------


def _left_alone(view: JobView, slow: Sequence[RankView], change: str) -> list[str]:
    """State that no work is taken from stragglers, what that costs, and what to do."""
    ranks = "them" if len(slow) > 1 else "it"
    why = f": {view.reason}" if view.reason and view.strategy != "None" else ""
    strategy = f" (strategy {view.strategy})" if view.strategy else ""
    hint = "" if view.strategy in ACTING else f"To balance it: `{change} --strategy SEMI`"
    return [f"Nothing is taken from {ranks}{strategy}{why}", _cost_of_waiting(view), hint]


def _cost_of_waiting(view: JobView) -> str:
    took, limit = view.iteration_seconds, view.limit_iteration_seconds
    if not took or not limit:
        return f"An iteration takes {seconds(took)}"
    text = f"An iteration takes {seconds(took)} where {seconds(limit)} would do at the fluid limit"
    text += f": {times(took / limit)} as long"
    return text + _until_the_end(view, took - limit, "; to do nothing costs")


def _until_the_end(view: JobView, more: float, text: str) -> str:
    """Return `text` with `more` seconds an iteration over the remaining iterations; empty below one second."""
    if view.total_iterations is None or view.iteration is None:
        return ""
    left = view.total_iterations - view.iteration
    return f"{text} {duration(more * left)} over the {left} iterations to come" if left > 0 and more * left >= 1 else ""


def _balancing(view: JobView, reduced: Sequence[RankView]) -> list[str]:
    """State what work was taken from which ranks, the effect, and the iteration time without it."""
    taken = listed([_taken(rank) for rank in reduced], MOST_LISTED)
    strategy = view.strategy or "Balancing"
    return [f"{strategy} takes columns from {taken}", _effect_on_time(view), _without_it(view)]


def _taken(rank: RankView) -> str:
    parts = []
    if rank.pruned_ratio:
        parts.append(f"{percent(rank.pruned_ratio)} deleted")
    if rank.migrated_ratio:
        parts.append(f"{percent(rank.migrated_ratio)} computed by other ranks")
    return f"rank {rank.rank} ({', '.join(parts)})"


def _effect_on_time(view: JobView) -> str:
    took, predicted = view.iteration_seconds, view.predicted_iteration_seconds
    text = f"An iteration takes {seconds(took)} now"
    if not took or not predicted:
        return text
    if abs(took - predicted) <= CLOSE * predicted:
        return f"{text}, as predicted ({seconds(predicted)})"
    return f"{text}, where {seconds(predicted)} was predicted"


def _without_it(view: JobView) -> str:
    took, untouched = view.iteration_seconds, view.untouched_iteration_seconds
    so_far = f"{saved(view.saved_seconds)} so far" if view.saved_seconds else ""
    if not took or not untouched:
        return f"Balancing {so_far}" if so_far else ""
    if untouched <= took:
        return f"Without it an iteration would take {seconds(untouched)}: it costs more than it saves now"
    text = f"Without it an iteration would take {seconds(untouched)}, {times(untouched / took)} as long"
    text += _until_the_end(view, untouched - took, ", and doing nothing would cost")
    return text + (f"; balancing {so_far}" if so_far else "")


# -- changes and advice ---------------------------------------------------------------------------------------


def _generation(view: JobView) -> str:
    published, applied = view.generation or 0, view.applied_generation or 0
    if view.problem or not view.running or published <= applied:
        return ""
    which = f"Generation {published} of the control document is published, {applied} is in force"
    return f"{which}: the last change does not hold yet"


def _refusal(view: JobView) -> str:
    return f"The last change was refused: {view.problem}" if view.problem and not view.ended else ""


def _advice(view: JobView) -> list[str]:
    messages = [each.message for each in view.advice if each.condition == REPLACEMENT_ADVISED]
    return [f"The operator advises a replacement: {message}" for message in messages if not view.ended]
