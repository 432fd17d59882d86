"""The status document: what rank 0 answers to GET /status.

A rank's answer is a stranger's: texts and lists that are too long are cut, numbers that no status can hold are refused.
A document of at most MOST_BYTES is read.
"""

import statistics
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field

from heterotp_api.base import Model
from heterotp_api.status import MAX_RANKS

MOST_BYTES = 256 << 10
MOST_INJECTIONS = 128  # of one job that the operator publishes, so that each has its state in the document
MOST_BLAMED = 16  # entries of the list of ranks and stages to blame
MOST_CAUSES = 16
MAX_WORD, MAX_TEXT = 128, 1024  # characters
MOST = 2**53  # of a number that counts something: what JSON carries without loss


def _cut_text(length: int) -> BeforeValidator:
    return BeforeValidator(lambda text: text[:length] if isinstance(text, str) else text)


def _cut_list(length: int) -> BeforeValidator:
    return BeforeValidator(lambda items: tuple(items[:length]) if isinstance(items, list | tuple) else items)


def _interest(rank: Any) -> tuple[bool, bool, float, float]:
    """Order ranks, as model or as JSON: stragglers first, then those that injections slow, then the slowest."""
    fields = rank if isinstance(rank, dict) else rank.model_dump(by_alias=True) if isinstance(rank, TrainerRank) else {}
    speed, chi, asked = (_number(fields.get(name)) for name in ("relativeSpeed", "slowdown", "injectedSlowdown"))
    return fields.get("straggler") is not True, asked <= 1, -round(chi, 1), speed


def _number(value: Any) -> float:
    """Return a ratio, 1.0 for what is none."""
    return float(value) if isinstance(value, int | float) and abs(value) <= MOST else 1.0  # not so NaN


def _shown_ranks(ranks: Any) -> Any:
    if not isinstance(ranks, list | tuple):
        return ranks
    return tuple(ranks if len(ranks) <= MAX_RANKS else sorted(ranks, key=_interest)[:MAX_RANKS])


def _bounded(number: Any) -> Any:
    return None if isinstance(number, int) and abs(number) > MOST else number


Word = Annotated[str, _cut_text(MAX_WORD)]
Text = Annotated[str, _cut_text(MAX_TEXT)]
Count = Annotated[int, Field(ge=0, le=MOST)]
Seconds = Annotated[float, Field(ge=0, le=MOST)]
RankNumbers = Annotated[tuple[Count, ...], _cut_list(MAX_RANKS)]
TrainerState = Literal["starting", "running", "stopping", "succeeded", "failed"]
InjectionState = Literal["waiting", "active", "paused", "finished", "lapsed"]


class _Report(Model):
    # a newer trainer may send fields that an older operator does not have
    model_config = ConfigDict(**{**Model.model_config, "extra": "ignore"})


class TrainerRank(_Report):
    """One rank's medians of the last window, seconds per iteration.

    `full_matmul_seconds`: time of the matrix products without work reduction. `slowdown`: chi, how many times
    longer these products take than the rank's work should at the speed that its first share was made for.
    `straggler`: other ranks wait for this rank, which is false for a slow rank whose units have moved away.
    `pruned_ratio`, `migrated_ratio`: shares of the rank's columns that are deleted, and that other ranks
    compute, 0..1. `columns_out`, `columns_in`: columns that are migrated to other ranks, and from them,
    summed over all linears; `migrated_bytes`: sent and received for them in an iteration.
    `blamed_seconds`: what the other ranks wait for this one in an iteration (docs/algorithms.md, Who is to blame).
    `injected_slowdown`: requested by injections; `measured_slowdown`: reached; `injection_problem`: why the
    device cannot follow.
    """

    rank: Count
    tp_rank: Count
    device: Word
    compute_seconds: float | None = None
    matmul_seconds: float | None = None
    full_matmul_seconds: float | None = None
    unit_seconds: float | None = None
    fixed_seconds: float | None = None
    wait_seconds: float | None = None
    data_seconds: float | None = None
    control_seconds: float | None = None
    relative_speed: float | None = None
    slowdown: float | None = None
    share: float | None = None
    heads: Count = 0
    hidden_units: Count = 0
    vocabulary_rows: Count = 0
    pruned_ratio: float = 0.0
    migrated_ratio: float = 0.0
    columns_out: Count = 0
    columns_in: Count = 0
    migrated_bytes: float = 0.0
    injected_slowdown: float = 1.0
    measured_slowdown: float | None = None
    injection_problem: Annotated[str, _cut_text(256)] = ""
    straggler: bool = False
    blamed_seconds: Seconds | None = None


