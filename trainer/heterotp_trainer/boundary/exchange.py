"""The boundary exchange: each rank's requests and measurements reach all ranks, so that all enter the same collectives.

At the boundary after iteration k every rank starts an asynchronous all-gather of one small vector, on a gloo group of
its own. The result is read at the boundary after k + 1, so that no rank waits for it. The pure function `merge_reports`
derives from these vectors what all ranks do at the same iteration: stop, write a checkpoint, evaluate, receive a
control document.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from math import inf, isclose, isfinite

import torch
import torch.distributed as dist

from heterotp_trainer.boundary.agreement import SAME_WITHIN
from heterotp_trainer.devices.machine.reading import NO_READING, Reading
from heterotp_trainer.devices.machine.reading import NUMBERS as MACHINE_NUMBERS
from heterotp_trainer.devices.phase_clock import PHASES
from heterotp_trainer.devices.stage_times import StageTimes

STOP, CHECKPOINT, EVALUATE, LEASE_OVER, ADMIT, ASKED, LEAVE = 1, 2, 4, 8, 16, 32, 64
_NUMBERS = ("iteration", "flags", "generation", "document_bytes", "measured", "applied", "decision_id", "ready")
_FRACTIONS = ("full", "unslowed", "attention", "vocabulary", "pace_ratio", "batch_norm", "batch_signed", "loss")
_HASHES = ("plan", "batch")  # 64 bits each, as two whole numbers that a float64 holds exactly
NO_STAGES = StageTimes()
_STAGES = len(NO_STAGES.own) + 3
WIDTH = len(_NUMBERS) + len(_FRACTIONS) + 2 * len(_HASHES) + len(PHASES) + _STAGES + MACHINE_NUMBERS


SAME_BATCHES = ": every rank trains on the same batches, in model.train(), so seed samplers alike on all ranks"
SAME_LOSS = (
    "every rank computes the same loss: usually unlike labels, or a norm, a mean or a penalty over what is cut, "
    "of which a rank sees its own units"
)
# relative, by whether devices are unlike: on like ones replicas are equal bit by bit, and what follows from them
LOSS_WITHIN = {False: 1e-6, True: SAME_WITHIN}


class MismatchError(RuntimeError):
    """Ranks disagree on what must be equal."""


@dataclass(frozen=True)
class Report:
    """What one rank reports at one boundary; seconds are of the iteration that just ended."""

    iteration: int
    flags: int = 0
    generation: int = 0  # rank 0: of the newest control document
    document_bytes: int = 0  # rank 0: length of that document where it is new, else 0
    measured: int = 1  # 0: warm-up, or the iteration contained a checkpoint, an evaluation or a new plan
    applied: int = 0  # generation of the document in force in this iteration
    decision_id: int = 0  # of the plan in force in this iteration
    ready: int = 0  # decision_id of the proposal that memory is reserved for; negative: there is not enough memory
    full: float = 0.0  # matmul seconds with no work pruned or migrated (estimated)
    unslowed: float = 0.0  # matmul seconds without the injected slow-down (estimated); 0: there is none
    attention: float = 0.0  # the part of the unit seconds that belongs to attention
    vocabulary: float = 0.0  # the part of them that belongs to the vocabulary
    pace_ratio: float = 0.0  # seconds of a product over its seconds at calibration; 0: not probed
    plan: int = 0  # 64-bit hash
    batch: int = 0  # 64-bit hash of what entered the model; 0: nothing that is watched
    batch_norm: float = 0.0  # outline of the floats that entered it, where devices are unlike: see batch_hash.Entered
    batch_signed: float = 0.0
    loss: float = inf  # that the loop handed over, of the iteration before where a device is late; inf: none
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    stages: StageTimes = NO_STAGES  # the same seconds by stage, waits left out
    machine: Reading = NO_READING  # of the last seconds, whatever iterations they are

    def pack(self) -> torch.Tensor:
        """Return the vector: [WIDTH] float64."""
        numbers = [float(getattr(self, name)) for name in (*_NUMBERS, *_FRACTIONS)]
        halves = [float(half) for name in _HASHES for half in divmod(getattr(self, name), 2**32)]
        seconds, stages = (self.seconds[name] for name in PHASES), self.stages
        met = stages.arrived, stages.completed, float(stages.meetings)
        values = [*numbers, *halves, *seconds, *stages.own, *met, *self.machine.numbers()]
        return torch.tensor(values, dtype=torch.float64)

    @classmethod
    def unpack(cls, vector: torch.Tensor) -> "Report":
        """Return the report that `pack` wrote."""
        values, machine = vector[:-MACHINE_NUMBERS].tolist(), vector[-MACHINE_NUMBERS:].tolist()
        numbers = {name: int(value) for name, value in zip(_NUMBERS, values, strict=False)}
        fractions = dict(zip(_FRACTIONS, values[len(_NUMBERS) :], strict=False))
        rest = values[len(_NUMBERS) + len(_FRACTIONS) :]
        hashes = {name: int(rest[2 * i]) * 2**32 + int(rest[2 * i + 1]) for i, name in enumerate(_HASHES)}
        seconds, stages = rest[2 * len(_HASHES) : -_STAGES], rest[-_STAGES:]
        return cls(
            **numbers,
            **fractions,
            **hashes,
            seconds=dict(zip(PHASES, seconds, strict=True)),
            stages=StageTimes(tuple(stages[:-3]), stages[-3], stages[-2], int(stages[-1])),
            machine=Reading.of(machine),
        )


assert {f.name for f in fields(Report)} == {*_NUMBERS, *_FRACTIONS, *_HASHES, "seconds", "stages", "machine"}


def comparable(reports: Sequence[Report]) -> bool:
    """Return whether all ranks report a whole iteration under the same plan; a device may report times late."""
    return all(report.measured and report.decision_id == reports[0].decision_id for report in reports)


def flags_of(
    *,
    stop: bool,
    checkpoint: bool,
    evaluate: bool,
    lease_over: bool,
    admit: bool = False,
    asked: bool = False,
    leave: bool = False,
) -> int:
    """Return the requests of one rank as the bits of Report.flags."""
    bits = {
        STOP: stop,
        CHECKPOINT: checkpoint,
        EVALUATE: evaluate,
        LEASE_OVER: lease_over,
        ADMIT: admit,
        ASKED: asked,
        LEAVE: leave,
    }
    return sum(bit for bit, wanted in bits.items() if wanted)


@dataclass(frozen=True)
class GangAction:
    """What all ranks do at this boundary."""

    stop: bool = False
    checkpoint: bool = False
    evaluate: bool = False
    lease_over: bool = False
    admit: bool = False  # let in a rank that came back
    leave: int | None = None  # the rank that leaves now, because it alone was asked to
    document_bytes: int = 0


def asked_of(reports: Sequence[Report]) -> tuple[int, ...]:
    """Return the ranks of an elastic gang that were asked to stop."""
    return tuple(rank for rank, report in enumerate(reports) if report.flags & ASKED)


def merge_reports(reports: Sequence[Report], *, unlike: bool = False) -> GangAction:
    """Return what all ranks do, by any rank's flags; raise MismatchError naming ranks that disagree with rank 0.

    unlike: whether the ranks' devices round differently.
    """
    _must_agree("iteration", [report.iteration for report in reports], shown=True)
    _must_agree("the plan's hash", [report.plan for report in reports])
    _must_agree("the batch", [_batch_like(report, reports[0]) for report in reports], SAME_BATCHES)
    _losses_must_agree([report.loss for report in reports], LOSS_WITHIN[unlike])
    asked = asked_of(reports)
    leaves = bool(reports[0].flags & LEAVE) and bool(asked)
    flags = STOP if leaves and len(asked) > 1 else 0  # another one was asked meanwhile
    for report in reports:
        flags |= report.flags
    return GangAction(
        stop=bool(flags & STOP),
        checkpoint=bool(flags & CHECKPOINT),
        evaluate=bool(flags & EVALUATE),
        lease_over=bool(flags & LEASE_OVER),
        admit=bool(flags & ADMIT),
        leave=asked[0] if leaves and len(asked) == 1 else None,
        document_bytes=reports[0].document_bytes,
    )


def _batch_like(report: Report, first: Report) -> int:
    """Return what identifies a batch: its hash, and rank 0's outline is taken where it is the same within a bound."""
    bound = SAME_WITHIN * abs(first.batch_norm) + 1e-12
    pairs = (report.batch_norm, first.batch_norm), (report.batch_signed, first.batch_signed)
    alike = all(abs(one - other) <= bound or not (isfinite(one) or isfinite(other)) for one, other in pairs)
    return report.batch if alike else ~report.batch