class TrainerBlame(_Report):
    """A rank and a stage that the others waited for: lost seconds of an iteration, mean (`seconds`) and median.

    `stage` is one of stages.py, or of a newer trainer. `share`: of all lost seconds of the window, 0..1.
    """

    rank: Count
    stage: Word
    seconds: Seconds
    steady_seconds: Seconds = 0.0
    share: Annotated[float, Field(ge=0, le=1.000001)] = 0.0


class LostRank(_Report):
    """A rank that a gang with runPolicy.elastic goes on without: since which iteration, and how its loss was seen."""

    rank: Count
    iteration: Count = 0
    why: Annotated[str, _cut_text(256)] = ""


class TrainerGang(_Report):
    """Who is left of a gang with runPolicy.elastic. Ranks have the numbers here that they started with.

    `started`: ranks that it began with; `live`: those that are left; `members`: who they are, by their
    rank of now. `unprotected`: units of so many ranks exist once only. `comebacks`: ranks that came back.
    """

    started: Count
    live: Count
    members: RankNumbers = ()
    lost: Annotated[tuple[LostRank, ...], _cut_list(MOST_BLAMED)] = ()
    unprotected: Count = 0
    comebacks: Count = 0


class TrainerCause(_Report):
    """Why a slow rank is slow. `kind` is one of causes.py, or of a newer trainer; `share`: of time, 0..1.

    `amount`: a number whose unit depends on the kind, absent where none is known; see WORDS of causes.py.
    """

    rank: Count
    kind: Word
    share: Annotated[float, Field(ge=0, le=1.000001)] = 0.0
    amount: Seconds | None = None


class TrainerInjection(_Report):
    """One injection of the control document: its state and the ranks that it slows now (pattern: the rank in turn).

    `lapsed` means that the lease ran out, because no operator renewed it. `seconds` is how long it has been in effect.
    `ranks` are the first 64.
    """

    uid: Word
    state: InjectionState
    ranks: RankNumbers = ()
    seconds: float = 0.0


class Spread(_Report):
    """The least, the median and the greatest of some ranks' values."""

    least: float
    median: float
    most: float


class OtherRanks(_Report):
    """The ranks of a gang of more than 64 that are not shown one by one; None: no rank has such a value."""

    count: Count
    compute_seconds: Spread | None = None
    wait_seconds: Spread | None = None
    relative_speed: Spread | None = None


class TrainerStatus(_Report):
    """The whole job as rank 0 reports it; `test_loss`, `accuracy` (0..1), `perplexity` and `sample` (text
    that a language model wrote) are of the last evaluation.

    `control_error`: why the newest control document was refused, empty where it was not; `control_error_generation`:
    the generation of the refused document, absent where it names none (then it is not JSON, or not an object).
    While the state is "starting" a checkpoint may still be restored: `iteration` is not valid yet.
    `ranks`: of more than 64 the stragglers, those that injections slow, and the slowest; `other_ranks` sums up others.
    `stalled_seconds`: time since the last iteration, absent unless it is far longer than one; `stalled_by`: the ranks
    that the others wait for; `stall`: where the ranks are, for people. `idle_seconds`: time since rank 0 last ended an
    iteration or a batch of an evaluation, absent while a reason for none is known (a checkpoint) and in trainers that
    do not report it.
    `decision_id` counts decisions; `reason` is one sentence about the last one and its numbers, which holds from
    `decision_iteration` on and was made at `decision_at` (unix seconds).
    `untouched_iteration_seconds`: time of an iteration without reduced work (absent where no rank's work is reduced and
    all units are at their first ranks); `saved_seconds`: the sum of what was saved over the run. `deleted_share`: the
    part of all work of the run that was deleted, 0..1. `lost_seconds`: what ranks that are late cost an iteration of
    the last window; `blame`: by whom, and in which stage, the most first, 16 at most. `causes`: why ranks are slow, the
    slowest rank and its main cause first, 16 at most, absent in trainers that look for none. `skipped_updates`:
    updates of this attempt that were left out, because loss or gradients were not finite. `moves`: times that units
    changed rank in this attempt, which took `moved_seconds`. `lease_expired`: injections are dropped until an operator
    renews the lease. `gang`: absent without runPolicy.elastic.
    """

    schema_version: Literal[1] = 1
    job: Annotated[str, _cut_text(253)]
    attempt: Count
    state: TrainerState
    message: Text = ""
    stalled_seconds: float | None = None
    stalled_by: RankNumbers = ()
    stall: Text = ""
    idle_seconds: float | None = None
    started_at: float
    epoch: Count = 0
    iteration: Count = 0
    total_iterations: Count | None = None
    resumed_from: Count | None = None
    iteration_seconds: float | None = None
    samples_per_second: float | None = None
    loss: float | None = None
    test_loss: float | None = None
    accuracy: float | None = None
    perplexity: float | None = None
    sample: Text = ""
    eta_seconds: float | None = None
    applied_generation: Count = 0
    control_generation: Count = 0
    control_error: Text = ""
    control_error_generation: Annotated[int | None, BeforeValidator(_bounded)] = None
    strategy: Word = "None"
    plan_hash: Word = ""
    # planId: name of the field in trainers before 0.1.0, which may still run; remove the alias after that release
    decision_id: int = Field(0, ge=0, le=MOST, validation_alias=AliasChoices("decisionId", "planId"))
    decision_iteration: Count = 0
    decision_at: float | None = None
    reason: Text = ""
    predicted_iteration_seconds: float | None = None
    limit_iteration_seconds: float | None = None
    untouched_iteration_seconds: float | None = None
    saved_seconds: float = 0.0
    deleted_share: float = 0.0
    lost_seconds: Seconds | None = None
    blame: Annotated[tuple[TrainerBlame, ...], _cut_list(MOST_BLAMED)] = ()
    causes: Annotated[tuple[TrainerCause, ...], _cut_list(MOST_CAUSES)] = ()
    skipped_updates: Count = 0
    moves: Count = 0
    moved_seconds: float = 0.0
    emulated: bool = False
    ranks: Annotated[tuple[TrainerRank, ...], BeforeValidator(_shown_ranks)] = ()
    other_ranks: OtherRanks | None = None
    injections: Annotated[tuple[TrainerInjection, ...], _cut_list(MOST_INJECTIONS)] = ()
    lease_expired: bool = False
    gang: TrainerGang | None = None


def for_a_poll(status: TrainerStatus) -> TrainerStatus:
    """Return the status of a gang of any size as a document that is read: 64 ranks, a summary of the others."""
    shown = sorted(_shown_ranks(status.ranks), key=lambda rank: rank.rank)
    numbers = {rank.rank for rank in shown}
    others = [rank for rank in status.ranks if rank.rank not in numbers]
    injections = status.injections[:MOST_INJECTIONS]
    return status.model_copy(
        update={
            "ranks": tuple(shown),
            "other_ranks": _summary(others) if others else status.other_ranks,
            "stalled_by": status.stalled_by[:MAX_RANKS],
            "injections": tuple(each.model_copy(update={"ranks": each.ranks[:MAX_RANKS]}) for each in injections),
            **{
                name: getattr(status, name)[:MAX_TEXT]
                for name in ("message", "stall", "control_error", "reason", "sample")
            },
        }
    )


def _summary(ranks: Sequence[TrainerRank]) -> OtherRanks:
    return OtherRanks(
        count=len(ranks),
        compute_seconds=_spread(rank.compute_seconds for rank in ranks),
        wait_seconds=_spread(rank.wait_seconds for rank in ranks),
        relative_speed=_spread(rank.relative_speed for rank in ranks),
    )


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(least=min(known), median=statistics.median(known), most=max(known)) if known else None