def _losses_must_agree(losses: Sequence[float], within: float) -> None:
    """Raise MismatchError naming the ranks whose loss is not the first one's; those without one are left out."""
    known = {rank: loss for rank, loss in enumerate(losses) if isfinite(loss)}
    first = next(iter(known), 0)
    odd = [rank for rank, loss in known.items() if not isclose(loss, known[first], rel_tol=within, abs_tol=1e-6)]
    if odd:
        values = ", ".join(f"{loss:.6g}" for loss in known.values())
        raise MismatchError(f"the loss of ranks {odd} differs from rank {first}'s ({values}): {SAME_LOSS}")


def _must_agree(what: str, values: Sequence[int], advice: str = "", *, shown: bool = False) -> None:
    """Raise MismatchError naming the ranks whose value is not rank 0's; shown: with the values."""
    if len(set(values)) == 1:
        return
    odd = [rank for rank, value in enumerate(values) if value != values[0]]
    raise MismatchError(f"{what} of ranks {odd} differs from rank 0's{advice}{f': {list(values)}' if shown else ''}")


class BoundaryExchange:
    """Posts this rank's report and collects those of all ranks, one boundary later.

    | call    | a rank holds            | afterwards, at the next boundary |
    |---------|-------------------------|----------------------------------|
    | post    | its own report, [WIDTH] | -                                |
    | collect | -                       | all ranks' reports, in order     |
    """

    def __init__(self, group: dist.ProcessGroup, ranks: int) -> None:
        self._group, self._ranks = group, ranks
        self._pending: tuple[dist.Work, list[torch.Tensor]] | None = None

    def collect(self) -> tuple[Report, ...] | None:
        """Return all ranks' reports of the previous boundary; None at the first."""
        if self._pending is None:
            return None
        work, vectors = self._pending
        work.wait()
        self._pending = None
        return tuple(Report.unpack(vector) for vector in vectors)

    def close(self) -> None:
        """Give up the group; nothing can be exchanged any more."""
        del self._group

    def post(self, report: Report) -> None:
        """Start the all-gather of this rank's report."""
        vectors = [torch.empty(WIDTH, dtype=torch.float64) for _ in range(self._ranks)]
        work = dist.all_gather(vectors, report.pack(), group=self._group, async_op=True)
        assert work is not None
        self._pending = (work, vectors)


def hash_number(hex_digits: str) -> int:
    """Return 16 hex digits as a whole number."""
    return struct.unpack(">Q", bytes.fromhex(hex_digits))[0]  # type: ignore[no-any-return]
